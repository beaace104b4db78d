"""A process that has imported the command line, and forks for each command that it is asked for.

Each command is a process with its own folder, environment and output, as a person would start it;
only what importing takes is paid once. A line of JSON asks; the process's id and, when it has
ended, its exit code answer.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

from typer.testing import CliRunner

from mercury.cli.main import COMMANDS, app, main


def run(request: str) -> None:
    """Become the command."""
    wanted = json.loads(request)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(wanted["stdout"], flags), 1)
    os.dup2(os.open(wanted["stderr"], flags), 2)
    sys.argv = ["mercury", *wanted["arguments"]]
    main()


if __name__ == "__main__":
    CliRunner().invoke(app, ["--help"])  # has typer import the rest of itself
    for group in COMMANDS.values():
        for module, _ in group.values():
            import_module(f"mercury.cli.{module.partition(':')[0]}")
    while request := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            run(request)
            sys.exit()
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
