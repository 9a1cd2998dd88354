"""What the decorators around a kernel set, as Triton does, but for what @triton.autotune chooses by measuring."""

import copy
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

OF_CONFIG = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def layers(kernel: Any) -> Iterator[Any]:
    """Yields Triton's objects around a kernel, outermost first and its @triton.jit function last; TypeError if there is none.

    Triton's decorators keep what they decorate as `fn`, functools.wraps as `__wrapped__`, torch's wrap_triton as `kernel`.
    """
    from triton.runtime.jit import JITFunction, KernelInterface

    layer = kernel
    while not isinstance(layer, JITFunction) and type(layer).__name__ != "InterpretedFunction":
        if layer is None:
            raise TypeError(f"{kernel!r} is not a @triton.jit function")
        if isinstance(layer, KernelInterface):
            yield layer
        inner = (getattr(layer, name, None) for name in ("fn", "__wrapped__", "kernel"))
        layer = next((candidate for candidate in inner if candidate is not None), None)
    yield layer


def jit_function(kernel: Any) -> Any:
    """Returns the @triton.jit function; TypeError if there is none."""
    *_, jit = layers(kernel)
    return jit


def constexprs_of(jit: Any) -> set[str]:
    """Returns the names of a @triton.jit function's constexprs, by Triton's rule for annotations."""
    return {name for name, annotation in jit.fn.__annotations__.items() if "constexpr" in str(annotation)}


def name_of(jit: Any, key: Any) -> str:
    """Returns the parameter that Triton names by its name, its index, or the path to an element of a tuple."""
    first, *rest = key if isinstance(key, tuple) else (key,)
    return ".".join(map(str, (dict(enumerate(jit.arg_names)).get(first, first), *rest)))


def constants_of(compiled: Any, jit: Any) -> dict[str, Any]:
    """Returns the parameters that are compiled into a kernel, by name."""
    return {name_of(jit, key): value for key, value in compiled.src.constants.items()}


def configurations(kernel: Any) -> list[Any]:
    """Returns the configurations of @triton.autotune; none without it."""
    return next((list(layer.configs) for layer in layers(kernel) if hasattr(layer, "configs")), [])


def configuration(kernel: Any, number: int | None) -> Any:
    """Returns a configuration of @triton.autotune, None without it; ValueError if there are several, or no such one."""
    configs = configurations(kernel)
    if number is None and len(configs) < 2:
        return next(iter(configs), None)
    if number is not None and 0 <= number < len(configs):
        return configs[number]
    if not configs:
        raise ValueError(f"the kernel has no configurations of @triton.autotune; leave config={number} out")
    choice = "none was chosen" if number is None else f"{number} is none of them"
    listed = "".join(f"\n  {at}: {config}" for at, config in enumerate(configs))
    raise ValueError(f"the kernel has {len(configs)} configurations, and {choice}; select one with --config N:{listed}")


def heuristics_of(kernel: Any) -> dict[str, Any]:
    """Returns the functions of @triton.heuristics by the names that they set, in their order."""
    values = [getattr(layer, "values", None) for layer in layers(kernel)]
    return {name: function for several in values if isinstance(several, Mapping) for name, function in several.items()}


def arguments_of(
    kernel: Any, config: Any, passed: Mapping[str, Any], unknown: Collection[str] = (), launches: bool = False
) -> dict[str, Any]:
    """Returns all arguments and options of a launch by name: what the user passes, and what decorators set beside it.

    `config` is in place of those of @triton.autotune, if it is there. A decorator that reads an argument in `unknown` raises
    KeyError. Hooks of configurations get tensors without memory unless it `launches`.
    """
    arguments = {**getattr(config, "all_kwargs", dict)(), **passed}

    def known() -> dict[str, Any]:
        return {name: value for name, value in arguments.items() if name not in unknown}

    for name, heuristic in heuristics_of(kernel).items():
        if name not in passed:  # it wins over a configuration, as in Triton
            arguments[name] = heuristic(known())
    if config and config.pre_hook:
        config.pre_hook(arguments if launches else {name: unwritten(value) for name, value in known().items()})
    return arguments


def unwritten(value: Any) -> Any:
    """Returns a tensor of the same shape and strides that has no memory in place of a tensor; else the value."""
    torch = sys.modules.get("torch")
    if torch and type(value) in (torch.Tensor, torch.nn.Parameter):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    return value


def detached(value: Any) -> Any:
    """Returns a copy of a host's tensor descriptor without memory, so that hooks may set its block; else the value."""
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        value = copy.copy(value)
        vars(value).update(base=unwritten(value.base), block_shape=list(value.block_shape))
    return value
