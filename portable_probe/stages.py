"""Stages of a kernel's compilation, as files."""

import json
from pathlib import Path
from typing import Any


class UnknownStageError(ValueError):
    """The compiler has no such stage for the device."""


def dump(compiled: Any, stages: str, directory: Path) -> list[Path]:
    """Writes compilation stages (comma-separated, or "all") and the metadata of a compiled kernel; returns the files.

    Raises:
        UnknownStageError: the kernel has no such stage.
    """
    wanted = list(compiled.asm) if stages == "all" else stages.split(",")
    if unknown := [stage for stage in wanted if stage not in compiled.asm]:
        raise UnknownStageError(f"no stage {', '.join(unknown)}; there are {', '.join(compiled.asm)}")
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for stage in wanted:
        content = compiled.asm[stage]
        path = directory / f"{compiled.metadata.name}.{stage}"
        path.write_bytes(content if isinstance(content, bytes) else str(content).encode())
        written.append(path)
    metadata = directory / f"{compiled.metadata.name}.json"
    metadata.write_text(json.dumps(compiled.metadata._asdict(), indent=1, default=str) + "\n")
    return [*written, metadata]
