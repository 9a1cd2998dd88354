"""Tables and the chart of the documents, made from scripts/results: `python scripts/benchmark report --write`."""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from tabulate import tabulate

from benchmark.results import CEILINGS, COPY, OURS, STREAMS, Cell, Result, cells_of, read

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "scripts" / "results"
TABLES_OF_CARDS = sorted(KEPT.glob("nvidia_*.csv"))
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "speed.md", ROOT / "docs" / "log_probs.md")
BLOCK = re.compile(r"(<!-- table: (\w+) (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
OTHERS = {"host", "attention", "sampling", "log_probs", "own", "rows16", "shapes"}  # sweeps with tables of their own
DIRECTIONS = ("forward", "backward")
SLOWER = 0.98  # of the best alternative's speed
SMALL_US = 20.0  # below it a call takes little more than a launch
MAX_SLOWER = 5  # rows of the list
README_CELLS = (  # operation, direction, shape, dtype
    ("softmax", "forward", "4096x4096", "bfloat16"),
    ("softmax", "forward", "1024x131072", "bfloat16"),
    ("softmax, scale and boolean mask", "boolean mask", "8x16x2048x2048", "bfloat16"),
    ("token_log_probs", "token_log_probs", "4096x128256", "bfloat16"),
    ("token_log_probs and gradient", "token_both", "4096x128256", "bfloat16"),
)
LABELS = {
    "torch": "torch",
    "compile": "torch.compile",
    "liger": "Liger",
    "quack": "QuACK",
    OURS: "portable_softmax",
    COPY: "copy",
}


def write() -> None:
    """Writes the tables into all documents."""
    for path in DOCUMENTS:
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


def filled(document: str) -> str:
    """Returns a document with its tables computed from the results of the cards that they name.

    Raises:
        KeyError: a block names an unknown table.
        FileNotFoundError: there are no results of a card.
    """
    return BLOCK.sub(lambda block: f"{block[1]}{TABLES[block[2]](block[3])}\n\n", document)


@cache
def kept(card: str) -> list[Result]:
    """Returns all results of a card, such as h100."""
    return list(read(KEPT / f"nvidia_{card}.csv"))


def _cells(card: str) -> list[Cell]:
    """Returns the cells of plain softmaxes and their gradients."""
    results = (result for result in kept(card) if result.sweep not in OTHERS and result.direction in DIRECTIONS)
    return [cell for cell in cells_of(results) if OURS in cell.us]


def _table(header: str, rows: Iterable[Iterable[str]]) -> str:
    table = tabulate(list(rows), header.split("; "), "github", disable_numparse=True)
    return re.sub(r"-{4,}", "---", re.sub(r" {2,}", " ", table))


def _grouped(cells: Iterable[Cell], key: Callable[[Cell], tuple[str, ...]]) -> dict[tuple[str, ...], list[Cell]]:
    groups = defaultdict(list)
    for cell in cells:
        groups[key(cell)].append(cell)
    return dict(groups)


def _us(us: float | None) -> str:
    return "-" if us is None else f"{us:.{int(us < SMALL_US)}f}"


def as_text(ratio: float, form: str = "{:.2f}") -> str:
    """Returns a ratio as text; "-" for nan."""
    return "-" if math.isnan(ratio) else form.format(ratio)


def _percent(ratio: float) -> str:
    return as_text(ratio, "{:.0%}")


def mean(ratios: Iterable[float]) -> float:
    """Returns the geometric mean of those that are known; nan of nothing."""
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    return statistics.geometric_mean(known) if known else math.nan


def compared(cells: Iterable[Cell]) -> list[Cell]:
    """Returns the cells that have a peer's time and ours, the slowest beside the peer first."""
    return sorted((cell for cell in cells if not math.isnan(cell.to_best())), key=Cell.to_best)


def readme_cells(card: str) -> list[tuple[str, Cell]]:
    """Returns the README's calls that were timed on a card, by name, beside most alternatives."""
    by_peers = sorted(cells_of(kept(card)), key=lambda cell: len(cell.us))
    cells = {(cell.result.direction, cell.result.shape, cell.result.dtype): cell for cell in by_peers}
    return [(name, cells[place]) for name, *key in README_CELLS if (place := (key[0], key[1], key[2])) in cells]


def performance(cards: str) -> str:
    """Returns microseconds of the README's calls on cards, such as h100_h200, beside those of alternatives and a copy."""
    rows = [
        (card.upper(), name, " x ".join(map(str, cell.result.sizes)), *(_us(cell.us.get(provider)) for provider in LABELS))
        for card in cards.split("_")
        for name, cell in readme_cells(card)
    ]
    return _table("; ".join(("card", "call", "shape", *LABELS.values())), rows)


def measured(card: str) -> str:
    """Returns what the results were measured with."""
    results = [result for result in kept(card) if result.sweep not in OTHERS - {"host"}]
    versions = (
        ", ".join(sorted({getattr(result, name).partition("+")[0] for result in results} - {""}))
        for name in ("device", "driver", "triton", "torch")
    )
    dates = sorted({result.date for result in results})
    peers = {f"{result.provider} {result.version}".strip() for result in results} - {OURS, *CEILINGS}
    row = (*versions, " to ".join(dict.fromkeys((dates[0], dates[-1]))), ", ".join(sorted(peers)))
    return _table("device; driver; Triton; torch; dates; alternatives", [row])


def _columns(cells: list[Cell]) -> str:
    columns = [cell.result.sizes[cell.result.dim] for cell in cells]
    return f"{min(columns)} to {max(columns)}"


def _ratios(cells: list[Cell]) -> list[str]:
    """Returns the number of cells, geometric means beside a copy, torch and the best alternative, and how many are slower."""
    others = [cell for cell in compared(cells) if cell.us.keys() - {OURS, COPY, "torch"}]
    of_copy, of_torch = (mean(cell.ratio(name) for cell in cells) for name in (COPY, "torch"))
    of_best = as_text(mean(map(Cell.to_best, others)))
    return [str(len(cells)), _percent(of_copy), as_text(of_torch, "{:.1f}x"), of_best, str(len(_slower(cells)))]


def _slower(cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in compared(cells) if cell.to_best() < SLOWER]


def classes(card: str) -> str:
    """Returns a row for each class of shapes, type and direction."""
    groups = _grouped(_cells(card), lambda cell: (cell.result.sweep, cell.result.dtype, cell.result.direction))
    rows = ((sweep, _columns(cells), *rest, *_ratios(cells)) for (sweep, *rest), cells in sorted(groups.items()))
    return _table("class; columns; dtype; direction; cells; of a copy; vs torch; vs best alternative; slower", rows)


def _calls(card: str, header: str, sweeps: Iterable[str]) -> str:
    """Returns a row for each call of sweeps, and type."""
    cells = (cell for cell in cells_of(kept(card)) if cell.result.sweep in sweeps)
    groups = _grouped(cells, lambda cell: (cell.result.direction, cell.result.dtype))
    rows = ((call, _columns(cells), dtype, *_ratios(cells)) for (call, dtype), cells in groups.items() if call != "plain")
    return _table(f"{header}; columns; dtype; cells; of a copy; vs torch; vs best alternative; slower", rows)


def scores(card: str) -> str:
    """Returns a row for each call with a mask, causal or a temperature, and type."""
    return _calls(card, "call", ("attention", "sampling"))


def of_copy(card: str) -> str:
    """Returns the part of a copy's speed for mixed shapes, and for long rows of 16 bits."""
    cells = [cell for cell in cells_of(kept(card)) if cell.result.sweep in ("rows16", "shapes")]
    rows = []
    for key, some in _grouped(cells, lambda cell: (cell.result.sweep, cell.result.direction, cell.result.dtype)).items():
        large = [cell for cell in some if cell.us[OURS] >= SMALL_US]
        least = min(large, key=lambda cell: cell.ratio(COPY))
        means = (_percent(mean(cell.ratio(COPY) for cell in group)) for group in (some, large))
        rows.append((*key, str(len(some)), *means, f"{_percent(least.ratio(COPY))}: {least.place}"))
    return _table("shapes; call; dtype; cells; of a copy; 20 us and more; lowest of these", rows)


def own(card: str) -> str:
    """Returns a row for each row kernel of examples/, and type."""
    return _calls(card, "kernel", ("own",))


def behind(card: str) -> str:
    """Returns how many cells are slower than an alternative, and those of them that are furthest behind."""
    cells = _cells(card)
    slower = _slower(cells)
    large = [cell for cell in slower if cell.us[OURS] >= SMALL_US]
    rows = [
        (
            cell.place,
            cell.result.dtype,
            cell.result.direction,
            _us(cell.us[OURS]),
            str(cell.best_peer()),
            as_text(cell.to_best()),
        )
        for cell in large[:MAX_SLOWER]
    ]
    count = f"{len(slower)} of {len(compared(cells))} cells; {len(slower) - len(large)} of them take less than 20 us."
    table = _table("shape; dtype; direction; us; alternative; of its speed", rows)
    return f"{count} Of the others, those furthest behind:\n\n{table}" if rows else count


def host(card: str) -> str:
    """Returns microseconds of the host for a call."""
    cells = (cell for cell in cells_of(kept(card)) if cell.result.sweep == "host")
    rows = (
        (cell.result.direction, _us(cell.us.get("torch")), _us(cell.us.get(OURS)), as_text(1 / cell.ratio("torch")))
        for cell in cells
    )
    return _table("call; torch; portable_softmax; portable_softmax / torch", rows)


def log_probs(card: str) -> str:
    """Returns a row for each call of log-probabilities, shape and type."""
    cells = cells_of(sorted((result for result in kept(card) if result.sweep == "log_probs"),
                            key=lambda result: list(STREAMS).index(result.direction)))  # fmt: skip
    rows = []
    for cell in cells:
        peer, result = cell.best_peer(), cell.result
        call = result.direction.partition("_")[2].replace("_", "-")
        best = f"{_us(cell.us[peer])} {peer}" if peer else "-"
        place = (call, " x ".join(map(str, result.sizes)), result.dtype)
        rows.append((*place, _us(cell.us.get(OURS)), _us(cell.us.get("torch")), best, _percent(cell.to_ceiling())))
    return _table("call; logits; dtype; portable_softmax, us; torch; best alternative; of reading or copying", rows)


TABLES: dict[str, Callable[[str], str]] = {
    table.__name__: table for table in (performance, measured, classes, scores, of_copy, own, behind, host, log_probs)
}
