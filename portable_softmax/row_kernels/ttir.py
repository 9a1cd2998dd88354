"""Reads Triton's IR (TTIR) as a tree of operations."""

import functools
import json
import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from portable_softmax.row_kernels.decorators import constants_of

LOCATION = re.compile(r"\s*\bloc\([^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*\)")
VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
RESULTS = re.compile(r"(%[\w$.-]+)(?::(\d+))?(?:, )?")
NAME = re.compile(r'"?([a-z_]+\.[\w.]+)"?')
SIZES = re.compile(r"tensor<((?:\d+x)+)")
REFERENCE, PLACE = re.compile(r"#loc\d*"), re.compile(r'"([^"]+)":(\d+):\d+')
BITS = re.compile(r"(?:bf|f|i)(\d+)")
CONSTANT = re.compile(r"arith\.constant (?:dense<)?(true|false|-?\d+)>?(?= :| loc|$)")
RANGE = re.compile(r"end = (-?\d+).*start = (-?\d+)")
ASSIGNED = re.compile(r"(%[\w$.-]+) = (%[\w$.#-]+)")
ACCESSES = {
    "load": "load", "store": "store", "atomic_rmw": "atomic", "atomic_cas": "atomic", "descriptor_load": "load",
    "descriptor_store": "store", "descriptor_gather": "load", "descriptor_scatter": "store", "descriptor_reduce": "atomic",
    "experimental_descriptor_load": "load", "experimental_descriptor_store": "store",
}  # fmt: skip
MASKS = {"load": 1, "atomic_cas": 3}  # places of masks among operands, 2 for others
SAME = "extsi", "extui", "trunci", "index_cast", "splat", "broadcast", "unsplat", "bitcast", "convert_layout", "expand_dims"


@dataclass(eq=False)
class Op:
    """An operation."""

    name: str  # such as "arith.addi"; "label" for the head of a block
    results: list[str]
    operands: list[str]
    text: str  # of its first line, without results and locations
    line: str = ""  # file and line of the kernel's source; "" if unknown
    regions: "list[list[Op]]" = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kind = self.name.partition(".")[2]  # its name without the dialect's; of a comparison such as "lt"
        self.words = VALUE.sub("", self.text)  # its text without values
        self.bounds, self.carried = list[str](), ASSIGNED.findall(self.text)  # values in a loop, and those it begins with
        if self.name == "scf.for":
            self.bounds, self.carried = self.operands[1:4], self.carried[1:]
        if self.kind == "cmpi":
            self.kind = self.text.split()[1].rstrip(",")[-2:]
        sizes = SIZES.findall(self.text.rpartition(" : ")[2]) or [""]
        self.elements = math.prod(map(int, filter(None, sizes[0].split("x"))))  # of its type's tensor, 1 of a scalar
        bits = BITS.findall(self.text.partition(" : ")[2].split(",")[0].split("->")[0]) or ["8"]
        self.size = max(1, int(bits[-1]) // 8)  # bytes of an element of its first operand's type, or what that points to

    @functools.cached_property
    def literal(self) -> Any:
        """Returns the integer of a constant, or the array of a range; None of another constant."""
        if self.kind == "make_range":
            end, start = map(int, RANGE.findall(self.text)[0])
            return np.arange(start, end)
        constant = CONSTANT.match(self.text)
        return constant and np.int64(json.loads(constant[1]))


class Function(NamedTuple):
    """A kernel: the names of its run-time parameters by their values, its operations, and all of its module in order."""

    parameters: dict[str, str]
    body: list[Op]
    every: list[Op]


def parsed_of(compiled: Any, jit: Any) -> Function:
    """Returns a compiled kernel; functions that it calls without inlining remain calls.

    Where values are more than run-time parameters, as of descriptors, their own names are those of parameters.
    """
    regions: list[list[Op]] = [[]]
    every: list[Op] = []
    source = compiled.asm["ttir" if "ttir" in compiled.asm else "ttgir"]  # Gluon's kernels have no TTIR
    places = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", source, re.MULTILINE))
    for raw in source.splitlines():
        line, location = LOCATION.sub("", raw).strip(), raw.rpartition(" loc(")[2]
        if not line or line.startswith("#"):
            continue
        if line.startswith("}"):  # } else {, and } do {
            regions.pop()
        else:
            while not (place := PLACE.search(location)) and (reference := REFERENCE.search(location)):
                location = places.get(reference[0], "")  # of a call, that of the function that is called
            every.append(_op(line, f"{place[1].rpartition('/')[2]}:{place[2]}" if place else ""))
            regions[-1].append(every[-1])
        if line.endswith("{"):
            owner = regions[-1][-1]
            owner.regions.append([])
            regions.append(owner.regions[-1])
    functions = [op for op in every if op.name == "tt.func"]
    kernel = next((function for function in functions if " public " in function.text), functions[0])
    names = [name for name in jit.arg_names if name not in constants_of(compiled, jit)]
    if len(names) != len(kernel.operands):
        names = [value.removeprefix("%") for value in kernel.operands]
    return Function(dict(zip(kernel.operands, names, strict=True)), kernel.regions[0], every)


def _op(text: str, line: str) -> Op:
    left, _, body = text.partition(" = ")
    if text.startswith("^"):
        return Op("label", VALUE.findall(text), [], text, line)
    if not text.startswith("%"):
        left, body = "", text
    results = []
    for name, count in RESULTS.findall(left):
        results += [f"{name}#{index}" for index in range(int(count or 0))] or [name]
    return Op((NAME.findall(body) or [""])[0], results, VALUE.findall(body), body, line)


def stored(function: Function) -> set[str] | None:
    """Returns the names of parameters, all that a kernel may store to among them; None if Triton's IR does not show them."""
    if any(op.kind in ("int_to_ptr", "call") or "pure = false" in op.text for op in function.every):
        return None  # pointers in memory, and functions and assembly that may store
    sources = defaultdict[str, set[str]](set)  # values that a value may be, or be computed from
    shared = "values between blocks"  # of which any may be any other
    for op in function.every:
        values = set(op.operands)
        if op.name.startswith(("scf.", "cf.", "label")):
            sources[shared] |= values
            values = {shared}
        for name in (*op.results, *(name for name, _ in op.carried)):
            sources[name] |= values
    left, seen = [op.operands[0] for op in function.every if ACCESSES.get(op.kind, "load") != "load"], set[str]()
    while left:
        if (value := left.pop()) not in seen:
            seen.add(value)
            left += sources[value]
    return {function.parameters[value] for value in seen & function.parameters.keys()}
