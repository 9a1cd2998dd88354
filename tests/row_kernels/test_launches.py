"""Launches of row kernels on the device that is here; kernels of all forms are launched right, or refused ahead of it."""

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import row_kernels
import torch
import triton
import triton.language as tl
from row_forms import FORMS, arguments_of, assert_right, rows_in
from row_kernels import RMS, adding, fresh, one_row, scaled

from portable_softmax import PlanError, launcher, softmax
from portable_softmax.runtime.compile import triton_version

NAMES = {"rows": "n_rows", "cols": "n_cols", "block": "BLOCK"}


@pytest.mark.kernel
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("rows", "cols"), [(37, 50), (37, 3000)])
def test_launched_right_or_refused(where, name, rows, cols):
    form, run = FORMS[name], launcher(rows_in, **NAMES)
    arguments, exact = arguments_of(name, rows, cols, where)
    before = {key: value.clone() for key, value in arguments.items() if hasattr(value, "clone")}
    if form.words and where.type != "cpu":  # the interpreter, which refuses nothing
        with pytest.raises(PlanError, match=form.words):
            run(**arguments)
        assert all(torch.equal(arguments[key], value) for key, value in before.items())
    run(**arguments, **({"grid": form.grid} if form.grid else {}))
    assert_right(arguments, exact)


@pytest.mark.parametrize(("name", "device"), list(zip(FORMS, itertools.cycle(["nvidia/t4", "amd/mi300x"]), strict=False)))
def test_planned_or_refused_for_a_device_that_is_not_here(name, device):
    form, run = FORMS[name], launcher(rows_in, **NAMES)
    arguments, _ = arguments_of(name, 37, 3000, "meta", num_warps=4)  # of other numbers test_launcher.py has plans
    if form.grid is None:
        plan = run.plan(**arguments, device=device)
        assert plan.num_programs == triton.cdiv(37, form.more.get("TILE", 1))
        (choice,) = run._choices.values()
        assert choice.form.in_blocks == (name in ("blocks of a row", "online blocks"))
        assert set(choice.form.parts) == {"part"}.intersection(arguments)
        return
    with pytest.raises(PlanError, match=form.words):
        run.plan(**arguments, device=device)
    assert run.plan(**arguments, device=device, grid=form.grid).num_programs > 0


def test_a_switch_is_part_of_what_a_launch_is_known_by():
    """A number that is no size decides whether programs loop over rows."""
    if triton_version() < (3, 6):
        pytest.skip("Triton up to 3.5 does not compile a step that comes from a branch: Assertion `idx < size()' failed")
    arguments, _ = arguments_of("a switch of forms", 37, 50, "meta")
    run = launcher(rows_in, **NAMES)
    for yes, no in ((2, 3), (True, False)):
        assert run.plan(**arguments | {"walks": yes}, device="nvidia/t4").num_programs == 37
        with pytest.raises(PlanError, match=FORMS["a switch of forms"].words):
            run.plan(**arguments | {"walks": no}, device="nvidia/t4")


def test_blocks_are_those_of_the_grid_that_a_call_passes():
    """A function, or a method, of the same code that does not count blocks needs whole rows."""
    arguments, _ = arguments_of("two axes", 2, 3000, "meta")
    arguments |= {"x": "*fp32:16", "y": "*fp32:16"}

    class Counting(tuple):
        def grid(self, meta):
            return meta["n_rows"], triton.cdiv(meta["n_cols"], meta["BLOCK"]) if self[0] else 1

    run = launcher(rows_in, **NAMES)
    for counts, expected in ((True, 1024), (False, 4096), (True, 1024)):
        for grid in (lambda meta, counts=([counts],): Counting(counts[0]).grid(meta), Counting([counts]).grid):
            assert run.plan(**arguments, device="nvidia/t4", grid=grid).meta["BLOCK"] == expected
    run = launcher(rows_in, cols="n_cols", block="BLOCK", grid=lambda meta: Counting([meta["n_rows"] > 5]).grid(meta))
    for n_rows, expected in ((6, 1024), (5, 4096), (7, 1024)):  # numbers of one class
        assert run.plan(**arguments | {"n_rows": n_rows}, device="nvidia/t4").meta["BLOCK"] == expected


@pytest.mark.parametrize(("first", "planes"), [(0, 1), (4, 1), (0, 2)])
def test_no_more_programs_than_a_buffer_has_rows(first, planes):
    more = {"part": first + 3 * planes, "first": first, "PLANES": planes, "num_warps": 4, "num_programs": 3}
    arguments, _ = arguments_of("a buffer with a row for each program", 37, 50, "meta", **more)
    run = partial(launcher(rows_in, **NAMES).plan, device="nvidia/t4")
    assert run(**arguments).num_programs == 3
    smaller = arguments | {"part": arguments["part"][:-1]}
    for operands, words in (
        (arguments | {"num_programs": None}, "each program stores to a part of part of its own; pass num_programs="),
        (arguments | {"num_programs": 4}, "a store to part reaches element .*; part has no part for each of num_programs=4"),
        (smaller, "a store to part reaches element"),
    ):
        with pytest.raises(PlanError, match=words):
            run(**operands)


@triton.jit
def narrow(x, y, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    while row < n_rows:
        at = row * n_cols + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at) * 2)
        row += tl.num_programs(0)


def test_offsets_of_32_bits_cause_a_warning():
    def warnings(kernel, rows, **more):
        x = torch.empty(rows, 4096, dtype=torch.bfloat16, device="meta")
        return launcher(kernel, **NAMES).plan(x, x, rows, 4096, device="nvidia/h200", num_warps=8, **more).warnings

    axes = {"FORM": "two axes", "grid": FORMS["two axes"].grid}
    words = r"the offset of a load of x reaches 4,915,195,904 in 32 bits \(row_forms.py:\d+\); cast .* to tl.int64"
    assert [bool(re.fullmatch(words, text)) for text in warnings(rows_in, 1_200_000, **axes)] == [True]
    assert not warnings(rows_in, 400_000, **axes)
    assert not warnings(rows_in, 1_200_000, FORM="a loop by num_programs")
    assert "reaches 4,915,199,999 in 32 bits" in warnings(narrow, 1_200_000, BLOCK=4096)[0]  # it has no mask


@pytest.mark.kernel
@pytest.mark.parametrize("case", row_kernels.CASES)
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 40), (33, 1000), (5, 1040), (3, 5000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_right_on_the_device_here(where, case, rows, cols, dtype):
    run, arguments, options, exact = case(rows, cols, dtype)
    placed = [argument.to(where) if hasattr(argument, "to") else argument for argument in arguments]
    run(*placed, **options)
    row_kernels.assert_right(case, placed, exact)


@pytest.mark.kernel
@pytest.mark.accelerator
def test_the_first_call_may_be_captured(where):
    x = torch.randn(64, 1000, device=where)
    w, y = torch.rand(1000, device=where), torch.empty_like(x)
    run, graph = fresh(), torch.cuda.CUDAGraph()
    RMS.forward(x, w, y, 64, 1000, 1e-6)  # loads the code
    expected = y.clone()
    y.zero_()
    with torch.cuda.graph(graph):
        run(x, w, y, 64, 1000, 1e-6)
    graph.replay()
    assert torch.equal(y, expected)


@pytest.mark.kernel
def test_a_call_wins_over_its_launcher(where):
    run, x = fresh(one_row, grid=(1,)), torch.ones(3, 4, device=where)
    none, two, all_rows = {"grid": None}, {"grid": [2]}, {"grid": lambda meta: (meta["n_rows"],)}
    for options, expected in (({}, 1), (two, 2), (all_rows, 3), (none, 1), ({}, 1), (none | {"num_programs": None}, 1)):
        y = torch.zeros_like(x)
        run(n_rows=3, n_cols=4, y=y, x=x, **options)
        assert int((y == 3).all(1).sum()) == expected
    assert scaled(x, y[:0], 0, n_cols=4, SCALE=2) is None


@pytest.mark.kernel
def test_launches_are_kept_by_the_values_of_a_grid(where):
    """A function that a call passes is another one in every call; one of a launcher without rows determines their number."""
    x, run, counts = torch.ones(8, 4, device=where), launcher(one_row, cols="n_cols", block="BLOCK"), []
    sized = launcher(one_row, cols="n_cols", block="BLOCK", grid=lambda meta: (meta["x"].shape[0],))
    for rows in (3, 5, 3, 5):
        for launch, options in ((run, {"grid": lambda meta, rows=rows: (rows or unset,)}), (sized, {})):
            y = torch.zeros_like(x)
            launch(x[:rows], y, 8, 4, **options)
            assert int((y == 3).all(1).sum()) == rows
        counts.append((len(run._calls), len(sized._calls)))
    assert counts[0] < counts[1] == counts[2] == counts[3] or where.type == "cpu"  # the interpreter's are not kept
    unset = 5
    fewer, y = launcher(one_row, cols="n_cols", block="BLOCK", grid=lambda meta: (meta["n_rows"] - unset,)), torch.zeros_like(x)
    assert [(fewer(x, y, rows, 4) and None) or int((y == 3).all(1).sum()) for rows in (5, 6)] == [0, 1]


@triton.jit
def oddly(type, repr, device, num_programs, n_rows, n_cols, scale, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        mask = (at < n_cols) & (row < n_rows)
        value = tl.load(type + row * n_cols + at, mask=mask) * scale * device * num_programs
        tl.store(repr + row * n_cols + at, value, mask=mask)


@triton.jit
def reserved(x, grid, n_rows, n_cols, BLOCK: tl.constexpr):
    pass


@pytest.mark.kernel
def test_parameters_of_any_name(where):
    x = torch.ones(8, 1, device=where)
    y = torch.zeros_like(x)
    fresh(oddly)(type=x, repr=y, device=2, num_programs=3, n_rows=8, n_cols=1, scale=2.0, num_warps=4)
    assert (y == 12).all()
    with pytest.raises(TypeError, match="Triton's launch has a grid of its own; rename the parameter"):
        fresh(reserved)


@pytest.mark.kernel
def test_launches_in_threads_beside_softmax(where):
    run, x = fresh(adding), torch.rand(7, 40, device=where)

    def is_right(factor):
        y = torch.zeros_like(x)
        run(x, y, 7, 40, 0, F=factor)
        torch.testing.assert_close(softmax(x * factor), torch.softmax(x * factor, -1))
        return torch.equal(y, x * factor)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(is_right, range(1, 13)))


@triton.heuristics({"TILE": lambda arguments: 4})
@triton.jit
def tiled(x, y, n_rows, n_cols, TILE: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None], tl.arange(0, BLOCK)[None, :]
    mask = (row < n_rows) & (at < n_cols)
    tl.store(y + row * n_cols + at, tl.load(x + row * n_cols + at, mask=mask) * 2, mask=mask)


@triton.jit
def flat(x, y, n_cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n_cols) * 2, mask=at < n_cols)


@triton.jit
def warped(x, y, n_cols, BLOCK: tl.constexpr, num_warps: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n_cols + at, mask=at < n_cols) * num_warps
    tl.store(y + row * n_cols + at, value / num_warps * 2, mask=at < n_cols)


AS_IN_TRITON = {
    "a heuristic": (tiled, (9, 28), lambda meta: (triton.cdiv(meta["n_rows"], meta["TILE"]),)),
    "blocks of configurations": (flat, (252,), lambda meta: (triton.cdiv(meta["n_cols"], meta["BLOCK"]),)),
    "warps that the kernel reads": (warped, (28,), (9,)),
}


@pytest.mark.kernel
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", AS_IN_TRITON)
def test_grids_are_those_of_triton(where, name):
    kernel, sizes, grid = AS_IN_TRITON[name]
    if kernel is flat:  # some releases read the driver here
        kernel = triton.autotune([triton.Config({"BLOCK": block}) for block in (64, 128)], key=["n_cols"])(flat)
    x = torch.rand(9, 28, device=where)
    run, y = launcher(kernel, cols="n_cols", block="BLOCK", grid=grid), torch.full_like(x, torch.nan)
    run(x, y, *sizes)
    torch.testing.assert_close(y, x * 2)
    with pytest.raises(TypeError):
        run(x, y, *sizes[:-1])


@pytest.mark.kernel
def test_constants_that_compare_equal_are_launches_of_their_own(where):
    run = fresh(adding)
    x, y = torch.full((2, 4), 100, dtype=torch.int8, device=where), torch.empty(2, 4, dtype=torch.int32, device=where)
    for factor in (2, 2.0, True, 1, 2):
        run(x, y, 2, 4, 0, F=factor)
        expected = torch.empty_like(y)
        fresh(adding)(x, expected, 2, 4, 0, F=factor)
        assert torch.equal(y, expected)
        assert type(run.plan(x, y, 2, 4, 0, F=factor).meta["F"]) is type(factor)
