"""Tables of documents, made of the results that are kept: `python scripts/benchmark report --write`."""

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from benchmark.ratios import compared, mean, text, to_best, to_ceiling
from benchmark.results import CEILINGS, COPY, OURS, STREAMS, Cell, Result, cells_of, read

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "scripts" / "results"
TABLES_OF_CARDS = sorted(KEPT.glob("nvidia_*.csv"))
OTHERS = {"host", "attention", "sampling", "log_probs"}  # sweeps that the table of classes does not have
DOCUMENTS = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("speed", "log_probs")))
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
DIRECTIONS = ("forward", "backward")
BEHIND = 0.98  # of a peer: below it we are slower by more than 2%
MOST_BEHIND = 4  # lines of the list
NOT_KEPT = "Not in the kept results."
SMALL_US = 20  # a cell below it takes little more than a launch


def write() -> None:
    """Fills the blocks of all documents."""
    for path in DOCUMENTS:
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


def filled(document: str) -> str:
    """Returns a document with its blocks as the kept results make them.

    Raises:
        KeyError: there is no table of a block's name.
    """
    return BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n\n", document)


@cache
def kept() -> list[Result]:
    """Returns all results that are kept."""
    return [each for file in TABLES_OF_CARDS for each in read(file)]


def _cells(directions: Iterable[str] = DIRECTIONS) -> list[Cell]:
    results = [each for each in kept() if each.sweep not in OTHERS]
    return [cell for cell in cells_of(results) if cell.result.direction in directions and OURS in cell.us]


def _by_device(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    devices: dict[str, list[Cell]] = {}
    for cell in cells:
        devices.setdefault(cell.result.device, []).append(cell)
    return dict(sorted(devices.items(), key=lambda each: -len(each[1])))


def _table(rows: list[list[str]], *header: str) -> str:
    lines = [list(header), ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured() -> str:
    """Returns a row for each device: what was installed, the days, and how many cells were timed."""
    groups: dict[str, list[Result]] = {}
    for each in (each for each in kept() if each.sweep not in OTHERS - {"host"}):
        groups.setdefault(each.device, []).append(each)
    rows = [[device, *_installed(group), str(len({each.cell for each in group}))] for device, group in groups.items()]
    return _table(rows, "device", "driver", "Triton", "torch", "dates", "peers", "cells")


def _installed(group: list[Result]) -> list[str]:
    """Returns what was installed on a device, the first and last day, and the peers."""
    versions = [
        sorted({getattr(each, name).partition("+")[0] for each in group} - {""}) for name in ("driver", "triton", "torch")
    ]
    dates = sorted({each.date for each in group})
    return [*map(", ".join, versions), " to ".join(dict.fromkeys((dates[0], dates[-1]))), ", ".join(_providers(group))]


def _providers(group: Iterable[Result]) -> list[str]:
    names = {each.provider: f"{each.provider} {each.version}".strip() for each in group if each.median_us}
    return [words for name, words in names.items() if name not in (OURS, *CEILINGS)]


def classes() -> str:
    """Returns a row of ratios for each device and class."""
    rows = []
    for device, cells in _by_device(_cells()).items():
        sweeps: dict[str, list[Cell]] = {}
        for cell in cells:
            sweeps.setdefault(cell.result.sweep, []).append(cell)
        rows += [[device, f"{sweep}, {_columns(group)}", *_ratios(group)] for sweep, group in sweeps.items()]
    return _table(rows, "device", "class, columns", "float32", "its gradient", "bfloat16", "its gradient", "behind a peer")


def _columns(cells: list[Cell]) -> str:
    columns = [cell.result.sizes[cell.result.dim] for cell in cells]
    return f"{min(columns)} to {max(columns)}"


def _peered(cells: Iterable[Cell]) -> list[Cell]:
    """Returns the cells that a peer beside torch was right in, the slowest beside the best one first."""
    return [cell for cell in compared(cells) if cell.us.keys() - {OURS, COPY, "torch"}]


def _ratios(cells: list[Cell]) -> list[str]:
    told = []
    for dtype in ("float32", "bfloat16"):
        for direction in DIRECTIONS:
            group = [cell for cell in cells if (cell.result.dtype, cell.result.direction) == (dtype, direction)]
            told.append(", ".join(map(text, _three(group))) if group else "-")
    return [*told, f"{len(_slower(cells))} of {len(compared(cells))}"]


def _three(cells: list[Cell]) -> tuple[float, float, float]:
    of_copy, of_torch = (mean(cell.ratio(other) for cell in cells) for other in (COPY, "torch"))
    return of_copy, of_torch, mean(map(to_best, _peered(cells)))


def _slower(cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in compared(cells) if to_best(cell) < BEHIND]


def behind() -> str:
    """Returns the cells of a launch's time or more that are furthest behind a peer, the worst first."""
    cells = _cells()
    slower = _slower(cells)
    large = [cell for cell in slower if cell.us[OURS] >= SMALL_US]
    rows = [
        [text(to_best(cell)), str(cell.best_peer()), cell.result.device, cell.place, cell.result.dtype, cell.result.direction,
         f"{cell.us[OURS]:.1f}"]
        for cell in large[:MOST_BEHIND]
    ]  # fmt: skip
    counts = f"{len(slower)} of {len(compared(cells))} cells; {len(slower) - len(large)} of them take less than {SMALL_US} us."
    if not rows:
        return counts
    table = _table(rows, "of the peer's speed", "peer", "device", "tensor", "type", "direction", "us")
    return f"{counts} Of the others, the {len(rows)} furthest behind:\n\n{table}"


def host() -> str:
    """Returns the host's time of a call, by device and provider."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    kinds: dict[str, None] = {}
    for each in (each for each in kept() if each.sweep == "host"):
        kinds[each.direction] = None
        groups.setdefault((each.device, each.provider), {})[each.direction] = f"{each.median_us:.1f}"
    if not groups:
        return NOT_KEPT
    return _table(
        [[*key, *(times.get(kind, "-") for kind in kinds)] for key, times in groups.items()], "device", "provider", *kinds
    )


def numbers() -> str:
    """Returns four numbers for each device, over the cells of a launch's time or more."""
    rows = []
    for device, cells in _by_device(_cells()).items():
        large = [cell for cell in cells if cell.us[OURS] >= SMALL_US]
        worst = _peered(large)
        least = f"{text(to_best(worst[0]))}, {worst[0].place} {worst[0].result.dtype}" if worst else "-"
        rows.append([device, *map(text, _three(large)), least, str(len(large))])
    return _table(rows, "device", "of a copy's speed", "times torch", "times the best peer", "least of these", "cells")


def scores() -> str:
    """Returns ratios of the softmax of scores for each device and kind of call, by type."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells_of([each for each in kept() if each.sweep in ("attention", "sampling")]):
        call = cell.result.direction.partition(", ")[0]
        if call != "plain":
            groups.setdefault((cell.result.device, call), []).append(cell)
    dtypes = list(dict.fromkeys(cell.result.dtype for cells in groups.values() for cell in cells))
    rows = []
    for (device, call), cells in groups.items():
        by_type = [[cell for cell in cells if cell.result.dtype == dtype] for dtype in dtypes]
        told = [", ".join(map(text, _three(group))) if group else "-" for group in by_type]
        rows.append([device, f"{call}, {_columns(cells)}", *told, f"{len(_slower(cells))} of {len(compared(cells))}"])
    return _table(rows, "device", "call, columns", *dtypes, "behind a peer")


def log_probs() -> str:
    """Returns microseconds and ratios of log-probabilities of tokens, by device and shape, for each call and type."""
    results = [each for each in kept() if each.sweep == "log_probs"]
    rows: dict[tuple[str, tuple[int, ...]], dict[str, str]] = {}
    for cell in cells_of(sorted(results, key=lambda each: list(STREAMS).index(each.direction))):
        told, us = cell.result, cell.us.get(OURS)
        ratios = f"{text(to_ceiling(cell))}, {text(to_best(cell))} {cell.best_peer() or ''}".strip()
        call = f"{told.direction.partition('_')[2].replace('_', '-')}, {told.dtype}"
        rows.setdefault((told.device, told.sizes), {})[call] = f"{us:.{int(us < SMALL_US)}f}; {ratios}" if us else "-"
    calls = list(dict.fromkeys(call for row in rows.values() for call in row))
    named = [[device, " x ".join(map(str, sizes)), *(row.get(call, "-") for call in calls)]
             for (device, sizes), row in sorted(rows.items())]  # fmt: skip
    return _table(named, "device", "logits", *calls) if rows else NOT_KEPT


TABLES: dict[str, Callable[[], str]] = {
    each.__name__: each for each in (measured, classes, behind, host, numbers, scores, log_probs)
}
