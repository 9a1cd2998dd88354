"""Inspects any Triton kernel: what `kernel[grid](...)` launches, what it uses, and how many of its programs fit.

Triton's own launch path decides everything: `run(..., warmup=True)` of the outermost decorator. Only its driver is another.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError
from portable_softmax.row_kernels.absent import absent
from portable_softmax.row_kernels.arguments import read_arguments
from portable_softmax.row_kernels.compiling import compiled_for, failure
from portable_softmax.row_kernels.decorators import (
    by_position,
    configuration,
    constants_of,
    constexprs_of,
    implied_arguments,
    jit_function,
    name_of,
    origins_of,
)
from portable_softmax.runtime.compiler import target_of


class Chosen(msgspec.Struct, frozen=True):
    """A value, and its origin: passed, configuration, heuristic, default, argument (it is 1 or None), or Triton."""

    value: Any
    by: str = msgspec.field(name="from")


class Launched(NamedTuple):
    """A kernel as Triton launches it.

    Args:
        compiled: Triton's CompiledKernel; its `run` and `[grid]` need the device, its `asm`, `metadata` and `src` do not.
        arguments: the run-time arguments, by name: Triton's type, and known attributes, as (("tt.divisibility", 16),).
        constants: the arguments that are compiled into the kernel, by name.
        options: the compiler's options, by name.
    """

    compiled: Any
    arguments: dict[str, tuple[str, tuple[tuple[str, int], ...]]]
    constants: dict[str, Chosen]
    options: dict[str, Chosen]

    def __str__(self) -> str:
        """Gives the kernel with its arguments, constants and the options that most launches choose, in short lines."""
        constants = [f"{name} {value.value} ({value.by})" for name, value in self.constants.items()]
        options = [f"{name} {self.options[name].value}" for name in ("num_warps", "num_stages") if name in self.options]
        arguments = [f"{name} {kind}" for name, (kind, _) in self.arguments.items()]
        lines = f"{self.compiled.metadata.name}: {', '.join(arguments)}", f"constants {', '.join(constants) or 'none'}"
        return "\n".join((*lines, f"launch {', '.join(options)}"))


class Inspected(NamedTuple):
    """Resources of one program, programs per multiprocessor with their limits, and the launch that Triton makes."""

    resources: KernelResources
    occupancy: Occupancy
    launch: Launched

    def __str__(self) -> str:
        """Gives the launch, what a program uses, and how many fit, in short lines."""
        return f"{self.launch}\nuses {self.resources}\n{self.occupancy}"


def inspect_kernel(
    kernel: Any,
    arguments: Mapping[str, Any] | Sequence[Any],
    constexprs: Mapping[str, Any] | None = None,
    *,
    config: int | None = None,
    device: Device | str | None = None,
    **options: Any,
) -> Inspected:
    """Compiles what `kernel[grid](...)` launches, and counts how many of its programs fit a multiprocessor.

    Args:
        kernel: the @triton.jit function, with its decorators.
        arguments: those of the kernel, by position or by name: tensors, which may be of torch's device "meta", numbers, or text
            such as "f16[4096,4096]", "*fp16:16", "i32" and "4096", which docs/probe.md describes.
        constexprs: values of constexprs, by name, which may as well stand among the arguments.
        config: number of one of the configurations of @triton.autotune.
        device: the current one if None; `Device.from_profile`, or just the name, gives one that is not here.
        options: of Triton's backend, such as num_warps, num_stages, maxnreg or waves_per_eu; None leaves one to Triton.

    Raises:
        CompileError: the kernel does not compile, in the compiler's own words; an argument is no such text; or a decorator
            reads an argument of which only the type is known.
        TypeError: a parameter is missing or unknown, or the device is not one.
        ProfileError: there is no profile of that name.
        ValueError: the kernel is under @triton.autotune with several configurations and none was chosen.
    """
    device, jit, selected = chosen(device), jit_function(kernel), configuration(kernel, config)
    by_name = arguments if isinstance(arguments, Mapping) else by_position(kernel, arguments)
    passed, unknown = read_arguments(jit, {**implied_arguments(kernel), **by_name, **(constexprs or {})})
    passed |= {name: value for name, value in options.items() if value is not None}
    (compiled,) = compiled_for(kernel, [selected], passed, device, unknown)
    if isinstance(compiled, BaseException):
        raise failure(compiled, jit, device, unknown) from compiled
    resources = device.vendor.resources(compiled)
    launch = _launched(compiled, jit, origins_of(kernel, selected, passed), device)
    return Inspected(resources, device.vendor.occupancy(resources, device.hardware), launch)


def _launched(compiled: Any, jit: Any, origins: Mapping[str, str], device: Device) -> Launched:
    """Returns a launch; a pass of the compiler may have changed its options."""
    from triton.compiler import make_backend

    attributes = compiled.src.attrs.get_fn_attrs() if hasattr(compiled.src.attrs, "get_fn_attrs") else compiled.src.attrs  # 3.2
    known = {name_of(jit, key): tuple((str(name), int(value)) for name, value in pairs) for key, pairs in attributes.items()}
    constexprs, constants, options = constexprs_of(jit), {}, {}
    for name, value in constants_of(compiled, jit).items():
        constants[name] = Chosen(value, origins.get(name, "default") if name in constexprs else "argument")
    runtime = {name: str(kind).replace("'", "") for name, kind in compiled.src.signature.items() if name not in constants}
    with absent(device):
        usual = make_backend(target_of(device)).parse_options({})
    for name, value in vars(usual).items():
        final = getattr(compiled.metadata, name, value)
        by = "default" if final == getattr(type(usual), name, None) else "Triton"
        options[name] = Chosen(final, origins.get(name, by))
    return Launched(compiled, {name: (kind, known.get(name, ())) for name, kind in runtime.items()}, constants, options)


def resident_programs(kernel: Any, device: Device | str | None = None) -> int:
    """Counts the programs of a compiled kernel that a device holds at once, by the exact rule of its vendor.

    ```python
    compiled = kernel.warmup(y, x, n_rows, n_cols, BLOCK=1024, num_warps=4, grid=(1,))
    kernel[(min(n_rows, resident_programs(compiled)),)](y, x, n_rows, n_cols, BLOCK=1024, num_warps=4)
    ```

    Args:
        kernel: Triton's CompiledKernel, which `kernel.warmup(...)` and a launch return, and which is `launch.compiled` of
            `inspect_kernel`. In the interpreter None, as `warmup` returns there.
        device: the current one if None; `Device.from_profile`, or just the name, gives one that is not here.

    Returns:
        Their number; 0 if no program fits, 1 in the interpreter. `inspect_kernel(...).occupancy` has the reasons.

    Raises:
        TypeError: the kernel is not compiled.
        DeviceError: it is compiled for another architecture, or there is no device.
        ProfileError: there is no profile of that name.
    """
    if kernel is None and interpreting():
        return 1
    if not hasattr(kernel, "asm") or not hasattr(kernel, "metadata"):
        raise TypeError(
            f"resident_programs requires a compiled kernel, as kernel.warmup(..., grid=(1,)) returns it, not {kernel!r}"
        )
    device = chosen(device)
    made_for, target = kernel.metadata.target, target_of(device)
    if (made_for.backend, made_for.arch) != (target.backend, target.arch):
        raise DeviceError(
            f"a kernel compiled for {made_for.backend}/{made_for.arch} was passed for {device!r}, which is "
            f"{target.backend}/{target.arch}; inspect_kernel(..., device=...) compiles it for that one"
        )
    occupancy = device.vendor.occupancy(device.vendor.resources(kernel), device.hardware)
    return device.resident(occupancy) // (getattr(kernel.metadata, "num_ctas", None) or 1)
