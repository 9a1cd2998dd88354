"""What is wrong with a compiled kernel at its sizes, or needed beside it: offsets that do not fit their 32 bits, memory."""

from collections.abc import Iterator, Mapping
from typing import Any

from portable_softmax.row_kernels.following import Run
from portable_softmax.row_kernels.ttir import Function, Op, parsed_of, walked

SIGNS = {"arith.muli": "*", "arith.addi": "+", "arith.subi": "-", "arith.shli": "<<"}
WIDENED = "tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi"


def warnings_of(compiled: Any, jit: Any, values: Mapping[str, Any], programs: int | None) -> list[str]:
    """Returns what is wrong with a compiled kernel at its sizes, or needed beside it; arguments as of `overflows`."""
    texts = list(overflows(parsed_of(compiled, jit), values, programs))
    if scratch := getattr(compiled.metadata, "global_scratch_size", 0):
        texts.append(f"a program needs {scratch} bytes of global memory for itself: triton.set_allocator(...) gives them")
    return texts


def overflows(function: Function, arguments: Mapping[str, Any], programs: int | None) -> Iterator[str]:
    """Yields sentences about offsets of a launch that do not fit their 32 bits.

    Args:
        function: the kernel's TTIR.
        arguments: values of its parameters, by name.
        programs: along axis 0; None if that is unknown.
    """
    count = programs or 1
    ends = [Run(function, arguments, (count - 1) * last, count, last=last) for last in (False, True)]
    ops = list(walked(function.body)) if any(end.large for end in ends) else []
    made = {name: op for op in ops for name in op.results if name not in function.parameters}
    addresses, seen = set[str](), set()  # values that offsets of pointers are computed from
    for op in reversed(ops):
        if op.name in ("tt.addptr", "tt.descriptor_load", "tt.descriptor_store") or addresses.intersection(op.results):
            addresses.update(op.operands[op.name == "tt.addptr" :])
    for run, (op, reached) in [(end, large) for end in ends for large in end.large]:
        words = f"{_word(op.operands[0], made)} {SIGNS.get(op.name, op.name)} {_word(op.operands[1], made)}"
        if addresses.intersection(op.results) and words not in seen:
            seen.add(words)
            wide = next((name for name in op.operands if run.value(name)), op.operands[0])
            yield f"{words} reaches {reached:,} in 32 bits; cast {_word(wide, made)} to tl.int64"


def _word(value: str, made: Mapping[str, Op]) -> str:
    """Returns a value in the words of the kernel's source, as far as Triton keeps them."""
    op = made.get(value)
    if op and op.name in WIDENED and op.operands:
        return _word(op.operands[0], made)
    if op and op.name == "tt.get_program_id":
        return f"program_id({'xyz'.index(op.text.split()[1])})"
    if op and op.name == "arith.constant":
        return op.text.split()[1].removeprefix("dense<").rstrip(">")
    if op and op.name in SIGNS:
        return f"({_word(op.operands[0], made)} {SIGNS[op.name]} {_word(op.operands[1], made)})"
    name = value.removeprefix("%").partition("#")[0]
    return name.rstrip("0123456789").rstrip("_") or f"%{name}"
