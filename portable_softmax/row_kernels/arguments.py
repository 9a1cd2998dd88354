"""Reads a launch's grid and arguments; as text, for absent devices and tensors, in the syntax of docs/row_kernels.md."""

import ast
import contextlib
import importlib
import inspect
import math
import operator
import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from portable_softmax.errors import GridError
from portable_softmax.row_kernels.decorators import constexprs_of, jit_function

# f16[4096,4096], *f16:16 and i32:16: a tensor, a pointer and a number of that type, which are multiples of 16
TYPED = re.compile(r"(\*?)(?:torch\.)?(\w+)(?:\[([0-9]{1,19}(?:,[ ]*[0-9]{1,19})*)\])?(:16)?")
TORCH = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "i1": "bool",
    "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2", "fp8e4b8": "float8_e4m3fnuz", "fp8e5b16": "float8_e5m2fnuz",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}, **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip
NAMES = {name: name for name in TORCH} | {theirs: name for name, theirs in TORCH.items()}
NAMES |= {"f16": "fp16", "f32": "fp32", "f64": "fp64"}
# Per type that Triton has for a number: a value that is not 1 and no multiple of 16, which becomes a constant, and a multiple.
OF_TYPE = {
    "i32": (47, 48), "i64": (2**40 + 1, 2**40), "u64": (2**63 + 1, 2**63), "fp32": (1.5, 1.5),
    **dict.fromkeys(("i1", "u1"), (True, True)),
}  # fmt: skip


def read_arguments(kernel: Any, arguments: Mapping[str, Any] | Sequence[Any]) -> tuple[dict[str, Any], set[str]]:
    """Returns a kernel's arguments by name, with text read, and the names of those of which only the type is known.

    ValueError if text is no argument, TypeError if a name is no parameter or a constexpr has no hash.
    """
    jit, typed = jit_function(kernel), set[str]()
    if not isinstance(arguments, Mapping):
        arguments = inspect.signature(jit.fn).bind_partial(*arguments).arguments
    named = dict(arguments)
    if unknown := named.keys() - {*jit.arg_names}:
        raise TypeError(f"{jit.__name__} has no parameter {', '.join(sorted(unknown))}; it has {', '.join(jit.arg_names)}")
    for name, text in [(name, text) for name, text in named.items() if isinstance(text, str)]:
        function = jit.fn.__globals__.get(text)
        named[name] = value = value_of(text)
        if name in constexprs_of(jit) and hasattr(function, "arg_names"):
            named[name] = function
        elif name not in constexprs_of(jit) and not isinstance(value, int | float | None):
            named[name], is_known = _typed(name, text)
            if not is_known:
                typed.add(name)
    check_constexprs(jit, named)
    return named, typed


def axes_of(grid: Any, values: dict[str, Any]) -> tuple[int, int, int]:
    """Returns the programs along all axes of a grid as `kernel[grid]` takes it; GridError or TypeError if it is invalid."""
    try:
        axes = grid(values) if callable(grid) else grid
    except KeyError as error:
        raise TypeError(f"the grid reads {error}, which is missing; there are {', '.join(values)}") from error
    with contextlib.suppress(TypeError):
        numbers = [operator.index(axis) for axis in axes]
        if 1 <= len(numbers) <= 3 and min(numbers) >= 0:
            width, height, depth = (*numbers, 1, 1)[:3]
            return width, height, depth
    raise GridError(f"a grid is one to three integers of at least 0, the programs along its axes, not {axes!r}")


def check_constexprs(jit: Any, values: Mapping[str, Any]) -> None:
    """Raises TypeError if a constexpr, or a part of it, has no hash."""
    for name in constexprs_of(jit) & values.keys():
        try:
            hash(values[name])
        except TypeError as error:
            reason = f"{error} in {values[name]!r}; pass tuples"
            raise TypeError(f"{name} of {jit.__name__} is a constexpr, which Triton hashes: {reason}") from None


def _typed(name: str, text: str) -> tuple[Any, bool]:
    """Returns the tensor, or the pointer or number of a type, that `name=text` means, and True if it is a tensor."""
    match = TYPED.fullmatch(text)
    pointer, kind, sizes, multiple = match.groups() if match else ("", "", "", "")
    dtype = NAMES.get(kind, kind)
    if sizes and dtype in TORCH and not pointer and not multiple:
        torch = importlib.import_module("torch")
        shape = [int(size) for size in sizes.split(",")]
        try:
            return torch.empty(shape, dtype=getattr(torch, TORCH[dtype]), device="meta"), True
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"{text} is not a valid tensor: {error}; use a smaller shape") from error
    if pointer and dtype in TORCH and not sizes:
        return SimpleNamespace(dtype=dtype, data_ptr=lambda: int(not multiple), ptr_range=lambda: 0), False
    if dtype in OF_TYPE and not pointer and not sizes:
        return OF_TYPE[dtype][1 if multiple else 0], False
    raise ValueError(
        f"{name}={text}: an argument is a tensor such as f16[4096,4096], a value such as 4096, or a type such as *fp16, i32 or "
        f"fp32, followed by :16 if it is divisible by 16 (bytes, for a pointer); dtypes of tensors are {', '.join(TORCH)}, and "
        f"torch's names; types of numbers are {', '.join(OF_TYPE)}; tuples and descriptors require --case NAME"
    )


def value_of(text: str) -> Any:
    """Returns the value of a constexpr or an option: True, None, a number, inf, a tuple of such values, tl.NAME, or text."""
    if text.startswith("(") and text.endswith(")"):
        return tuple(value_of(part.strip()) for part in text[1:-1].split(",") if part.strip())
    if text.lstrip("-+") in ("inf", "nan"):
        return float(text)
    if text.startswith("tl.") and text[3:].isidentifier():
        return getattr(importlib.import_module("triton.language"), text[3:], text)
    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        value = ast.literal_eval(text)
        if isinstance(value, int | None) or (isinstance(value, float) and math.isfinite(value)):
            return value
    return text
