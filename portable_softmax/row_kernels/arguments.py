"""Parses a kernel's arguments from text, for absent devices and tensors.

x=f16[4096,4096]   a contiguous tensor that starts on a multiple of 16 bytes
x=*f16:16  x=*f16  a pointer to a tensor of any shape below 2 GiB, on a multiple of 16 bytes or not
n=4096  eps=1e-5  low=-inf  flag=True  mask=None
n=i32:16  n=i32    a number of which only the type is known, a multiple of 16 or not
BLOCK=1024  SHAPE=(64,64)  ACC=tl.float32  ACT=relu  NAME=text   of a constexpr; relu is a function of the kernel's file
"""

import ast
import importlib
import math
import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from portable_softmax.row_kernels.decorators import by_position, constexprs_of, jit_function

TENSOR = re.compile(r"(?:torch\.)?(\w+)\[([0-9]{1,19}(?:,[ ]*[0-9]{1,19})*)\]")
POINTER = re.compile(r"\*(?:torch\.)?(\w+)(:16)?")
SCALAR = re.compile(r"(\w+)(:16)?")

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
    named = dict(arguments) if isinstance(arguments, Mapping) else by_position(kernel, arguments)
    if unknown := named.keys() - {*jit.arg_names}:
        raise TypeError(f"{jit.__name__} has no parameter {', '.join(sorted(unknown))}; it has {', '.join(jit.arg_names)}")
    for name, text in [(name, text) for name, text in named.items() if isinstance(text, str)]:
        function = jit.fn.__globals__.get(text)
        if name not in constexprs_of(jit):
            named[name], is_known = _argument_of(name, text)
            typed |= set() if is_known else {name}
        else:
            named[name] = function if hasattr(function, "arg_names") else value_of(text)
    check_constexprs(jit, named)
    return named, typed


def check_constexprs(jit: Any, values: Mapping[str, Any]) -> None:
    """Raises TypeError if a constexpr, or a part of it, has no hash."""
    for name in constexprs_of(jit) & values.keys():
        try:
            hash(values[name])
        except TypeError as error:
            reason = f"{error} in {values[name]!r}; pass tuples"
            raise TypeError(f"{name} of {jit.__name__} is a constexpr, which Triton hashes: {reason}") from None


def _argument_of(name: str, text: str) -> tuple[Any, bool]:
    """Returns the run-time argument `name=text`, in the syntax above, and False if only its type is known."""
    if isinstance(value := value_of(text), int | float | None):
        return value, True
    if (tensor := TENSOR.fullmatch(text)) and tensor[1] in NAMES:
        return _tensor(*tensor.groups()), True
    if (pointer := POINTER.fullmatch(text)) and pointer[1] in NAMES:
        return SimpleNamespace(dtype=NAMES[pointer[1]], data_ptr=lambda: int(not pointer[2]), ptr_range=lambda: 0), False
    if (scalar := SCALAR.fullmatch(text)) and (kind := NAMES.get(scalar[1], scalar[1])) in OF_TYPE:
        other, multiple = OF_TYPE[kind]
        return multiple if scalar[2] else other, False
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
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    is_finite = isinstance(value, int | None) or (isinstance(value, float) and math.isfinite(value))
    return value if is_finite else text


def _tensor(kind: str, sizes: str) -> Any:
    import torch

    shape = [int(size) for size in sizes.split(",")]
    try:
        return torch.empty(shape, dtype=getattr(torch, TORCH[NAMES[kind]]), device="meta")
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{kind}{shape} is not a valid tensor: {error}; use a smaller shape") from error
