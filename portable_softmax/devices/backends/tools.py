"""Runs vendors' compilers and assemblers, which read and write files."""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_tool(command: Sequence[str], files: Mapping[str, bytes], result: str) -> tuple[int, str, bytes]:
    """Runs a command in a folder of executable files; returns its exit status, all that it prints, and the file `result`."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
            Path(folder, name).chmod(0o755)
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        printed, written = done.stdout.decode(errors="replace"), Path(folder, result)
        return done.returncode, printed, written.read_bytes() if written.is_file() else b""
