"""Accesses of launches, compared with each other and with the sizes of tensors: what is refused, warned of, or right."""

import itertools

import pytest
import torch
import triton
import triton.language as tl
from row_forms import one_row, rows_in

from portable_softmax import Device, PlanError, launcher
from portable_softmax.row_kernels import addresses
from portable_softmax.row_kernels.buckets import plan_by_bucket
from portable_softmax.runtime.compile import triton_version

NAMES = {"rows": "n_rows", "cols": "n_cols", "block": "BLOCK"}


@triton.jit
def described(y, n_rows, n_cols, BLOCK: tl.constexpr):
    return tl.make_tensor_descriptor(y, [n_rows, n_cols], [n_cols, 1], [1, BLOCK])


@triton.jit
def walk(x, y, n_rows, n_cols, MORE: tl.constexpr, FORM: tl.constexpr, BLOCK: tl.constexpr):  # noqa: PLR0915
    c = tl.arange(0, BLOCK)
    mask = c < n_cols + MORE
    total, turn = tl.zeros((BLOCK,), tl.float32), 0
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        at = row * n_cols + c
        v = tl.load(x + at, mask=mask, other=0.0)
        if FORM == "plain":
            tl.store(y + at, v, mask=mask)
        elif FORM == "a sum in memory":
            tl.store(y + c, tl.load(y + c, mask=mask) + v, mask=mask)
        elif FORM == "a sum by block pointers":
            block = tl.make_block_ptr(y, (n_cols,), (1,), (0,), (BLOCK,), (0,))
            tl.store(block, tl.load(block, boundary_check=(0,)) + v, boundary_check=(0,))
        elif FORM == "rows by block pointers":
            block = tl.make_block_ptr(y + row * n_cols, (n_cols,), (1,), (0,), (BLOCK,), (0,))
            tl.store(block, v, boundary_check=(0,))
        elif FORM == "rows by descriptors":
            described(y, n_rows, n_cols, BLOCK).store([row, 0], v[None, :])
        elif FORM == "a row of all by descriptors":
            described(y, n_rows, n_cols, BLOCK).store([0, 0], v[None, :])
        elif FORM == "a running sum by descriptors":
            described(y, n_rows, n_cols, BLOCK).store([row, 0], (total + v)[None, :])
        elif FORM == "rows that overlap":
            tl.store(y + row * (n_cols - 2) + c, v, mask=mask)
        elif FORM == "a running sum":
            tl.store(y + at, total + v, mask=mask)
        elif FORM == "the number of the turn":
            tl.store(y + at, v * turn, mask=mask)
        elif FORM == "seven rows above":
            tl.store(y + at, v + tl.load(y + at - 7 * n_cols, mask=mask & (row > 6), other=0.0), mask=mask)
        elif FORM == "a row and one more":
            tl.store(y + at, v + tl.load(y + at, mask=c < n_cols + 1, other=0.0), mask=mask)
        elif FORM == "a ring of rows":
            tl.store(y + row % 512 * n_cols + c, v, mask=mask)
        elif FORM == "elements by their values":
            tl.store(y + at, v, mask=mask & (v > 0))
        elif FORM == "a sum that is set":
            if row == 0:
                tl.store(y, 0.0)
            tl.atomic_add(y, tl.sum(v, 0))
        elif FORM == "a sum that is read":
            tl.atomic_add(y, tl.sum(v, 0))
            tl.store(x + at, v / tl.load(y), mask=mask)
        elif FORM == "a mask by a sum":
            tl.store(y + at, v, mask=mask & (total < 1))
        elif FORM == "turns by a sum":
            for i in range(tl.cast(tl.sum(total, 0), tl.int32)):
                tl.store(y + at, v + i, mask=mask)
        elif FORM == "an atomic operation on a sum":
            tl.atomic_add(y + c, total + v, mask=mask)
        elif FORM == "a branch by a sum":
            if tl.sum(total, 0) < 1:
                tl.store(y + at, v, mask=mask)
        elif FORM == "two results":
            if row % 2 == 0:
                tl.store(y + at, v, mask=mask)
            else:
                tl.store(x + at, v, mask=mask)
        elif FORM == "in place":
            tl.store(y + at, v + tl.load(y + at, mask=mask), mask=mask)
        total += v
        turn = turn + 1
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        if FORM == "in place":
            tl.store(y + row * n_cols + c, tl.load(y + row * n_cols + c, mask=mask) * 2, mask=mask)


@triton.jit
def share(x, y, n_rows, n_cols, FORM: tl.constexpr, MULTIPLE: tl.constexpr, BLOCK: tl.constexpr):
    """Other rows of a program than one in num_programs."""
    c, p, n = tl.arange(0, BLOCK), tl.program_id(0), tl.num_programs(0)
    per = tl.cdiv(tl.cdiv(n_rows, n), MULTIPLE) * MULTIPLE
    if FORM == "opposite":
        for row in range(n - 1 - p, n_rows, n):
            one_row(x, y, row, n_cols, BLOCK)
    elif FORM == "loaded ahead" or FORM == "loaded ahead, in place":
        to = x if FORM == "loaded ahead, in place" else y
        v = tl.load(x + p * n_cols + c, mask=(c < n_cols) & (p < n_rows))
        for row in range(p, n_rows, n):
            following = tl.load(x + (row + n) * n_cols + c, mask=(c < n_cols) & (row + n < n_rows))
            tl.store(to + row * n_cols + c, v * 2, mask=c < n_cols)
            v = following
    elif FORM == "a share by division":
        for row in range(p * n_rows // n, (p + 1) * n_rows // n):
            one_row(x, y, row, n_cols, BLOCK)
    elif FORM == "rows from the ninth on":
        for row in range(p, n_rows, n):
            if row > 7:
                one_row(x, y, row, n_cols, BLOCK)
    elif FORM == "pairs without a mask":
        for row in range(2 * p, n_rows, 2 * n):
            one_row(x, y, row, n_cols, BLOCK)
            one_row(x, y, row + 1, n_cols, BLOCK)
    elif FORM == "a chunk":
        for row in range(p * per, tl.minimum(p * per + per, n_rows)):
            one_row(x, y, row, n_cols, BLOCK)
    elif FORM == "a chunk with a branch":
        for i in range(per):
            if p * per + i < n_rows:
                one_row(x, y, p * per + i, n_cols, BLOCK)
    elif FORM == "a chunk with a mask":
        for i in range(per):
            mask, at = (c < n_cols) & (p * per + i < n_rows), (p * per + i) * n_cols + c
            tl.store(y + at, tl.load(x + at, mask=mask), mask=mask)


@triton.jit
def one(x, y, table, stride, n_rows, n_cols, FORM: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    if FORM == "two planes":
        for plane in tl.static_range(2):
            one_row(x, y, plane * n_rows + tl.program_id(0), n_cols, BLOCK)
    elif FORM == "a matrix":
        at = (tl.program_id(0) * n_cols + tl.arange(0, 16)[:, None]) * n_cols + c[None, :]
        mask = (tl.arange(0, 16)[:, None] < n_cols) & (c[None, :] < n_cols)
        tl.store(y + at, tl.load(x + at, mask=mask), mask=mask)
    elif FORM == "a number of each block":
        c += tl.program_id(1) * BLOCK
        v = tl.load(x + tl.program_id(0) * n_cols + c, mask=c < n_cols, other=0.0)
        tl.store(y + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.sum(v, 0))
    else:
        at = tl.program_id(0) * stride + c
        v = tl.load(x + at, mask=c < n_cols, other=0.0) + tl.sum(tl.load(table + tl.arange(0, 256)), 0)
        tl.store(y + at, v, mask=c < n_cols)


def plan(kernel, rows, cols, device="nvidia/t4", x=None, y=None, **more):
    tensors = {"x": torch.empty(x or (rows, cols), device="meta"), "y": torch.empty(y or x or (rows, cols), device="meta")}
    run = launcher(kernel, **NAMES)
    if "block pointers" in more.get("FORM", "") and triton_version() >= (3, 9):
        pytest.skip("Triton 3.9 has no block pointers")
    if "descriptor" in more.get("FORM", ""):
        device = "nvidia/h200"  # for others Triton makes pointers of them
        if triton_version() < (3, 4):
            pytest.skip("kernels make descriptors from Triton 3.4 on")
    return run.plan(**tensors, n_rows=rows, n_cols=cols, num_warps=4, device=device, **more)


STORED = "program 1 stores to an element of y that program 0 stores to"
CARRIED = "what it stores to y depends on other rows of its program"
WALKS = {
    "a sum in memory": STORED,
    "a sum by block pointers": STORED,
    "a row of all by descriptors": STORED,
    "rows that overlap": STORED,
    "a running sum": CARRIED,
    "a running sum by descriptors": CARRIED,
    "the number of the turn": CARRIED,
    "a mask by a sum": CARRIED,
    "turns by a sum": CARRIED,
    "an atomic operation on a sum": CARRIED,
    "a branch by a sum": CARRIED,
    "a ring of rows": "program 512 stores to an element of y that program 0 stores to",
    "seven rows above": "program 7 loads an element of y that program 0 stores to",
    "a row and one more": "program 0 loads an element of y that program 1 stores to",
    "a sum that is set": "program 1 updates an element of y that program 0 stores to",
    "a sum that is read": r"program 0 loads an element of y that program \d updates",
}


@pytest.mark.parametrize(("form", "device"), list(zip(WALKS, itertools.cycle(["nvidia/t4", "amd/mi300x"]), strict=False)))
def test_programs_of_a_walk_share_nothing(form, device):
    with pytest.raises(PlanError, match=WALKS[form] + r".* \(test_addresses.py:\d\d\)"):
        plan(walk, 1300, 100, device, MORE=0, FORM=form)


BY = "rows by block pointers", "rows by descriptors"


@pytest.mark.parametrize("form", ["in place", "elements by their values", "two results", *BY])
def test_programs_of_a_walk_that_share_nothing(form):
    assert 1 < plan(walk, 1300, 100, MORE=0, FORM=form).num_programs <= 1300


CHUNKS = "a chunk", "a chunk with a branch", "a chunk with a mask"


@pytest.mark.parametrize("form", ["opposite", "loaded ahead", "loaded ahead, in place", "a share by division", *CHUNKS])
def test_any_share_of_the_rows(form):
    """Of as many programs as rows, or as are resident; chunks are of a multiple of 8 rows."""
    for rows in (1, 37, 1300):
        assert 1 <= plan(share, rows, 100, FORM=form, MULTIPLE=8).num_programs <= rows


@pytest.mark.parametrize("more", [0, 1, 28, 1000])
def test_masks_hide_what_is_behind_a_row(more):
    """Of a block of 128 elements and a row of 100."""
    if not more:
        assert plan(walk, 6, 100, MORE=0, FORM="plain").warnings == plan(walk, 6, 128, MORE=1000, FORM="plain").warnings == ()
        return
    with pytest.raises(PlanError, match="rows overlap: a mask"):
        plan(walk, 6, 100, MORE=more, FORM="plain")
    with pytest.raises(PlanError, match="element 100, and y has 100" if more == 1 else "no mask of a load of x"):
        plan(walk, 1, 100, MORE=more, FORM="plain", grid=(1,))


def of_rows(meta):
    return (meta["n_rows"],)


def of_blocks(meta):
    return meta["n_rows"], triton.cdiv(meta["n_cols"], meta["BLOCK"])


OUTSIDE = {  # rows, columns and what else is passed; words of the error, or of the warning
    "a stride of y": ((5, 300), {"stride": 320, "x": (5, 320), "y": (5, 300)}, "element 1,579, and y has 1,500", ""),
    "a stride of x": ((5, 300), {"stride": 320, "y": (5, 320)}, "", "load of x reaches element 1,579, and x has 1,500"),
    "more rows": ((65, 512), {"x": (64, 512)}, "store to y reaches element 33,279, and y has 32,768", ""),
    "more columns": ((64, 600), {"x": (64, 512)}, "store to y reaches element 38,399, and y has 32,768", ""),
    "a short table": ((6, 100), {"table": 128}, "", "load of table reaches element 255, and table has 128"),
    "a table that is loaded whole": ((6, 100), {}, "", ""),
    "numbers of blocks": (
        (64, 50000), {"FORM": "a number of each block", "grid": of_blocks, "y": (64, 1)},
        "a store to y reaches element .*; pass BLOCK=, which is .* here", "",
    ),
    "numbers of blocks, with room": ((64, 50000), {"FORM": "a number of each block", "grid": of_blocks, "y": (64, 49)}, "", ""),
    "a short block": ((64, 5120), {"BLOCK": 1024}, "", "leaves elements of a row of 5120 elements out"),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_accesses_are_compared_with_the_sizes_of_tensors(name):
    (rows, cols), more, error, warning = OUTSIDE[name]
    more = {"grid": of_rows, "FORM": "", "stride": cols} | more
    more["table"] = torch.empty(more.get("table", 256), device="meta")
    if error:
        with pytest.raises(PlanError, match=error):
            plan(one, rows, cols, **more)
    else:
        assert [warning in text for text in plan(one, rows, cols, **more).warnings] == ([True] if warning else [])


def test_the_last_turn_of_a_loop_counts_too():
    assert [plan(share, rows, 100, FORM="rows from the ninth on", MULTIPLE=1).num_programs for rows in (5, 37)] == [1, 37]
    with pytest.raises(PlanError, match="it goes over 37 rows otherwise than over 5"):
        plan(rows_in, 37, 50, FORM="another step for many rows", num_programs=38)
    blocks = {"FORM": "blocks of a row", "BLOCK": 1024}
    assert plan(rows_in, 37, 5000, **blocks).warnings == ()
    few = {"num_programs": 16}  # the last of which does not take the last row
    for kernel, more in ((rows_in, blocks), (rows_in, blocks | few), (walk, few | {"MORE": 0, "FORM": "plain", "BLOCK": 8192})):
        with pytest.raises(PlanError, match="a store to y reaches element"):
            plan(kernel, 37, 5000, x=(36, 5000), **more)
    with pytest.raises(PlanError, match="a store to y reaches element"):
        plan(rows_in, 37, 50, x=(36, 50), FORM="tiles by num_programs")


@triton.jit
def guarded(x, y, n_rows: tl.constexpr, n_cols, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    if tl.program_id(0) < PROGRAMS:
        for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
            one_row(x, y, row, n_cols, BLOCK)


@pytest.mark.parametrize("rows", [37, 1300])
def test_the_number_of_rows_may_be_a_constexpr(rows):
    assert 17 < plan(guarded, rows, 100, PROGRAMS=rows).num_programs <= rows
    with pytest.raises(PlanError, match=f"it goes over {rows:,} rows otherwise than over 5"):
        plan(guarded, rows, 100, PROGRAMS=17)


@pytest.mark.parametrize(("form", "rows", "cols", "x"), [("two planes", 5, 7, (2, 5, 7)), ("a matrix", 9, 13, (9, 13, 13))])
def test_no_grid_is_claimed_to_be_right(form, rows, cols, x):
    words = r"such as grid=lambda meta: \(meta\['n_rows'\],\) if a program takes one row"
    with pytest.raises(PlanError, match=words):
        plan(one, rows, cols, x=x, table=x and torch.empty(256, device="meta"), stride=1, FORM=form)


def test_plans_of_a_range_of_rows(monkeypatch):
    """From the second number of rows on nothing is traced, unless accesses grow in steps, or tensors or numbers differ."""
    device, ranges = Device.from_profile("nvidia/t4"), {}
    runs = {kernel: launcher(kernel, **NAMES, grid=grid) for kernel, grid in ((share, None), (one, of_rows))}
    stride = {"kernel": one, "FORM": "", "stride": 100, "table": torch.empty(257, device="meta")}

    def num_programs(rows, of_y=None, kernel=share, FORM="a chunk", **more):
        more = more or {"MULTIPLE": 1}
        tensors = {"x": torch.empty(rows, 100, device="meta"), "y": torch.empty(of_y or rows, 100, device="meta")}
        request = runs[kernel].request(**tensors, n_rows=rows, n_cols=100, FORM=FORM, **more)
        return plan_by_bucket(ranges, request, runs[kernel]._choice(request, device)).num_programs

    assert [num_programs(70, **more) for more in ({}, stride)] == [70, 70]
    with monkeypatch.context() as patch:
        patch.delattr(addresses, "corners")
        assert [num_programs(rows, **more) for rows in (64, 71, 95) for more in ({}, stride)] == [64, 64, 71, 71, 95, 95]
    with pytest.raises(PlanError, match="a store to y reaches element 7,999, and y has 7,900"):
        num_programs(80, 79)
    with pytest.raises(PlanError, match="a store to y reaches element 16,099, and y has 8,100"):
        num_programs(81, **stride | {"stride": 200})
    assert [num_programs(rows, FORM="pairs without a mask") for rows in (70, 72, 74)] == [35, 36, 37]
    with pytest.raises(PlanError, match="a store to y reaches element 7,199, and y has 7,100"):
        num_programs(71, FORM="pairs without a mask")
