"""Reads lowered code for what is slow on the vector unit, though right: what a review on the device would look for first.

A tile should be moved by one structured copy (`memref.copy` into a local tile, `materialize_in_destination` out of one)
and computed in fp32 or fp16. The lowering makes everything else from kernels too, and says nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

LOAD = re.compile(r"\bmemref\.copy\b")
STORE = re.compile(r"\bbufferization\.materialize_in_destination\b")
LOOP = re.compile(r"\bscf\.(for|while|parallel)\b|^\} do \{$")
RULES = {
    # Loops of the kernel count in i32 or i64; those over index are the lowering's, one turn per row or element.
    "loop over elements": re.compile(r"\bscf\.for\b(?!.*: i(32|64) \{$)"),
    "scalar access": re.compile(r"\bmemref\.(load|store)\b"),
    "discrete access": re.compile(r"\b(ExtractedLoadOrStore|DiscreteMemAccess)\b"),
    "vector integer compare": re.compile(r"\barith\.cmpi\b.*: tensor<"),  # runs element by element on A2 and A3
    "int64 vector": re.compile(r"\btensor<[\dx?]*xi64>"),  # the vector unit has no 64-bit integers
}
EXTRACT = re.compile(r"\btensor\.extract\b(?!_)")


@dataclass(frozen=True)
class Lint:
    """Returns what stands in one lowered kernel.

    Args:
        loads, stores: structured copies of tiles.
        findings: rules that are broken, each once.
    """

    loads: int
    stores: int
    findings: frozenset[str]


def lint(linalg: str) -> Lint:
    lines = [line.strip() for line in linalg.splitlines()]
    loads, stores = (sum(bool(form.search(line)) for line in lines) for form in (LOAD, STORE))
    findings = {rule for rule, form in RULES.items() if any(form.search(line) for line in lines)}
    if any(EXTRACT.search(line) for line in _inside_loops(lines)):
        findings.add("extract in a loop")
    return Lint(loads, stores, frozenset(findings))


def _inside_loops(lines: list[str]) -> Iterator[str]:
    regions: list[bool] = []  # of each open region, whether it is a loop's
    for line in lines:
        if line.startswith("}"):
            regions.pop()
        if any(regions):
            yield line
        if line.endswith("{"):
            regions.append(bool(LOOP.search(line)))
