"""Spilled registers of a kernel for NVIDIA, as counted by `ptxas -v`: the stack frame can also hold arrays, as of a sine."""

import inspect
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from portable_softmax.devices.backends import cubin
from portable_softmax.errors import CompileError

# Data of a thread's own in memory, and functions, which may store registers for those that call them.
OWN_DATA = re.compile(r"^\s*(\.local|(\.visible |\.weak |\.extern )?\.func)\b", re.MULTILINE)
FIRST_WITH_ALLOCATOR = 3, 7  # release of Triton that names the level of the register allocator


def spilled_bytes(compiled: Any) -> int:
    """Counts the bytes of spilled registers of Triton's CompiledKernel that has a stack frame.

    Without data of its own all that a kernel stores in its frame is spilled. Otherwise the assembler is run to report it:
    CompileError if it fails, or does not make of the PTX what Triton made of it.
    """
    if not OWN_DATA.search(compiled.asm["ptx"]):
        return cubin.local_stores(compiled.asm["cubin"])
    log, made = _assembled(compiled.asm["ptx"], compiled.metadata)
    name, keys, binaries = compiled.metadata.name, (cubin.REGISTER_COUNT, cubin.FRAME_SIZE), (compiled.asm["cubin"], made)
    was, now = ([cubin.kernel_attributes(binary, name).get(key) for key in keys] for binary in binaries)
    if was != now:
        why = f"ptxas was run to report spills, and made a kernel of {now[0]} registers, where Triton's has {was[0]}"
        raise CompileError(f"{name}: {why}; unset what changes Triton's options of ptxas, such as DISABLE_PTXAS_OPT")
    return sum(int(stores) for stores in re.findall(r"(\d+) bytes spill stores", log))


def _assembled(ptx: str, metadata: Any) -> tuple[str, bytes]:
    """Runs the assembler on PTX as Triton does; returns the output of `ptxas -v`, and the cubin."""
    import triton

    arch = re.search(r"^\.target (sm_(\d+)\w*)", ptx, re.MULTILINE)
    assert arch, "PTX names its target"
    options = (getattr(metadata, "ptx_options", None) or "").split()
    if not metadata.enable_fp_fusion:
        options.append("--fmad=false")
    if tuple(map(int, triton.__version__.split(".")[:2])) >= FIRST_WITH_ALLOCATOR:
        options.append("--regAllocOptLevel=2")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.ptx").write_text(ptx)
        command = [
            _assembler(int(arch[2])),
            "-lineinfo",
            "-v",
            *options,
            f"--gpu-name={arch[1]}",
            "kernel.ptx",
            "-o",
            "kernel.cubin",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode:
            raise CompileError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stderr, Path(folder, "kernel.cubin").read_bytes()


def _assembler(arch: int) -> str:
    """Returns the path of the ptxas that Triton uses for a compute capability; TRITON_PTXAS_PATH and others may name it."""
    from triton.backends.nvidia import compiler

    if not hasattr(compiler, "get_ptxas"):  # Triton 3.2
        return str(compiler._path_to_binary("ptxas")[0])
    arguments = [arch][: len(inspect.signature(compiler.get_ptxas).parameters)]  # Triton 3.4 and 3.5 have one for all
    tool = compiler.get_ptxas(*arguments)
    return str(tool[0] if isinstance(tool, tuple) else tool.path)
