"""One table of what kernels compute: layout x tiling x kind x type x options, and the rows of a case.

tests/support/launched_rows.py launches a row of it, and compares it with float64.
"""

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from exact import INF

from portable_softmax.planning.tiling import Tiling
from portable_softmax.runtime.bind import NAMES

NAN = float("nan")
DTYPES = torch.float32, torch.float16, torch.bfloat16


class Layout(NamedTuple):
    """How rows lie in memory.

    Args:
        rows: their shape, [batches, heads, queries] without those of 1.
        across: columns are apart, and neighbours in memory belong to different rows.
        gap: elements behind each line.
        vector: what the length of lines is a multiple of; 0 if lines start anywhere and are read in whole vectors.
        scattered: a tile has rows of several matrices.
        swapped: heads lie within queries.
    """

    rows: tuple[int, ...] = (11,)
    across: bool = False
    gap: int = 0
    vector: int = 1
    scattered: bool = False
    swapped: bool = False


LAYOUTS = {
    "rows": Layout(gap=4),
    "vectors": Layout(gap=8, vector=8),
    "unaligned": Layout(gap=3, vector=0),
    "heads": Layout((2, 2, 3), gap=8, vector=8, swapped=True),
    "unaligned heads": Layout((2, 2, 3), vector=0),
    "side by side": Layout((2, 17), across=True, gap=2),
    "side by side in vectors": Layout((1, 24), across=True, gap=8, vector=8),
    "matrices": Layout((5, 2), across=True, scattered=True),
}
FEW = {  # for a row by itself, and for tests of rows that programs share
    "one unaligned row": Layout((1,), vector=0),
    "two rows": Layout((2,), vector=8),
    "two unaligned rows": Layout((2,), gap=3, vector=0),
    "few side by side": Layout((2, 3), across=True),
}
TILINGS = {  # of rows; tiles of rows side by side have 16
    "several rows": Tiling(4, 64, 1),
    "many warps": Tiling(1, 64, 8),
    "blocks": Tiling(1, 64, 1, blocks=6),
    "rows in blocks": Tiling(2, 16, 2, blocks=3),
    "read twice": Tiling(1, 16, 1, in_registers=False),
    "rows read twice": Tiling(2, 32, 4, in_registers=False),
    "read twice in lanes": Tiling(1, 64, 16, in_registers=False),
    "splits": Tiling(1, 16, 1, splits=3),
    "splits in blocks": Tiling(1, 64, 1, splits=3, blocks=6),
    "splits read twice": Tiling(1, 16, 1, splits=2, blocks=3, in_registers=False),
    "two launches": Tiling(1, 16, 1, splits=3, in_registers=False, two_launches=True),
    "two launches read twice": Tiling(1, 16, 1, splits=2, blocks=3, in_registers=False, two_launches=True),
}
FORWARD = (
    (), ("boolean mask",), ("scales",), ("added mask", "sink"), ("in place",), ("temperatures",), ("upper left",),
    ("temperature", "softcap"), ("lower right", "mask of batches", "zero rows"), ("scale", "bits"), ("mask of columns", "sink"),
    ("temperatures", "softcap", "added to heads", "lower right", "sink", "zero rows"), ("mask of rows", "softcap", "scale"),
)  # fmt: skip
BACKWARD = (
    (), ("in place",), ("scale", "boolean mask"), ("temperatures",), ("softcap", "scale"), ("sink",), ("scales", "upper left"),
)  # fmt: skip
LOG_PROBS = (
    (), ("entropy", "bits"), ("many", "lse", "boolean mask"), ("temperature", "in place"), ("entropy", "lse", "temperatures"),
    ("softcap", "many", "bits", "zero rows"), ("scales", "entropy", "many"),
)  # fmt: skip
SAMPLE = (), ("temperatures",), ("temperature", "bits"), ("softcap", "min_p"), ("boolean mask", "temperatures", "min_p")
KINDS = {
    "softmax": FORWARD, "log_softmax": FORWARD, "gradient": BACKWARD, "log gradient": BACKWARD, "log_probs": LOG_PROBS,
    "sample": SAMPLE,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A row of the table; its number selects the columns, the values and the layout of the result."""

    layout: str
    tiling: str
    kind: str
    dtype: torch.dtype = torch.float32
    options: tuple[str, ...] = ()
    number: int = 0

    def __str__(self) -> str:
        return ", ".join((self.kind, self.layout, self.tiling, NAMES[self.dtype], *self.options)).replace(" ", "_")

    @property
    def result(self):
        """Returns the type of a result, or of y and its gradient: some of 16 bits have float32."""
        return torch.float32 if self.number % 4 == 3 else self.dtype

    @property
    def lies(self):
        """Returns the layout."""
        return (LAYOUTS | FEW)[self.layout]

    def tiling_of(self, machine):
        """Returns the tiling; every second one has fewer programs than tiles."""
        tiling = TILINGS[self.tiling]
        rows = 16 if self.lies.across else tiling.tile_rows
        return machine.tiling(tiling._replace(tile_rows=rows, walk=self.number % 2 == 0))

    def shape(self, machine):
        """Returns the shape: the last split of rows is ragged, empty, or now and then full."""
        tiling, layout, turn = self.tiling_of(machine), self.lies, self.number % 3
        covered = 3 * tiling.width if tiling.strategy == "two-pass" else tiling.splits * tiling.split_cols
        less = covered // 3 if tiling.is_split and self.number % 4 == 1 else 0
        if not layout.vector:  # whole vectors may be 7 elements longer, and end two blocks ahead
            ahead = tiling.width if tiling.blocks > 2 else 0
            return *layout.rows, covered - less // 2 * 2 - (9, 11 + ahead, 10)[turn]
        return *layout.rows, covered - less - (
            (layout.vector, 0, layout.vector)[turn] if not layout.across and layout.vector > 1 else 3
        )

    def arguments(self, shape):
        """Returns the arguments of a call for the options."""
        arguments = {}
        for name in self.options:
            arguments |= OPTIONS[name](shape, self.number) if name in OPTIONS else {}
        return arguments


def table():
    """Returns all rows: each layout with each tiling and kind; types and options take turns."""
    rows = []
    for turn, (kind, choices) in enumerate(KINDS.items()):
        pairs = [(at, *pair) for at, pair in enumerate(itertools.product(LAYOUTS, TILINGS))]
        for at, layout, tiling in pairs:
            options = choices[at % len(choices)]
            number = at + at // len(TILINGS) + turn  # so that a tiling has another one in each layout and kind
            in_place = "in place" in options and kind != "log_probs" and TILINGS[tiling].is_split
            if in_place or LAYOUTS[layout].scattered:  # which are never planned
                options = ()
            of_tokens, lies = kind in ("log_probs", "sample"), LAYOUTS[layout]
            if not of_tokens or (not lies.across and (lies.vector or kind == "log_probs")):
                rows.append(Row(layout, tiling, kind, DTYPES[number // 5 % 3], options, number))
    return rows


# ---------------------------------------------------------------- options
NUMBERS = {
    "scales": [2.0, -0.5, 0.0, NAN, INF, -INF, 3e38, -1e-30, 1e30, 1e-3, 1e-45, -0.0],
    "temperatures": [0.0, 0.5, 1e-30, 1.0, -2.0, 1e30, NAN, 3.0, -0.0, INF, 1e-3],
    "sinks": [0.5, -INF, 30.0, INF, -1e30, NAN, 0.0],
}


def of_rows(name, shape):
    """One number for each row."""
    numbers = NUMBERS[name]
    return torch.tensor([numbers[at % len(numbers)] for at in range(math.prod(shape[:-1]))]).view(*shape[:-1], 1)


def random(*shape, seed, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def some(*shape, seed):
    return random(*shape, seed=seed) < 0.3


def added(*shape, seed):
    return random(*shape, seed=seed, dtype=DTYPES[seed % 3]).masked_fill(~some(*shape, seed=seed + 1), -INF)


OPTIONS = {
    "scale": lambda shape, n: {"scale": 1.7},
    "scales": lambda shape, n: {"scale": of_rows("scales", shape)},
    "temperature": lambda shape, n: {"temperature": 0.7},
    "temperatures": lambda shape, n: {"temperature": of_rows("temperatures", shape)},
    "softcap": lambda shape, n: {"softcap": (0.3, 5.0, 50.0)[n % 3]},
    "boolean mask": lambda shape, n: {"mask": some(*shape, seed=n)},
    "bits": lambda shape, n: {"mask": some(*shape[:-2], *([1] if n % 2 else shape[-2:-1]), shape[-1], seed=n)},
    "min_p": lambda shape, n: {"min_p": 0.3 if n % 2 else torch.rand(*shape[:-1], 1)},
    "mask of columns": lambda shape, n: {"mask": some(shape[-1], seed=n)},
    "mask of rows": lambda shape, n: {"mask": some(*shape[:-1], 1, seed=n)},
    "mask of batches": lambda shape, n: {"mask": some(shape[0], *[1] * (len(shape) - 3), *shape[1:][-2:], seed=n)},
    "added mask": lambda shape, n: {"mask": added(*shape, seed=n)},
    "added to heads": lambda shape, n: {"mask": added(*shape[-2:], seed=n)},
    "upper left": lambda shape, n: {"causal": "upper_left"},
    "lower right": lambda shape, n: {"causal": "lower_right"},
    "sink": lambda shape, n: {"sink": of_rows("sinks", shape)},
    "zero rows": lambda shape, n: {"masked_rows": "zero"},
}
# ---------------------------------------------------------------- values
HOSTILE = {  # of a row of random numbers, its columns, one of them, and the largest number of the type
    "nan": lambda row, place, col, largest: row.where(place != col, NAN),
    "inf": lambda row, place, col, largest: row.where(place < len(row) - 1, INF),
    "nothing": lambda row, place, col, largest: row.fill_(-INF),
    "the first block": lambda row, place, col, largest: row.where(place < 16, -INF),
    "all but the first block": lambda row, place, col, largest: row.where(place >= 16, -INF),
    "one element": lambda row, place, col, largest: row.where(place == col, -INF),
    "the first": lambda row, place, col, largest: row.where(place == 0, -INF),
    "the last": lambda row, place, col, largest: row.where(place == len(row) - 1, -INF),
    "no ends": lambda row, place, col, largest: row.where((place >= 4) & (place < len(row) - 4), -INF),
    "every second block": lambda row, place, col, largest: (row * 3e3).where(place // 16 % 2 == col % 2, -INF),
    "one hot": lambda row, place, col, largest: row.where(place != col, 1e4),
    "1e30": lambda row, place, col, largest: row * 1e28,
    "equal": lambda row, place, col, largest: row.fill_(0.1 if col % 2 else -largest),
    "denormal": lambda row, place, col, largest: row * 1e-42,
    "all numbers": lambda row, place, col, largest: (place / len(row) - 0.5) * largest,
    "far below": lambda row, place, col, largest: (row - 600).where(place != col, -300),
    "nan and nothing": lambda row, place, col, largest: torch.full_like(row, NAN).where(place % 2 == 0, -INF),
}
GRADIENTS = {
    "random": lambda row, place, col, largest: row,
    "nan": lambda row, place, col, largest: row.where(place != col, NAN),
    "large": lambda row, place, col, largest: row * 100,
    "inf": lambda row, place, col, largest: row.where(place != col, INF),
    "zeros": lambda row, place, col, largest: row * 0,
}


def hostile(shape, dtype, seed, kinds):
    """Rows of each kind in turn, from one on that the seed selects; every second one for x, whose others are random."""
    n_cols, names, rows = shape[-1], [*kinds], []
    place, largest = torch.arange(n_cols), torch.finfo(dtype).max
    for number in range(math.prod(shape[:-1])):
        row = random(n_cols, seed=seed + number).double()
        row += 100 * (number % 7 - 3) if kinds is HOSTILE else 0  # neighbours differ by a lot
        rows.append(kinds[names[(seed + number // 2) % len(names)]](row, place, 7 * number % n_cols, largest).to(dtype))
    return torch.stack(rows).view(shape)


def exact_differences(n_cols, dtype, seed):
    """A row over the whole range of exponents, with 16 bits behind the point: differences from the maximum are exact."""
    largest = 8 if dtype == torch.float16 else 80
    row = -torch.randint(0, largest << 16, (n_cols,), generator=torch.Generator().manual_seed(seed)).double() / 2**16
    row[7 % n_cols] = 0.0
    return (row + 3.25).to(dtype)


def values(shape, dtype, seed):
    """Returns (rows, of which every second one is hostile; 1 for these, and 0 for the others, whose differences are exact)."""
    x = hostile(shape, dtype, seed, HOSTILE)
    loose = torch.ones(*shape[:-1], 1, dtype=torch.float64)
    for number, row in enumerate(x.view(-1, shape[-1])[::2]):
        row.copy_(exact_differences(shape[-1], dtype, seed + number))
    loose.view(-1)[::2] = 0
    return x, loose
