"""What a run has seen, and how it is told at the end."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from virtual.lint import Lint
from virtual.machine import MACHINE


@dataclass
class Record:
    """Results of a run.

    Args:
        errors: of each case, by output type: the largest one, and that in units of what is allowed.
        lints: variants of lowered kernels, by kernel and by what the lint says of them.
    """

    errors: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    lints: dict[tuple[str, Lint], list[str]] = field(default_factory=lambda: defaultdict(list))

    def report(self) -> Iterator[str]:
        if self.lints:
            yield f"{'lowered kernel':38} {'vector':9} loads stores findings"
        for (kernel, found), variants in self.lints.items():
            findings = ", ".join(sorted(found.findings)) or "none"
            yield f"{kernel:38} {' '.join(variants):9} {found.loads:5} {found.stores:6} {findings}"
        cases = sum(map(len, self.errors.values()))
        kernels = f"{len(MACHINE.compiled)} kernels compiled, {len(set(MACHINE.compiled))} of them different"
        yield f"{kernels}; {len(MACHINE.launches)} launches; {cases} cases compared with float64"
        for dtype, errors in sorted(self.errors.items()):
            error, worst = map(max, zip(*errors, strict=True))
            yield f"{dtype}: largest error {error:.3g}; at most {worst:.2f} of what is allowed"
