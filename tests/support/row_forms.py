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
    """A kernel, its grid, the error of a plan without one, and values of further parameters."""

    kernel: Any
    grid: Any = None
    words: str = ""
    more: Any = MappingProxyType({})
    result: str = "twice"


@triton.jit
def _one(x, y, row, n_cols, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    at = tl.cast(row, tl.int64) * n_cols + c
    tl.store(y + at, tl.load(x + at, mask=c < n_cols, other=0.0) * 2, mask=c < n_cols)


@triton.jit
def walk_for(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        _one(x, y, row, n_cols, BLOCK)


@triton.jit
def walk_while(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    while row < n_rows:
        _one(x, y, row, n_cols, BLOCK)
        row += tl.num_programs(0)


@triton.jit
def walk_counted(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    turns = tl.cdiv(n_rows - pid, tl.num_programs(0))
    for i in range(turns):
        _one(x, y, pid + i * tl.num_programs(0), n_cols, BLOCK)


@triton.jit
def _all(x, y, first, last, step, n_cols, BLOCK: tl.constexpr):
    for row in range(first, last, step):
        _one(x, y, row, n_cols, BLOCK)


@triton.jit
def walk_helper(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    _all(x, y, tl.program_id(0), n_rows, tl.num_programs(0), n_cols, BLOCK)


@triton.jit
def walk_blocks(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64) * n_cols
        for start in range(0, n_cols, BLOCK):
            c = start + tl.arange(0, BLOCK)
            tl.store(y + at + c, tl.load(x + at + c, mask=c < n_cols, other=0.0) * 2, mask=c < n_cols)


@triton.jit
def walk_online(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64) * n_cols
        peak = tl.full((), float("-inf"), tl.float32)
        total = tl.zeros((), tl.float32)
        for start in range(0, n_cols, BLOCK):
            c = start + tl.arange(0, BLOCK)
            v = tl.load(x + at + c, mask=c < n_cols, other=float("-inf"))
            new = tl.maximum(peak, tl.max(v, 0))
            total = total * tl.exp(peak - new) + tl.sum(tl.exp(v - new), 0)
            peak = new
        tl.store(y + row, peak + tl.log(total))


@triton.jit
def walk_part(x, y, part, first, n_rows, n_cols, BLOCK: tl.constexpr, PLANES: tl.constexpr):
    c = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64) * n_cols + c
        v = tl.load(x + at, mask=c < n_cols, other=0.0)
        acc += v
        tl.store(y + at, v * 2, mask=c < n_cols)
    for plane in tl.static_range(PLANES):
        row = first + plane * tl.num_programs(0) + tl.program_id(0)
        tl.store(part + row * n_cols + c, acc * (1 - plane), mask=c < n_cols)


@triton.jit
def _tile(x, y, tile, n_rows, n_cols, BLOCK: tl.constexpr, TILE: tl.constexpr):
    c = tl.arange(0, BLOCK)
    r = tile * TILE + tl.arange(0, TILE)
    at = r[:, None].to(tl.int64) * n_cols + c[None, :]
    mask = (r < n_rows)[:, None] & (c < n_cols)[None, :]
    tl.store(y + at, tl.load(x + at, mask=mask, other=0.0) * 2, mask=mask)


@triton.jit
def walk_tile(x, y, n_rows, n_cols, BLOCK: tl.constexpr, TILE: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(n_rows, TILE), tl.num_programs(0)):
        _tile(x, y, tile, n_rows, n_cols, BLOCK, TILE)


@triton.jit
def _block(x, y, t, n_cols, BLOCK: tl.constexpr):
    n = tl.cdiv(n_cols, BLOCK)
    c = t % n * BLOCK + tl.arange(0, BLOCK)
    at = (t // n).to(tl.int64) * n_cols + c
    tl.store(y + at, tl.load(x + at, mask=c < n_cols, other=0.0) * 2, mask=c < n_cols)


@triton.jit
def walk_flat(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    for t in range(tl.program_id(0), n_rows * tl.cdiv(n_cols, BLOCK), tl.num_programs(0)):
        _block(x, y, t, n_cols, BLOCK)


@triton.jit
def other_row(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    _one(x, y, tl.program_id(0), n_cols, BLOCK)


@triton.jit
def other_row_guard(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    if tl.program_id(0) >= n_rows:
        return
    _one(x, y, tl.program_id(0), n_cols, BLOCK)


@triton.jit
def other_chunk(x, y, part, n_rows, n_cols, per, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for row in range(p * per, tl.minimum((p + 1) * per, n_rows)):
        v = tl.load(x + row * n_cols + c, mask=c < n_cols, other=0.0)
        acc += v
        tl.store(y + row * n_cols + c, v * 2, mask=c < n_cols)
    tl.store(part + p * n_cols + c, acc, mask=c < n_cols)


@triton.jit
def other_step(x, y, n_rows, n_cols, BLOCK: tl.constexpr, NUM: tl.constexpr):
    for row in tl.range(tl.program_id(0), n_rows, NUM):
        _one(x, y, row, n_cols, BLOCK)


@triton.jit
def other_grid2(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + row * n_cols + c, tl.load(x + row * n_cols + c, mask=c < n_cols, other=0.0) * 2, mask=c < n_cols)


@triton.jit
def other_tile(x, y, n_rows, n_cols, BLOCK: tl.constexpr, TILE: tl.constexpr):
    _tile(x, y, tl.program_id(0), n_rows, n_cols, BLOCK, TILE)


@triton.jit
def other_share(x, y, n_rows, n_cols, BLOCK: tl.constexpr, TILE: tl.constexpr):
    share = tl.maximum(tl.cdiv(n_rows, TILE) // tl.num_programs(0), 1)
    for i in range(share * TILE):
        row = tl.program_id(0) * share * TILE + i
        if row < n_rows:
            _one(x, y, row, n_cols, BLOCK)


@triton.jit
def other_many(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0), n_rows, tl.where(n_rows > 30, 13, tl.num_programs(0))):
        _one(x, y, row, n_cols, BLOCK)


@triton.jit
def other_number(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n_cols + c, mask=c < n_cols, other=float("-inf"))
    tl.store(y + tl.program_id(0), tl.log(tl.sum(tl.exp(v), 0)))


@triton.jit
def other_flat(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    _block(x, y, tl.program_id(0), n_cols, BLOCK)


@triton.jit
def other_alone(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    for row in range(n_rows):
        _one(x, y, row, n_cols, BLOCK)


@triton.jit
def other_loaded(x, y, order, n_rows, n_cols, BLOCK: tl.constexpr):
    first = tl.load(order + tl.program_id(0))
    for row in range(first, tl.load(order + tl.program_id(0) + 1)):
        _one(x, y, row, n_cols, BLOCK)


@triton.jit
def walk_total(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        total += tl.load(x + tl.cast(row, tl.int64) * n_cols + c, mask=c < n_cols, other=0.0)
    tl.atomic_add(y + c, total, mask=c < n_cols)


@triton.jit
def other_switch(x, y, n_rows, n_cols, walks, BLOCK: tl.constexpr):
    first, last, step = tl.program_id(0), tl.program_id(0) + 1, 1
    if (walks + 1) // 2 == 1:  # 2, and True
        last, step = n_rows, tl.num_programs(0)
    for row in range(first, last, step):
        _one(x, y, row, n_cols, BLOCK)


@triton.jit
def other_capped(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    p, n = tl.program_id(0), tl.num_programs(0)
    for row in range(p, tl.minimum(n_rows, p + 10 * n), n):
        _one(x, y, row, n_cols, BLOCK)


@triton.jit
def other_own(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    total = tl.zeros((), tl.float32)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        v = tl.load(x + row * n_cols + c, mask=c < n_cols, other=float("-inf"))
        total += tl.sum(tl.exp(v), 0)
    tl.store(y + tl.program_id(0), tl.log(total))


def _rows(meta):
    return (meta["n_rows"],)


def _two(meta):
    return meta["n_rows"], triton.cdiv(meta["n_cols"], meta["BLOCK"])


def _chunks(meta):
    return (triton.cdiv(meta["n_rows"], meta.get("per") or meta["TILE"]),)


def _blocks(meta):
    return (meta["n_rows"] * triton.cdiv(meta["n_cols"], meta["BLOCK"]),)


FORMS = {
    "a loop by num_programs": Form(walk_for),
    "while": Form(walk_while),
    "counted ahead": Form(walk_counted),
    "a loop in a helper": Form(walk_helper),
    "blocks of a row": Form(walk_blocks),
    "online blocks": Form(walk_online, result="logsumexp"),
    "a buffer with a row for each program": Form(walk_part, more={"part": 37, "first": 0, "PLANES": 1, "num_programs": 37}),
    "tiles by num_programs": Form(walk_tile, more={"TILE": 4}),
    "blocks of all rows by num_programs": Form(walk_flat),
    "a total by atomics": Form(walk_total, result="total"),
    "a row": Form(other_row, _rows, "which rows a program takes"),
    "a row, and programs without one": Form(other_row_guard, _rows, "which rows a program takes"),
    "a chunk of rows": Form(other_chunk, _chunks, "which rows a program takes", {"part": 4, "per": 10}),
    "a constexpr step": Form(other_step, (13,), "which rows a program takes", {"NUM": 13}),
    "two axes": Form(other_grid2, _two, r"it reads tl.program_id\(1\)"),
    "a tile of rows": Form(other_tile, _chunks, "which rows a program takes", {"TILE": 4}),
    "a share of the tiles, rounded down": Form(other_share, _chunks, "which rows a program takes", {"TILE": 32}),
    "another step for many rows": Form(other_many, (13,), "program 13 stores to an element of y that program 0 stores to"),
    "at most ten rows for each program": Form(other_capped, _rows, "it goes over 37 rows otherwise than over 5"),
    "a number for each program": Form(
        other_own, _rows, "each program stores to a part of y of its own; pass num_programs=", result="logsumexp"
    ),
    "a number of a row": Form(other_number, _rows, "which rows a program takes", result="logsumexp"),
    "a flat number of blocks": Form(other_flat, _blocks, "which rows a program takes"),
    "one program for all": Form(other_alone, (1,), "which rows a program takes"),
    "bounds that are loaded": Form(other_loaded, (4,), "which rows a program takes", {"order": (0, 9, 20, 30, 37)}),
    "a switch of forms": Form(other_switch, _rows, "which rows a program takes", {"walks": 3}),
}


class Arguments(dict):
    """Arguments by name; `whole` are the tensors that y and part are the beginnings of, with guards behind."""

    whole: dict[str, torch.Tensor]


def arguments_of(form: Form, rows: int, cols: int, where: Any) -> tuple[Arguments, torch.Tensor]:
    """Returns arguments, and what y should be, on the CPU."""
    x = torch.randn(rows, cols, generator=torch.Generator().manual_seed(rows))
    size = {"twice": (rows, cols), "logsumexp": (rows,), "total": (cols,)}[form.result]
    arguments = Arguments(x=x.to(where), n_rows=rows, n_cols=cols, **form.more)
    arguments.whole = {"y": torch.full((size[0] + GUARD, *size[1:]), 0.0 if form.result == "total" else 7.0).to(where)}
    arguments["y"] = arguments.whole["y"].narrow(0, 0, size[0])
    if "part" in form.more:
        arguments.whole["part"] = torch.full((form.more["part"] + GUARD, cols), 7.0).to(where)
        arguments["part"] = arguments.whole["part"].narrow(0, 0, form.more["part"])
    if "order" in form.more:
        arguments["order"] = torch.tensor(form.more["order"], dtype=torch.int32).to(where)
    exact = {"twice": x * 2, "logsumexp": x.double().logsumexp(1).float(), "total": x.double().sum(0).float()}
    return arguments, exact[form.result]


def assert_right(form: Form, arguments: Arguments, exact: torch.Tensor) -> None:
    """Compares what a launch has written, and looks behind it."""
    torch.testing.assert_close(arguments["y"].cpu(), exact, rtol=1e-5, atol=1e-5)
    for name, whole in arguments.whole.items():
        behind = whole.cpu()[len(arguments[name]) :]
        assert bool((behind == (0.0 if form.result == "total" else 7.0)).all()), f"{name} is written behind"
    if "part" in arguments:
        part = arguments["part"].cpu()
        written = part[(part != 7).any(1)]
        torch.testing.assert_close(written.sum(0), arguments["x"].cpu().sum(0), rtol=1e-4, atol=1e-4)
