"""Ascend's own compiler, from two wheels and without CANN: Triton's IR to linalg, and linalg to a plan of the Unified Buffer.

`triton-adapter-opt` is part of triton-ascend, `bishengir-compile` of ascendnpu-ir. Their flags are those that triton-ascend's
third_party/ascend/backend/compiler.py passes. The step behind the plan, `hivmc`, is part of CANN: here it does nothing.
"""

import functools
import hashlib
import importlib.metadata
import json
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from portable_softmax.errors import CompileError

FOLDER = "PORTABLE_SOFTMAX_ASCEND"  # environment variable: the folder of both wheels
RELEASES = {"triton-ascend": "3.2.0", "ascendnpu-ir": "1.2.0"}
NAME = f"bishengir-compile {RELEASES['ascendnpu-ir']}"
INSTALL = "pip install --target DIR --no-deps --python-version 3.11 --only-binary=:all: "
INSTALL += " ".join(f"{name}=={release}" for name, release in RELEASES.items())
ADAPTER, TOOLS = "triton/backends/ascend/triton-adapter-opt", "ascendnpuir/bin/"
TARGETS = {  # one of each generation, as others have the same plans; its program, and the flags that print the plan
    False: ("bishengir-compile", "Ascend910B3", "--enable-hivm-compile=true", "--mlir-print-ir-after=hivm-plan-memory"),
    True: ("bishengir-compile-a5", "Ascend950PR_9589", "--enable-print-memory-allocated-size"),
}
BLOCK = 32  # granule of the Unified Buffer, bytes
SECONDS = 60  # of a processor, for a compilation, which takes 0.1 to 2; that of tl.sort of 4096 elements does not end
OUT_OF_TIME = -24  # the signal SIGXCPU
FLAGS = {  # of bishengir-compile, by the option of a launch in triton-ascend
    "multibuffer": "enable-auto-multi-buffer", "enable_auto_bind_sub_block": "enable-auto-bind-sub-block",
    "enable_hivm_auto_cv_balance": "enable-hivm-auto-cv-balance", "sync_solver": "enable-hivm-graph-sync-solver",
    "unit_flag": "enable-hivm-unit-flag-sync", "inject_barrier_all": "enable-hivm-inject-barrier-all-sync",
    "inject_block_all": "enable-hivm-inject-block-all-sync", "tile_mix_vector_loop": "tile-mix-vector-loop",
    "limit_auto_multi_buffer_only_for_local_buffer": "limit-auto-multi-buffer-only-for-local-buffer",
    "limit_auto_multi_buffer_of_local_buffer": "limit-auto-multi-buffer-of-local-buffer",
    "set_workspace_multibuffer": "set-workspace-multibuffer", "tile_mix_cube_loop": "tile-mix-cube-loop",
    "disable_auto_inject_block_sync": "disable-auto-inject-block-sync",
}  # fmt: skip


class Plan(NamedTuple):
    """The memory plan of a program.

    Args:
        size: bytes of the Unified Buffer as planned, which is no need: the compiler uses what is free.
        double: True if transfers are double-buffered.
        cores: vector cores of a program; 2 for a kernel with tl.dot.
    """

    size: int
    double: bool
    cores: int


def is_950(arch: object) -> bool:
    """True for a target of the 950's generation, which has a compiler of its own."""
    return bool(re.match(r"Ascend(950|910_95)", str(arch)))


def missing() -> str | None:
    """Returns why Ascend's compiler cannot be used here; None if it can."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return f"{FOLDER} is not set; it names the folder DIR of Ascend's compiler, which this command makes: {INSTALL}"
    there = {entry.metadata["Name"]: entry.version for entry in importlib.metadata.distributions(path=[folder])}
    if wrong := [f"{name} {there.get(name, '(none)')}" for name, release in RELEASES.items() if there.get(name) != release]:
        return f"{FOLDER}={folder} has {', '.join(wrong)}; this command makes a folder of the supported releases: {INSTALL}"
    tools = [Path(folder, tool) for tool in (ADAPTER, *(TOOLS + name for name, *_ in TARGETS.values()))]
    absent = [str(tool) for tool in tools if not os.access(tool, os.X_OK)]
    return f"{', '.join(absent)} cannot be executed; make the folder {folder} anew: {INSTALL}" if absent else None


@functools.cache
def identity() -> str:
    """Returns what a plan depends on beside the kernel: the releases, and this file, as Triton's own cache does."""
    return f"{RELEASES} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}"


def lowered(ttir: str, arch: object) -> str:
    """Returns the linalg of Triton's IR, which is text; CompileError if it cannot be lowered."""
    newest = f"compile-on-910-95={is_950(arch)}"
    flags = [
        f"--discrete-mask-access-conversion={newest} force-simt-template=False", "--triton-to-annotation",
        f"--triton-to-unstructure={newest} force-simt-template=False", "--triton-to-hivm", "--triton-to-hfusion",
        "--triton-to-llvm", "--bubble-up-operation", "--triton-to-linalg=global-kernel=false named-ops=True "
        f"enable-nd2nz-on-vector=False enable-select-analysis={is_950(arch)} {newest}",
    ]  # fmt: skip
    code, printed, linalg = _run(ADAPTER, ttir, flags)
    if code or not linalg:
        raise CompileError(f"triton-adapter-opt of triton-ascend {RELEASES['triton-ascend']}: {_why(code, printed)}")
    return linalg


def planned(linalg: str, arch: object, options: Mapping[str, Any]) -> Plan:
    """Returns the memory plan of a kernel in linalg, cached by content in Triton's cache.

    Args:
        linalg: text.
        arch: Triton's name of the target.
        options: of a launch in triton-ascend, by name: those that FLAGS has.

    Raises:
        CompileError: the Unified Buffer overflows, with its size; or the compiler fails, crashes or takes too long.
    """
    from triton.runtime.cache import get_cache_manager

    usual = dict.fromkeys(("multibuffer", "enable_auto_bind_sub_block"), not is_950(arch))  # NPUOptions of triton-ascend
    chosen = usual | {name: value for name, value in options.items() if value is not None}
    flags = [f"--{FLAGS[name]}={value}" for name, value in chosen.items()]
    content = "\n".join([linalg, *flags, *TARGETS[is_950(arch)], identity()])
    cache, file = get_cache_manager(hashlib.sha256(content.encode()).hexdigest()), "plan.json"
    kept = cache.get_file(file)
    answer = json.loads(Path(kept).read_text()) if kept else _answer(linalg, is_950(arch), flags)
    if answer.pop("final", False):
        cache.put(json.dumps(answer), file, binary=False)
    if "error" not in answer:
        return Plan(**answer)
    single = is_950(arch) and chosen["multibuffer"]  # the compiler of others tries it by itself
    raise CompileError(answer["error"] + "; multibuffer=False may fit" * bool(single))


def _answer(linalg: str, newest: bool, flags: list[str]) -> dict[str, Any]:
    """Returns the fields of a plan, or the error; and whether it is final, which a signal is not."""
    tool, target, *prints = TARGETS[newest]
    every = f"--target={target}", "--enable-hfusion-compile=true", "--enable-triton-kernel-compile=true"
    code, printed, _ = _run(TOOLS + tool, re.sub(r', mix_mode\s*=\s*"[^"]*"', "", linalg), [*every, *flags, *prints])
    last = printed.rpartition("retrying compilation.")[2]  # of A2 and A3; what was printed ahead of it is of refused plans
    sizes = _sizes_of_dump(last)
    if newest:
        sizes = [int(bits) // 8 for bits in re.findall(r"UB size = (\d+) bits", last)] or [0]  # it prints none without buffers
    if code == 0 and sizes:
        double = "--enable-auto-multi-buffer=True" in flags and "enable-auto-multi-buffer to false" not in printed
        return {"size": max(sizes), "double": double, "cores": 1 if 'mix_mode = "aiv"' in linalg else 2, "final": True}
    if overflow := re.search(r"error: (ub overflow, requires (\d+) bits while (\d+) bits available!)", last):
        needed, there = (int(bits) // 8 for bits in overflow.groups()[1:])
        return {"error": f"{NAME}: {overflow[1]} (at least {needed} bytes of {there})", "final": True}
    return {"error": f"{NAME} failed: {_why(code, printed)}", "final": code >= 0}


def _sizes_of_dump(printed: str) -> list[int]:
    """Returns the end of the last buffer of each function, in bytes, from the IR behind the pass that plans memory."""
    sizes = []
    for function in printed.split("IR Dump After PlanMemory (hivm-plan-memory)")[1:]:
        numbers = {name: int(value) for name, value in re.findall(r"(%\w+) = arith\.constant (\d+) : i64", function)}
        buffers = re.findall(r"pointer_cast\(([^)]*)\)[^:\n]*: memref<((?:\d+x)*)\D*(\d+)[^\n]*address_space<ub>", function)
        ends = [0]
        for offsets, shape, bits in buffers:
            blocks = -(-math.prod(map(int, shape.split("x")[:-1])) * int(bits) // (8 * BLOCK))
            ends += [numbers[name.strip()] + BLOCK * blocks for name in offsets.split(",")]
        sizes.append(max(ends))
    return sizes


def _run(tool: str, text: str, flags: list[str]) -> tuple[int, str, str]:
    """Runs a tool on a file; returns its exit status, all that it printed, and the file that it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "kernel.mlir"), Path(folder, "result.mlir")
        source.write_text(text)
        for last_step in ("hivmc", "hivmc-a5"):
            stub = Path(folder, last_step)
            stub.write_text(f"#!/bin/sh\necho {NAME}\n")
            stub.chmod(0o755)
        limited = "sh", "-c", f'ulimit -Ht {SECONDS + 2}; ulimit -St {SECONDS}; exec "$@"', "sh"
        done = subprocess.run(
            [*limited, Path(os.environ[FOLDER], tool).absolute(), source, *flags, "-o", result],
            env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}, cwd=folder,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, result.read_text() if result.is_file() else ""


def _why(code: int, printed: str) -> str:
    """Returns why a tool failed, in its own words as far as it has any."""
    if code == OUT_OF_TIME:
        return f"it had not ended after {SECONDS} s; use smaller blocks"
    words = re.findall(r"(?:error: |Assertion )(?!Failed to run|Failures have been)(.+)", printed)
    words += re.findall(r"error: (.+)", printed)
    ended = f"it was ended by signal {-code}" if code < 0 else f"it ended with {code}" if code else "it printed no plan"
    return f"{ended}: {words[0].strip()}" if words else ended
