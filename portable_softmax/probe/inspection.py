"""Inspects any Triton kernel: what it uses and how many of its programs fit a multiprocessor, on devices here or not."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.detect import chosen, current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.probe.loading import choose
from portable_softmax.runtime import compiler

TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "bool": "i1",
    "uint8": "u8",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
}


class UnknownStageError(ValueError):
    """The compiler has no such stage for the device."""


def inspect_kernel(
    kernel: Any,
    signature_or_args: Mapping[str, Any],
    constexprs: Mapping[str, Any],
    *,
    num_warps: int | None = None,
    num_stages: int | None = None,
    device: Device | str | None = None,
) -> tuple[KernelResources, Occupancy]:
    """Compiles a @triton.jit function, and counts how many of its programs fit a multiprocessor.

    Args:
        kernel: the @triton.jit function.
        signature_or_args: by name of each parameter that is no constexpr: its type as Triton writes it ("*fp32:16" is a
            pointer that starts on a multiple of 16 bytes, "i32:16" a multiple of 16), or an argument to take the type of.
        constexprs: values of the others, by name; one that is left out has its default in the kernel's signature.
        num_warps, num_stages: Triton's options; those of a decorator, or 4 and 1, if None.
        device: the current one if None; `Device.from_profile`, or just the name, gives one that is not here.

    Returns:
        What one program uses, and programs per multiprocessor with their limits.

    Raises:
        CompileError: the kernel does not compile; in the compiler's own words.
        TypeError: a parameter is missing or unknown, an argument has no type that Triton knows, or the device is not one.
        ProfileError: there is no profile of that name.
        ValueError: the kernel is under @triton.autotune with several configurations (inspect `kernel.fn`, with the constexprs
            of one), or under a @triton.heuristics that asks for arguments (give its constexpr).
    """
    device = chosen(device)
    compiled = compile_any(kernel, signature_or_args, constexprs, num_warps, num_stages, device)
    resources = device.vendor.resources(compiled)
    return resources, device.vendor.occupancy(resources, device.hardware)


def compile_any(
    kernel: Any,
    signature_or_args: Mapping[str, Any],
    constexprs: Mapping[str, Any],
    num_warps: int | None,
    num_stages: int | None,
    device: Device,
    config: int | None = None,
) -> Any:
    """Compiles a kernel and returns Triton's CompiledKernel; arguments and errors are those of inspect_kernel."""
    signature = {name: each if isinstance(each, str) else type_of(each) for name, each in signature_or_args.items()}
    kernel, constants, num_warps, num_stages = choose(kernel, constexprs, num_warps, num_stages, config)
    return compiler.compile_for(device, kernel, signature, with_defaults(kernel, constants), num_warps, num_stages)


def launch_any(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: Mapping[str, Any],
    constexprs: Mapping[str, Any],
    *,
    num_warps: int | None = None,
    num_stages: int | None = None,
) -> Callable[[], None]:
    """Compiles the kernel for its arguments, given by name, and returns what launches it on the current device and stream.

    Raises:
        ValueError: a constexpr stands before a run-time parameter, which a compiled kernel takes by position.
        CompileError, TypeError: the cases of inspect_kernel.
    """
    kernel, constants, warps, stages = choose(kernel, constexprs, num_warps, num_stages)
    first = kernel.arg_names[: len(arguments)]
    if set(first) != arguments.keys():
        raise ValueError(f"{', '.join(first)} should be the run-time parameters, and {', '.join(arguments)} were given")
    values = tuple(arguments[name] for name in first)
    whole_grid = (*grid, 1, 1)[:3]
    if interpreting():
        return lambda: kernel[whole_grid](*values, **constants)
    device = current_device()
    compiled = compile_any(kernel, arguments, constants, warps, stages, device)
    launch = compiler.launcher(compiled, with_defaults(kernel, constants), device.index)
    return lambda: launch(whole_grid, *values)


def with_defaults(kernel: Any, constexprs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the constexprs of a @triton.jit function, with the default of each that is not given and has one."""
    defaults = {each.name: each.default for each in kernel.params if each.is_constexpr and each.has_default}
    return {**defaults, **constexprs}


def type_of(argument: Any) -> str:
    """Returns Triton's type of an argument, with its alignment.

    Raises:
        TypeError: Triton has no type for it.
    """
    if isinstance(argument, bool):
        return "i1"
    if isinstance(argument, int):
        return ("i32" if -(2**31) <= argument < 2**31 else "i64") + (":16" if argument % 16 == 0 else "")
    if isinstance(argument, float):
        return "fp32"
    name = str(getattr(argument, "dtype", "")).removeprefix("torch.")
    if name not in TYPES:
        raise TypeError(f"Triton has no type for {type(argument).__name__} {name}; give the signature as text")
    return f"*{TYPES[name]}" + (":16" if argument.data_ptr() % 16 == 0 else "")


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
