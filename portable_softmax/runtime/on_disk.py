"""Compiled kernels that a later process finds again, by files that name them in Triton's cache.

Triton itself reads and hashes all of its own files before it looks into its cache, and the kernel's text. A key here holds what
a kernel depends on, and of Triton's files their times and sizes. Plans are not kept: once kernels are found, planning again
takes less than reading a file of plans would.

$PORTABLE_SOFTMAX_CACHE names the directory, or is `off`; by default it is `portable_softmax` in Triton's cache.
"""

import functools
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

VARIABLE = "PORTABLE_SOFTMAX_CACHE"
OFF = "off"
KERNELS = Path(__file__).parents[1] / "kernels"
_log = logging.getLogger("portable_softmax")


def key_of(*splits: Any) -> str:
    """Returns the key of a kernel: `splits` say how it is compiled, and their repr is the same in every process.

    It also holds the text of this package's kernels, Triton's release and files, and Triton's environment variables.
    """
    variables = sorted((name, value) for name, value in os.environ.items() if name.startswith(("TRITON_", "LLVM_", "MLIR_")))
    # Where a cache is does not change what is in it.
    variables = [each for each in variables if not each[0].endswith(("_CACHE_DIR", "_HOME"))]
    return hashlib.sha256(repr((splits, _kernels_text(), _tritons_files(), variables)).encode()).hexdigest()


def load(key: str, source: Callable[[], Any]) -> Any:
    """Returns Triton's CompiledKernel of a key; None if no process has kept it, or its files are gone or damaged.

    Args:
        key: from key_of.
        source: makes Triton's source of the kernel, which is needed where Triton launches it.
    """
    folder = _folder()
    if folder is None or _is_customised():
        return None
    path = folder / f"{key}.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["key"] != key:
            raise ValueError(f"it is of another kernel, {record['key']}")
        files = {name: str(file) for name, (file, _) in record["files"].items()}
        for file, size in record["files"].values():
            if Path(file).stat().st_size != size:
                raise ValueError(f"{file} has another size than {size}")
        if not any(name.endswith(".json") for name in files):  # Triton would warn of a kernel that is made by half
            raise ValueError("it names no metadata")
        from triton.compiler import CompiledKernel

        return CompiledKernel(_Later(source), files, str(record["hash"]))
    except FileNotFoundError as error:
        if error.filename != str(path):
            _log.info("%s is gone from Triton's cache; its kernel is compiled again", error.filename)
    except Exception as error:  # a damaged file can hold anything
        _log.warning("%s is damaged and will be written again: %r", path, error)
    return None


def keep(key: str, compiled: Any) -> None:
    """Writes the file by which `load` finds a compiled kernel; a directory that cannot be written is told to the log once."""
    folder, files = _folder(), getattr(compiled, "metadata_group", None)
    if folder is None or not files or _is_customised():
        return
    sizes = {name: [str(file), Path(file).stat().st_size] for name, file in files.items()}
    record = {"key": key, "hash": compiled.hash, "files": sizes}
    try:
        _write(folder / f"{key}.json", json.dumps(record))
    except OSError as error:
        _notify(f"{folder} cannot be written, so the next process looks for its kernels in Triton's way: {error.strerror}")


def _write(path: Path, text: str) -> None:
    """Writes a file at once: a process that reads it meanwhile finds all of it, or what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    written = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        written.replace(path)
    except BaseException:
        written.unlink()
        raise


class _Later:
    """Triton's source of a kernel, made when Triton asks for any of it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = functools.cache(make)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._make(), name)


def _folder() -> Path | None:
    named = os.environ.get(VARIABLE)
    if named == OFF:
        return None
    from triton import knobs

    return Path(named) if named else Path(knobs.cache.dir) / "portable_softmax"


def _is_customised() -> bool:
    """Tells whether someone wants to see, or changes, how Triton compiles."""
    from triton import knobs

    asked = (getattr(knobs.compilation, name, None) for name in ("listener", "override", "dump_ir", "always_compile"))
    return any(asked) or getattr(knobs.runtime, "add_stages_inspection_hook", None) is not None


@functools.cache
def _kernels_text() -> str:
    text = hashlib.sha256()
    for path in sorted(KERNELS.rglob("*.py")):
        text.update(path.relative_to(KERNELS).as_posix().encode() + path.read_bytes())
    return text.hexdigest()


@functools.cache
def _tritons_files() -> Mapping[str, Any]:
    import triton

    root = Path(triton.__file__).parent
    patterns = *(f"{folder}/**/*.py" for folder in ("compiler", "runtime", "language", "backends")), "_C/*", "backends/*/bin/*"
    files = sorted(path for pattern in patterns for path in root.glob(pattern))
    told = [(str(path), stat.st_mtime_ns, stat.st_size) for path in files if (stat := path.stat())]
    return {"version": triton.__version__, "files": hashlib.sha256(repr(told).encode()).hexdigest()}


@functools.cache
def _notify(notice: str) -> None:
    _log.warning(notice)
