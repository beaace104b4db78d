package mercury;

import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local file system without a process for each file: where Hadoop's native library is missing,
 * it starts `chmod` for every file that a checkpoint writes, which takes longer than the batch.
 */
public final class QuickLocalFileSystem extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) {
        // Files have what the process's umask gives them.
    }
}
