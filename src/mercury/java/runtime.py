"""Finds a Java that Spark and Kafka run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from mercury.model.errors import JavaError

NEEDED = 17
ADVICE = (
    f"install Java {NEEDED} or later (Debian and Ubuntu: apt-get install openjdk-17-jdk-headless)"
)


def find_java() -> str:
    """The path of Java: that of JAVA_HOME, or the one on the path."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise JavaError(f"Spark and Kafka need Java: {ADVICE}")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise JavaError(f"{java} does not run: {ADVICE}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if found is None or int(found[1]) < NEEDED:
        version = found[1] if found else "?"
        raise JavaError(f"Spark and Kafka do not run on Java {version}: {ADVICE}")
    return java


def java_problem() -> str:
    """Why Spark and Kafka cannot run here for want of Java; empty if they can."""
    try:
        find_java()
    except JavaError as error:
        return str(error)
    return ""
