"""Launches of the kernels with a tiling that a test chooses, compared with float64."""

from dataclasses import replace

import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale, terms_of
from offline import read_widely

from portable_softmax.planning.lines import lines_of
from portable_softmax.runtime import launch as runtime
from portable_softmax.runtime.guard import guard_of, launch_on
from portable_softmax.runtime.prepared import prepare

GUARD = 7.0  # around results
INF, NAN = float("inf"), float("nan")


def problem_of(operands, form, backward, vector=1, unaligned=False):
    """Returns the problem of rows of one type; the strides of all operands must be multiples of `vector`."""
    lines = lines_of(operands[0].shape, 1, [each.stride() for each in operands], True)
    problem = runtime.problem_from(operands, lines, form, backward, False)
    return replace(problem, vector=vector, unaligned=unaligned)


def problem_across(operands, form, backward):
    """Returns the problem of [matrices, columns, rows], with the softmax along the columns."""
    lines = lines_of(operands[0].shape, 1, [each.stride() for each in operands], True)
    return runtime.problem_from(operands, lines, form, backward, False)


def launching(device, prepared=prepare):
    """Returns `launch(operands, problem, tiling, programs)`, which `forward` and `backward` take as `run`."""

    def launch(operands, problem, tiling, num_programs):
        sizes, where = runtime.sizes_of(problem), operands[0].device
        runtime.bind_tiling(problem, tiling, num_programs, sizes, device, where, prepared)(*operands)

    return launch


def launch(device, operands, problem, tiling, num_programs):
    launching(device)(operands, problem, tiling, num_programs)


def planned(device, operands, form="softmax", backward=False, dim=1):
    """Plans and launches the softmax of (y, x), or the gradient of (dx, dy, y)."""
    lines = lines_of(operands[0].shape, dim, [each.stride() for each in operands], device.vendor.scattered_rows)
    problem, where = runtime.problem_from(operands, lines, form, backward, False), operands[0].device
    launch_on(guard_of(device), runtime.bind_problem(problem, device, where), *operands)


def rows_in(n_rows, n_cols, stride, dtype, where, outside, seed=0):
    """Returns (random rows `stride` apart, all of the memory), with `outside` ahead of, between and behind the rows."""
    memory = torch.full((32 + n_rows * stride + 32,), outside, dtype=dtype, device=where)
    rows = memory[32:].as_strided((n_rows, n_cols), (stride, 1))
    rows.copy_(torch.randn(n_rows, n_cols, generator=torch.Generator().manual_seed(seed)))
    return rows, memory


def result_in(n_rows, n_cols, stride, dtype, where):
    """Returns (rows to write to, check), with guards around the rows."""
    rows, memory = rows_in(n_rows, n_cols, stride, dtype, where, GUARD)
    rows.fill_(-3.0)  # no softmax and none of these gradients has this value

    def assert_guards():
        outside = torch.ones_like(memory, dtype=torch.bool)
        outside[32:].as_strided(rows.shape, rows.stride()).fill_(False)
        assert (memory[outside] == GUARD).all(), "something was written outside of the rows"

    return rows, assert_guards


def close(result, inputs, form, dim=-1):
    """Compares the result of (x,), or of (dy, y), with float64, and returns it."""
    if len(inputs) > 1:
        assert_close(result, expected_gradient(form, *inputs, dim=dim), gradient_scale(form, *inputs, dim=dim))
    else:
        assert_close(result, expected(form, inputs[0], dim), terms_of(form))
    return result


def _along(backward_too, run, form, dtype, where, n_cols, tiling, programs, vector=1, stride=None, n_rows=5, special=None):
    """Compares the result of run(operands, problem, tiling, programs) with float64, and returns it.

    `stride` is for unaligned rows. One row of x is half masked and far from 0, one is all masked, one has a nan, and one has an
    inf; one of dy has a nan; or `special` fills the rows.
    """
    width = stride or n_cols
    given = [rows_in(n_rows, n_cols, width, dtype, where, NAN, n_cols + at)[0] for at in range(1 + backward_too)]
    (special or (one_nan if backward_too else masked_and_not_finite))(given[0])
    result, assert_guards = result_in(n_rows, n_cols, width, dtype, where)
    run((result, *given), problem_of((result, *given), form, backward_too, vector, stride is not None), tiling, programs)
    assert_guards()
    return close(result, given, form)


def forward(run, *given, **named):
    """Compares a softmax as `_along` says."""
    return _along(False, run, *given, **named)


def backward(run, *given, **named):
    """Compares a gradient as `_along` says."""
    return _along(True, run, *given, **named)


def masked_and_not_finite(x):
    n_cols = x.shape[1]
    x[0] -= 200
    x[0, : n_cols * 2 // 3], x[1, n_cols // 2] = -INF, NAN
    x[2:3], x[3:4, -1] = -INF, INF


def one_nan(dy):
    dy[1, dy.shape[1] // 2] = NAN


def as_they_are(x):
    """Random rows without special values."""


def beside(direction, device, run, form, dtype, where, sizes, tiling, programs, special=None):
    """Does the same as `forward` and `backward` for [matrices, columns, rows].

    `programs` is the number of programs that walk.
    """
    matrices, n_cols, n_side = sizes

    def tensor(seed=None):
        """(tensor, all of its memory), with guards around and between its lines."""
        width = -(-n_side // 8) * 8 + 8
        memory = torch.full((matrices, n_cols, width), GUARD if seed is None else NAN, dtype=dtype, device=where)
        x = memory[..., :n_side]
        if seed is not None:
            rows = torch.randn(matrices * n_side, n_cols, generator=torch.Generator().manual_seed(seed))
            if seed == n_cols:
                (special or (one_nan if backward_too else masked_and_not_finite))(rows)
            x.copy_(rows.view(matrices, n_side, n_cols).transpose(1, 2))
        return x, memory

    backward_too = direction is backward
    inputs = [tensor(n_cols + at)[0] for at in range(1 + backward_too)]
    result, memory = tensor()
    result.fill_(-3.0)
    operands = result, *inputs
    problem = read_widely(problem_across(operands, form, backward_too), device)
    run(operands, problem, tiling, programs if tiling.walk else problem.tiles(tiling.tile_rows) * tiling.splits)
    outside = torch.ones_like(memory, dtype=torch.bool)
    outside[..., :n_side].fill_(False)
    assert (memory[outside] == GUARD).all(), "something was written outside of the lines"
    return close(result, inputs, form, 1)
