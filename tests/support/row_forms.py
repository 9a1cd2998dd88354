"""Row kernels of all forms, with their arguments, the grid of their author, and the expected result.

A kernel multiplies rows by 2 into y, unless its comment differs. `grid` is None where any number of programs is right.
"""

from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

GUARD = 8  # rows behind each tensor, which no launch may write


class Form(NamedTuple):
    """The grid of a form, the error of a plan without one, values of further parameters, and the result."""

    grid: Any = None
    words: str = ""
    more: Any = MappingProxyType({})
    result: str = "twice"


@triton.jit
def one_row(x, y, row, n_cols, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    at = tl.cast(row, tl.int64) * n_cols + c
    tl.store(y + at, tl.load(x + at, mask=c < n_cols, other=0.0) * 2, mask=c < n_cols)


@triton.jit
def _tile(x, y, tile, n_rows, n_cols, BLOCK: tl.constexpr, TILE: tl.constexpr):
    c = tl.arange(0, BLOCK)
    r = tile * TILE + tl.arange(0, TILE)
    at = r[:, None].to(tl.int64) * n_cols + c[None, :]
    mask = (r < n_rows)[:, None] & (c < n_cols)[None, :]
    tl.store(y + at, tl.load(x + at, mask=mask, other=0.0) * 2, mask=mask)


@triton.jit
def _block(x, y, t, n_cols, BLOCK: tl.constexpr):
    n = tl.cdiv(n_cols, BLOCK)
    c = t % n * BLOCK + tl.arange(0, BLOCK)
    at = (t // n).to(tl.int64) * n_cols + c
    tl.store(y + at, tl.load(x + at, mask=c < n_cols, other=0.0) * 2, mask=c < n_cols)


@triton.jit
def rows_in(  # noqa: PLR0915, as one of its branches is compiled
    x, y, n_rows, n_cols, FORM: tl.constexpr, BLOCK: tl.constexpr,
    part=None, order=None, first=0, per=1, walks=3, TILE: tl.constexpr = 4, PLANES: tl.constexpr = 1,
):  # fmt: skip
    p, n, c = tl.program_id(0), tl.num_programs(0), tl.arange(0, BLOCK)
    mask = c < n_cols
    if FORM == "a loop by num_programs":
        for row in tl.range(p, n_rows, n):
            one_row(x, y, row, n_cols, BLOCK)
    elif FORM == "while":
        row = p
        while row < n_rows:
            one_row(x, y, row, n_cols, BLOCK)
            row += n
    elif FORM == "while by a counter":
        turn = 0
        while p + turn * n < n_rows:
            one_row(x, y, p + turn * n, n_cols, BLOCK)
            turn += 1
    elif FORM == "counted ahead":
        turns = tl.cdiv(n_rows - p, n)
        for i in range(turns):
            one_row(x, y, p + i * n, n_cols, BLOCK)
    elif FORM == "blocks of a row":
        for row in tl.range(p, n_rows, n):
            at = tl.cast(row, tl.int64) * n_cols
            for start in range(0, n_cols, BLOCK):
                col = start + c
                tl.store(y + at + col, tl.load(x + at + col, mask=col < n_cols, other=0.0) * 2, mask=col < n_cols)
    elif FORM == "online blocks":
        for row in tl.range(p, n_rows, n):
            at = tl.cast(row, tl.int64) * n_cols
            peak = tl.full((), float("-inf"), tl.float32)
            total = tl.zeros((), tl.float32)
            for start in range(0, n_cols, BLOCK):
                v = tl.load(x + at + start + c, mask=start + c < n_cols, other=float("-inf"))
                new = tl.maximum(peak, tl.max(v, 0))
                total = total * tl.exp(peak - new) + tl.sum(tl.exp(v - new), 0)
                peak = new
            tl.store(y + row, peak + tl.log(total))
    elif FORM == "a buffer with a row for each program":
        acc = tl.zeros((BLOCK,), tl.float32)
        for row in tl.range(p, n_rows, n):
            acc += tl.load(x + row * n_cols + c, mask=mask, other=0.0)
            one_row(x, y, row, n_cols, BLOCK)
        for plane in tl.static_range(PLANES):
            tl.store(part + (first + plane * n + p) * n_cols + c, acc * (1 - plane), mask=mask)
    elif FORM == "tiles by num_programs":
        for tile in range(p, tl.cdiv(n_rows, TILE), n):
            _tile(x, y, tile, n_rows, n_cols, BLOCK, TILE)
    elif FORM == "blocks of all rows by num_programs":
        for t in range(p, n_rows * tl.cdiv(n_cols, BLOCK), n):
            _block(x, y, t, n_cols, BLOCK)
    elif FORM == "a total by atomics":
        total = tl.zeros((BLOCK,), tl.float32)
        for row in tl.range(p, n_rows, n):
            total += tl.load(x + tl.cast(row, tl.int64) * n_cols + c, mask=mask, other=0.0)
        tl.atomic_add(y + c, total, mask=mask)
    elif FORM == "a row":
        one_row(x, y, p, n_cols, BLOCK)
    elif FORM == "a row, and programs without one":
        if p >= n_rows:
            return
        one_row(x, y, p, n_cols, BLOCK)
    elif FORM == "a chunk of rows":
        acc = tl.zeros((BLOCK,), tl.float32)
        for row in range(p * per, tl.minimum((p + 1) * per, n_rows)):
            acc += tl.load(x + row * n_cols + c, mask=mask, other=0.0)
            one_row(x, y, row, n_cols, BLOCK)
        tl.store(part + p * n_cols + c, acc, mask=mask)
    elif FORM == "a constexpr step":
        for row in tl.range(p, n_rows, TILE):
            one_row(x, y, row, n_cols, BLOCK)
    elif FORM == "two axes":
        col = tl.program_id(1) * BLOCK + c
        tl.store(y + p * n_cols + col, tl.load(x + p * n_cols + col, mask=col < n_cols, other=0.0) * 2, mask=col < n_cols)
    elif FORM == "a tile of rows":
        _tile(x, y, p, n_rows, n_cols, BLOCK, TILE)
    elif FORM == "a share of the tiles, rounded down":
        share = tl.maximum(tl.cdiv(n_rows, TILE) // n, 1)
        for i in range(share * TILE):
            if p * share * TILE + i < n_rows:
                one_row(x, y, p * share * TILE + i, n_cols, BLOCK)
    elif FORM == "another step for many rows":
        for row in range(p, n_rows, tl.where(n_rows > 30, 13, n)):
            one_row(x, y, row, n_cols, BLOCK)
    elif FORM == "at most ten rows for each program":
        for row in range(p, tl.minimum(n_rows, p + 10 * n), n):
            one_row(x, y, row, n_cols, BLOCK)
    elif FORM == "a number for each program":
        total = tl.zeros((), tl.float32)
        for row in range(p, n_rows, n):
            total += tl.sum(tl.exp(tl.load(x + row * n_cols + c, mask=mask, other=float("-inf"))), 0)
        tl.store(y + p, tl.log(total))
    elif FORM == "a flat number of blocks":
        _block(x, y, p, n_cols, BLOCK)
    elif FORM == "bounds that are loaded":
        for row in range(tl.load(order + p), tl.load(order + p + 1)):
            one_row(x, y, row, n_cols, BLOCK)
    elif FORM == "a switch of forms":
        start, end, step = p, p + 1, 1
        if (walks + 1) // 2 == 1:  # 2, and True
            end, step = n_rows, n
        for row in range(start, end, step):
            one_row(x, y, row, n_cols, BLOCK)


def _blocks_of(meta):
    return triton.cdiv(meta["n_cols"], meta["BLOCK"])


ROWS, TILES = lambda meta: (meta["n_rows"],), lambda meta: (triton.cdiv(meta["n_rows"], meta["TILE"]),)
BLOCKS, FLAT = lambda meta: (meta["n_rows"], _blocks_of(meta)), lambda meta: (meta["n_rows"] * _blocks_of(meta),)
UNKNOWN = "launches of 1, 2, 3 and 7 programs do not make the same accesses"
FORMS = {
    "a loop by num_programs": Form(),
    "while": Form(),
    "while by a counter": Form(),
    "counted ahead": Form(),
    "blocks of a row": Form(),
    "online blocks": Form(result="logsumexp"),
    "a buffer with a row for each program": Form(more={"part": 37, "first": 0, "PLANES": 1, "num_programs": 37}),
    "tiles by num_programs": Form(more={"TILE": 4}),
    "blocks of all rows by num_programs": Form(),
    "a total by atomics": Form(result="total"),
    "a row": Form(ROWS, UNKNOWN),
    "a row, and programs without one": Form(ROWS, UNKNOWN),
    "a chunk of rows": Form((4,), UNKNOWN, {"part": 4, "per": 10}),
    "a constexpr step": Form((13,), UNKNOWN, {"TILE": 13}),
    "two axes": Form(BLOCKS, r"it reads tl.program_id\(1\)"),
    "a tile of rows": Form(TILES, UNKNOWN, {"TILE": 4}),
    "a share of the tiles, rounded down": Form(TILES, UNKNOWN, {"TILE": 32}),
    "another step for many rows": Form((13,), "program 13 stores to an element of y that program 0 stores to"),
    "at most ten rows for each program": Form(ROWS, "it goes over 37 rows otherwise than over 5"),
    "a number for each program": Form(ROWS, "each program stores to a part of y of its own", result="logsumexp"),
    "a flat number of blocks": Form(FLAT, UNKNOWN),
    "bounds that are loaded": Form((4,), UNKNOWN, {"order": (0, 9, 20, 30, 37)}),
    "a switch of forms": Form(ROWS, UNKNOWN, {"walks": 3}),
}  # fmt: skip


class Arguments(dict):
    """Arguments by name; `whole` are the tensors that y and part are the beginnings of, with guards behind."""


def arguments_of(name: str, rows: int, cols: int, where: Any, **more: Any) -> tuple[Arguments, torch.Tensor]:
    """Returns arguments of a form, and what y should be, on the CPU."""
    form, x = FORMS[name], torch.randn(rows, cols, generator=torch.Generator().manual_seed(rows))
    more, size = {**form.more, **more}, {"twice": (rows, cols), "logsumexp": (rows,), "total": (cols,)}[form.result]
    arguments = Arguments(more, x=x.to(where), n_rows=rows, n_cols=cols, FORM=name)
    arguments.whole = {"y": torch.full((size[0] + GUARD, *size[1:]), 0.0 if form.result == "total" else 7.0).to(where)}
    if "part" in more:
        arguments.whole["part"] = torch.full((more["part"] + GUARD, cols), 7.0).to(where)
    if "order" in more:
        arguments["order"] = torch.tensor(more["order"], dtype=torch.int32).to(where)
    arguments |= {key: whole.narrow(0, 0, len(whole) - GUARD) for key, whole in arguments.whole.items()}
    exact = {"twice": x * 2, "logsumexp": x.double().logsumexp(1).float(), "total": x.double().sum(0).float()}
    return arguments, exact[form.result]


def assert_right(arguments: Arguments, exact: torch.Tensor) -> None:
    """Compares what a launch has written, and looks behind it."""
    torch.testing.assert_close(arguments["y"].cpu(), exact, rtol=1e-5, atol=1e-5)
    for name, whole in arguments.whole.items():
        guard = 0.0 if FORMS[arguments["FORM"]].result == "total" else 7.0
        assert bool((whole.cpu()[-GUARD:] == guard).all()), f"{name} is written behind"
    if "part" in arguments:
        part = arguments["part"].cpu()
        written = part[(part != 7).any(1)]
        torch.testing.assert_close(written.sum(0), arguments["x"].cpu().sum(0), rtol=1e-4, atol=1e-4)
