"""Compiles a kernel as `kernel[grid](...)` would for a device, here or not, with Triton 3.2 to 3.9.

Triton's own launch path decides everything: `run(..., warmup=True)` of the outermost decorator. Only its driver is another.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, PortableSoftmaxError
from portable_softmax.row_kernels.absent import absent, front_end
from portable_softmax.row_kernels.arguments import Argument, argument_of, constant_of
from portable_softmax.row_kernels.compiling import compiled_in
from portable_softmax.row_kernels.decorators import (
    constants_of,
    decorated,
    implied_arguments,
    jit_function,
    name_of,
)
from portable_softmax.runtime.compiler import target_of, target_to_compile_for


class LaunchedArgument(NamedTuple):
    """Triton's type of a run-time argument, and its known attributes, as (("tt.divisibility", 16),)."""

    kind: str
    known: tuple[tuple[str, int], ...]


class Chosen(msgspec.Struct, frozen=True):
    """A value, and its origin: given, configuration, heuristic, default, argument (it is 1 or None), or Triton."""

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

    def __repr__(self) -> str:
        return f"Launched({self.compiled.metadata.name!r})"

    def __str__(self) -> str:
        """Gives the kernel with its arguments, constants and the options that most launches choose, in short lines."""
        constants = [f"{name} {value.value} ({value.by})" for name, value in self.constants.items()]
        options = [f"{name} {self.options[name].value}" for name in ("num_warps", "num_stages") if name in self.options]
        arguments = [f"{name} {value.kind}" for name, value in self.arguments.items()]
        lines = f"{self.compiled.metadata.name}: {', '.join(arguments)}", f"constants {', '.join(constants) or 'none'}"
        return "\n".join((*lines, f"launch {', '.join(options)}"))


def launched(
    kernel: Any,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any],
    device: Device,
    config: int | None = None,
) -> Launched:
    """Compiles what `kernel[grid](**arguments, **options)` would launch on the device.

    Args:
        kernel: the @triton.jit function, with its decorators.
        arguments: by name, constexprs too; text is read as row_kernels/arguments.py says.
        options: of the backend, None for Triton's choice; they and `arguments` win over a decorator's.
        device: the target; it need not be here.
        config: number of one of the configurations of @triton.autotune.

    Raises:
        CompileError: there is no such launch, it does not compile, or a decorator reads an argument of which only the type
            is known.
        TypeError: an argument is missing or unknown.
        ValueError: there are several configurations and none was chosen, or no such one.
    """
    with front_end(device):
        target_to_compile_for(device)
        jit = jit_function(kernel)
        known = read_arguments(jit, implied_arguments(kernel) | dict(arguments))
        unknown = {name: argument.kind for name, argument in known.items() if argument.kind}
        passed = {name: argument.value for name, argument in known.items()}
        passed |= {name: value for name, value in options.items() if value is not None}
        outermost, origins = decorated(kernel, config, passed.keys(), unknown)
        _check_complete(jit, known, origins)
        (compiled,) = compiled_in([(outermost, passed)], jit, device, absent(device))
        if isinstance(compiled, PortableSoftmaxError):
            raise compiled
        if isinstance(compiled, BaseException):
            strange = _strange(passed, jit, compiled, device) if isinstance(compiled, KeyError) else None
            raise CompileError(f"{jit.__name__} for {device.backend}/{device.arch}: {strange or compiled}") from compiled
        origins |= dict.fromkeys(passed, "given")
        types, constants = _specialised(compiled, jit, origins)
        return Launched(
            compiled,
            types,
            constants,
            _options(compiled, device, {name: by for name, by in origins.items() if name not in jit.arg_names}),
        )


def by_position(kernel: Any, values: Sequence[Any]) -> dict[str, Any]:
    """Returns arguments by the names of the kernel's first parameters; TypeError if there are more."""
    names = jit_function(kernel).arg_names
    if len(values) > len(names):
        raise TypeError(f"the kernel has {len(names)} parameters, and {len(values)} arguments were passed")
    return dict(zip(names, values, strict=False))


def read_arguments(jit: Any, arguments: Mapping[str, Any]) -> dict[str, Argument]:
    """Returns the arguments with text read; TypeError if the kernel has no such parameter."""
    parameters = {parameter.name: parameter for parameter in jit.params}
    if unknown := arguments.keys() - parameters.keys():
        raise TypeError(f"{jit.__name__} has no parameter {', '.join(sorted(unknown))}; it has {', '.join(parameters)}")
    return {name: _argument(parameters[name], value) for name, value in arguments.items()}


def _argument(parameter: Any, value: Any) -> Argument:
    if not isinstance(value, str):
        return value if isinstance(value, Argument) else Argument(value)
    return Argument(constant_of(value)) if parameter.is_constexpr else argument_of(parameter.name, value)


def _check_complete(jit: Any, arguments: Mapping[str, Argument], decided: Mapping[str, str]) -> None:
    signature = inspect.signature(jit.fn).parameters
    known = {*arguments, *decided}
    if missing := [
        name for name, parameter in signature.items() if name not in known and parameter.default is inspect.Parameter.empty
    ]:
        raise TypeError(f"{jit.__name__} needs {', '.join(missing)} too, such as --args 'x=f16[4096,4096] n=4096 BLOCK=1024'")


def _parsed_options(device: Device, options: Mapping[str, Any]) -> Any:
    from triton.compiler import make_backend

    return make_backend(target_of(device)).parse_options(dict(options))


def option_names() -> set[str]:
    """Returns the names of options that a backend of this Triton has."""
    from triton.backends import backends

    modules = [backend.compiler.parse_options.__globals__ for backend in backends.values()]
    classes = [value for names in modules for value in names.values() if isinstance(value, type)]
    return {field.name for options in classes if dataclasses.is_dataclass(options) for field in dataclasses.fields(options)}


def _strange(passed: Mapping[str, Any], jit: Any, error: KeyError, device: Device) -> str | None:
    """Returns a sentence about a name that is neither a parameter nor an option; None if the error has another cause."""
    name = next((name for name in passed if name not in jit.arg_names and name in str(error)), None)
    if name is None:
        return None
    options = sorted(vars(_parsed_options(device, {})))
    close = difflib.get_close_matches(name, [*options, *jit.arg_names], 1)
    known = f"did you mean {close[0]}?" if close else f"options are {', '.join(options)}"
    return (
        f"{name} is no parameter of {jit.__name__}, which has {', '.join(jit.arg_names)}, and no option of the backend; {known}"
    )


def _specialised(compiled: Any, jit: Any, origins: Mapping[str, str]) -> tuple[dict[str, LaunchedArgument], dict[str, Chosen]]:
    """Returns the run-time arguments, and the constants with their origins."""
    source = compiled.src
    attributes = (
        source.attrs.get_fn_attrs() if hasattr(source.attrs, "get_fn_attrs") else source.attrs
    )  # Triton 3.2: a descriptor
    known = {name_of(jit, key): tuple((str(name), int(value)) for name, value in pairs) for key, pairs in attributes.items()}
    values = constants_of(compiled, jit)
    constexprs = {parameter.name for parameter in jit.params if parameter.is_constexpr}
    by = {name: origins.get(name, "default") if name in constexprs else "argument" for name in values}
    constants = {name: Chosen(value, by[name]) for name, value in values.items()}
    runtime = {name: kind for name, kind in source.signature.items() if name not in constants}
    types = {name: LaunchedArgument(_kind_of(kind), known.get(name, ())) for name, kind in runtime.items()}
    return types, constants


def _kind_of(kind: Any) -> str:
    return kind if isinstance(kind, str) else f"({', '.join(map(_kind_of, kind))})"


def _options(compiled: Any, device: Device, origins: Mapping[str, str]) -> dict[str, Chosen]:
    """Returns the options, which a pass of the compiler may have changed, with their origins."""
    options, result = _parsed_options(device, {}), {}
    for name, value in vars(options).items():
        final = getattr(compiled.metadata, name, value)
        result[name] = Chosen(final, origins.get(name, "default" if final == getattr(type(options), name, None) else "Triton"))
    return result
