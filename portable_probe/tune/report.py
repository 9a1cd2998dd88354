"""A run in words: rows that were chosen, launches that failed, the noise, and regret by class."""

from collections import Counter

from tabulate import tabulate

from portable_probe.tune import table
from portable_probe.tune.choice import noise_of
from portable_probe.tune.run import Run

MOST_FAILURES = 20


def text_of(run: Run, lines: list[table.Line]) -> str:
    """Returns what is printed at the end of a run."""
    kinds = dict.fromkeys(line["class"] for line in lines)
    found = {kind: table.regrets(lines, kind) for kind in kinds} | {"all": table.regrets(lines)}
    rows = [(kind, *both) for kind, both in found.items() if both]
    regret = tabulate(rows, ("regret of held-out lengths", "before", "after"), disable_numparse=True) if rows else ""
    chosen = [", ".join(f"{key} {value}" for key, value in (row.conditions | row.given).items()) for row in run.rows]
    gains = [f"{row.gain:.2f} x: {words}" for row, words in zip(run.rows, chosen, strict=True)]
    measured = run.measured()
    noise = f"noise: {noise_of(measured) - 1:.1%}" if measured else _nothing(run)
    return "\n".join([*_failures(run), noise, *gains, regret])


def _nothing(run: Run) -> str:
    """Says how far a run came that measured no cell twice."""
    wanted = len({(cell, launch) for cell, found in run.plans.items() for launch in found.values()})
    return f"time ran out after {len(run.times)} of {wanted} launches, and nothing was learned; give it more --minutes"


def _failures(run: Run) -> list[str]:
    """Returns a line for each of the first failures, and how many there are by reason."""
    if not run.failures:
        return []
    counted = Counter(each.reason.partition(":")[0] for each in run.failures)
    told = [f"not chosen: {each}" for each in run.failures[:MOST_FAILURES]]
    return [*told, f"{len(run.failures)} failed: {', '.join(f'{n} {reason}' for reason, n in counted.items())}"]
