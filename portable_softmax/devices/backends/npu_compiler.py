"""Ascend's own compiler, of two wheels and without CANN: Triton's IR to linalg, and linalg to a plan of the Unified Buffer.

Flags are those of third_party/ascend/backend/compiler.py of triton-ascend. The last step, `hivmc` of CANN, does nothing here.
"""

import hashlib
import importlib.metadata
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.backends.tools import run_tool
from portable_softmax.errors import CompileError

FOLDER = "PORTABLE_SOFTMAX_ASCEND"  # environment variable: the folder of both wheels
RELEASES = {"triton-ascend": "3.2.0", "ascendnpu-ir": "1.2.0"}
NAME = f"bishengir-compile {RELEASES['ascendnpu-ir']}"
COMPILED = f"{NAME}, {{}}; the last step needs CANN"
INSTALL = "pip install --target DIR --no-deps --python-version 3.11 --only-binary=:all: "
INSTALL += " ".join(f"{name}=={release}" for name, release in RELEASES.items())
ADAPTER = "triton/backends/ascend/triton-adapter-opt"
LOWERING = """--discrete-mask-access-conversion=compile-on-910-95={0} force-simt-template=False
--triton-to-annotation
--triton-to-unstructure=compile-on-910-95={0} force-simt-template=False
--triton-to-hivm
--triton-to-hfusion
--triton-to-llvm
--bubble-up-operation
--triton-to-linalg=global-kernel=false named-ops=True enable-nd2nz-on-vector=False \
enable-select-analysis={0} compile-on-910-95={0}
"""  # {0} is True for the 950's generation
A2_A3, A5 = "ascendnpuir/bin/bishengir-compile", "ascendnpuir/bin/bishengir-compile-a5"
TARGETS = {  # of one product of each generation, as others have the same plans; and the flags that print the plan
    A2_A3: "--target=Ascend910B3 --enable-hivm-compile=true --mlir-print-ir-after=hivm-plan-memory",
    A5: "--target=Ascend950PR_9589 --enable-print-memory-allocated-size",
}
ALWAYS = "--enable-hfusion-compile=true --enable-triton-kernel-compile=true"
PLAIN = "enable_auto_bind_sub_block enable_hivm_auto_cv_balance limit_auto_multi_buffer_only_for_local_buffer "
PLAIN += "limit_auto_multi_buffer_of_local_buffer set_workspace_multibuffer tile_mix_vector_loop tile_mix_cube_loop "
FLAGS = {name: name.replace("_", "-") for name in PLAIN.split()} | {  # by the option of a launch in triton-ascend
    "disable_auto_inject_block_sync": "disable-auto-inject-block-sync",
    "multibuffer": "enable-auto-multi-buffer",
    "sync_solver": "enable-hivm-graph-sync-solver",
    "unit_flag": "enable-hivm-unit-flag-sync",
    "inject_barrier_all": "enable-hivm-inject-barrier-all-sync",
    "inject_block_all": "enable-hivm-inject-block-all-sync",
}
BLOCK, OUT_OF_TIME = 32, -24  # bytes of a granule of the Unified Buffer; the signal SIGXCPU
SECONDS = 60  # of a processor, for a compilation, which takes 0.1 to 2; that of tl.sort of 4096 elements does not end
IDENTITY = f"{RELEASES} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}"  # what plans depend on beside the kernel


def compiler_of(arch: object) -> str:
    """Returns the compiler of a target's generation."""
    return (re.match(r"Ascend(950|910_95)", str(arch)) and A5) or A2_A3


def missing() -> str | None:
    """Returns why Ascend's compiler cannot be used here; None if it can."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return f"{FOLDER} is not set; it names the folder DIR of Ascend's compiler, which this command makes: {INSTALL}"
    there = {entry.metadata["Name"]: entry.version for entry in importlib.metadata.distributions(path=[folder])}
    wrong = [f"{name} {there.get(name, '(none)')}" for name, release in RELEASES.items() if there.get(name) != release]
    wrong += [f"no executable {tool}" for tool in (ADAPTER, A2_A3, A5) if not os.access(Path(folder, tool), os.X_OK)]
    return f"{FOLDER}={folder} has {', '.join(wrong)}; this command makes such a folder: {INSTALL}" if wrong else None


def lowered(ttir: str, arch: object) -> str:
    """Returns the linalg of Triton's IR, which is text; CompileError if it cannot be lowered."""
    code, printed, linalg = _run(ADAPTER, ttir, LOWERING.format(compiler_of(arch) == A5).splitlines())
    if code or not linalg:
        raise CompileError(f"triton-adapter-opt of triton-ascend {RELEASES['triton-ascend']}: {_why(code, printed)}")
    return linalg


def planned(linalg: str, arch: object, options: Mapping[str, Any]) -> KernelResources:
    """Returns what a program uses by the memory plan of linalg, which takes what is free.

    `options` are a launch's that FLAGS has. The compiler of A2 and A3 plans single buffers where double ones do not fit.
    CompileError: it overflows, with its size, or the compiler fails or takes long.
    """
    tool = compiler_of(arch)
    usual = dict.fromkeys(("multibuffer", "enable_auto_bind_sub_block"), tool == A2_A3)  # NPUOptions of triton-ascend
    chosen = usual | {name: value for name, value in options.items() if value is not None}
    flags = [*ALWAYS.split(), *TARGETS[tool].split(), *(f"--{FLAGS[name]}={value}" for name, value in chosen.items())]
    code, printed, _ = _run(tool, re.sub(r', mix_mode\s*=\s*"[^"]*"', "", linalg), flags)
    last = printed.rpartition("retrying compilation.")[2]  # of A2 and A3; what was printed ahead of it is of refused plans
    sizes = [int(bits) // 8 for bits in re.findall(r"UB size = (\d+) bits", last)]
    sizes += {A5: [0], A2_A3: _sizes_of_dump(last)}[tool]  # that of the 950 prints none without buffers
    buffers, advice, cores = "single-buffered", "", 1 if 'mix_mode = "aiv"' in linalg else 2
    if chosen["multibuffer"] and "enable-auto-multi-buffer to false" not in printed:
        buffers, advice = "double-buffered", "; multibuffer=False takes less"
    if code == 0 and sizes:
        return KernelResources(shared_memory_bytes=max(sizes), multiprocessors=cores, compiler=COMPILED.format(buffers))
    if overflow := re.search(r"error: (ub overflow, requires (\d+) bits while (\d+) bits available!)", last):
        needed, there = (int(bits) // 8 for bits in overflow.groups()[1:])
        raise CompileError(f"{NAME}: {overflow[1]} (at least {needed} bytes of {there}){advice}")
    raise CompileError(f"{NAME} failed: {_why(code, printed)}")


def _sizes_of_dump(printed: str) -> list[int]:
    """Returns where the last buffer of every function ends, in bytes, from the IR behind the pass that plans memory."""
    sizes = []
    for function in printed.split("IR Dump After PlanMemory (hivm-plan-memory)")[1:]:
        constants, ends = dict(re.findall(r"(%\w+) = arith\.constant (\d+) : i64", function)), [0]
        buffers = re.findall(r"pointer_cast\(([^)]*)\)[^:\n]*: memref<((?:\d+x)*)\D*(\d+)[^\n]*address_space<ub>", function)
        for offsets, shape, bits in buffers:
            blocks = -(-math.prod(map(int, shape.split("x")[:-1])) * int(bits) // (8 * BLOCK))
            ends += [int(constants[name.strip()]) + BLOCK * blocks for name in offsets.split(",")]
        sizes.append(max(ends))
    return sizes


def _run(tool: str, text: str, flags: list[str]) -> tuple[int, str, str]:
    """Runs a tool on a file; returns its exit status, all that it printed, and the file that it wrote."""
    last_step = f"#!/bin/sh\necho {NAME}\n".encode()
    files = {"kernel.mlir": text.encode(), "hivmc": last_step, "hivmc-a5": last_step}
    limited = "sh", "-c", f'PATH=$PWD:$PATH; ulimit -Ht {SECONDS + 2}; ulimit -St {SECONDS}; exec "$@"', "sh"
    command = [*limited, str(Path(os.environ[FOLDER], tool).absolute()), "kernel.mlir", *flags, "-o", "result.mlir"]
    code, printed, result = run_tool(command, files, "result.mlir")
    if code < 0 and code != OUT_OF_TIME:  # of some thousand runs one crashes, and not again
        code, printed, result = run_tool(command, files, "result.mlir")
    return code, printed, result.decode()


def _why(code: int, printed: str) -> str:
    """Returns why a tool failed, in its own words as far as it has any."""
    if code == OUT_OF_TIME:
        return f"it had not ended after {SECONDS} s; use smaller blocks"
    words = re.findall(r"(?:error: |Assertion )(?!Failed to run|Failures have been)(.+)", printed)
    words += re.findall(r"error: (.+)", printed)
    ended = f"it was ended by signal {-code}" if code < 0 else f"it ended with {code or '0, without a plan'}"
    return ": ".join([ended, *(word.strip() for word in words[:1])])
