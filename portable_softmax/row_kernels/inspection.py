"""Inspects any Triton kernel: what `kernel[grid](...)` launches, what it uses, and how many of its programs fit.

Triton's own launch path decides everything: `run(..., warmup=True)` of the outermost decorator. Only its driver is another.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, DeviceError, PortableSoftmaxError
from portable_softmax.row_kernels.absent import absent
from portable_softmax.row_kernels.arguments import read_arguments
from portable_softmax.row_kernels.compiling import compiled_for
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


class LaunchedArgument(NamedTuple):
    """Triton's type of a run-time argument, and its known attributes, as (("tt.divisibility", 16),)."""

    kind: str
    known: tuple[tuple[str, int], ...]


class Chosen(msgspec.Struct, frozen=True):
    """A value, and its origin: passed, configuration, heuristic, default, argument (it is 1 or None), or Triton."""

    value: Any
    by: str = msgspec.field(name="from")


class Launched(NamedTuple):
    """A kernel as Triton launches it.

    Args:
        compiled: Triton's CompiledKernel; its `run` and `[grid]` need the device, its `asm`, `metadata` and `src` do not.
        arguments: the run-time arguments, by name.
        constants: the arguments that are compiled into the kernel, by name.
        options: the compiler's options, by name.
    """

    compiled: Any
    arguments: dict[str, LaunchedArgument]
    constants: dict[str, Chosen]
    options: dict[str, Chosen]

    def __str__(self) -> str:
        """Gives the kernel with its arguments, constants and the options that most launches choose, in short lines."""
        constants = [f"{name} {value.value} ({value.by})" for name, value in self.constants.items()]
        options = [f"{name} {self.options[name].value}" for name in ("num_warps", "num_stages") if name in self.options]
        arguments = [f"{name} {value.kind}" for name, value in self.arguments.items()]
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
    device = chosen(device)
    if not isinstance(arguments, Mapping):
        arguments = by_position(kernel, arguments)
    launch = launched(kernel, {**arguments, **(constexprs or {})}, options, device, config)
    resources = device.vendor.resources(launch.compiled)
    return Inspected(resources, device.vendor.occupancy(resources, device.hardware), launch)


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


def launched(
    kernel: Any, arguments: Mapping[str, Any], options: Mapping[str, Any], device: Device, config: int | None = None
) -> Launched:
    """Compiles what `kernel[grid](**arguments, **options)` would launch on the device; see `inspect_kernel`."""
    jit, chosen_config = jit_function(kernel), configuration(kernel, config)
    passed, unknown = read_arguments(jit, implied_arguments(kernel) | dict(arguments))
    passed |= {name: value for name, value in options.items() if value is not None}
    (compiled,) = compiled_for(kernel, [chosen_config], passed, device, unknown)
    if isinstance(compiled, PortableSoftmaxError):
        raise compiled
    if isinstance(compiled, KeyError) and compiled.args[0] in unknown:
        raise CompileError(f"a decorator of {jit.__name__} needs {compiled}; give its value, or what is computed of it")
    if isinstance(compiled, TypeError):
        raise TypeError(f"{jit.__name__}: {compiled}") from compiled
    if isinstance(compiled, BaseException):
        raise CompileError(f"{jit.__name__} for {device.backend}/{device.arch}: {compiled}") from compiled
    origins = origins_of(kernel, chosen_config, passed)
    attributes = compiled.src.attrs.get_fn_attrs() if hasattr(compiled.src.attrs, "get_fn_attrs") else compiled.src.attrs  # 3.2
    known = {name_of(jit, key): tuple((str(name), int(value)) for name, value in pairs) for key, pairs in attributes.items()}
    values, constexprs = constants_of(compiled, jit), constexprs_of(jit)
    by = {name: origins.get(name, "default") if name in constexprs else "argument" for name in values}
    constants = {name: Chosen(value, by[name]) for name, value in values.items()}
    runtime = {name: kind for name, kind in compiled.src.signature.items() if name not in constants}
    types = {name: LaunchedArgument(_kind_of(kind), known.get(name, ())) for name, kind in runtime.items()}
    return Launched(compiled, types, constants, _options(compiled, device, origins))


def _kind_of(kind: Any) -> str:
    return kind if isinstance(kind, str) else f"({', '.join(map(_kind_of, kind))})"


def _options(compiled: Any, device: Device, origins: Mapping[str, str]) -> dict[str, Chosen]:
    """Returns the options, which a pass of the compiler may have changed, with their origins."""
    from triton.compiler import make_backend

    with absent(device):
        options, result = make_backend(target_of(device)).parse_options({}), {}
    for name, value in vars(options).items():
        final = getattr(compiled.metadata, name, value)
        result[name] = Chosen(final, origins.get(name, "default" if final == getattr(type(options), name, None) else "Triton"))
    return result
