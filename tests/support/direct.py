"""Launches of the kernels with a tiling that a test chooses, compared with float64."""

import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale, terms_of

from portable_softmax.planning.lines import lines_of
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reading import as_read
from portable_softmax.runtime import launch as runtime
from portable_softmax.runtime.launch import name_of
from portable_softmax.runtime.prepared import prepare
from portable_softmax.runtime.specialization import KernelSpec
from portable_softmax.runtime.workspace import with_words

GUARD = 7.0  # around results
INF, NAN = float("inf"), float("nan")


def problem_of(operands, form, backward, vector=1, ragged=False):
    """Of rows of one type; those of all operands with strides that suit."""
    n_rows, n_cols = operands[0].shape
    dtype = name_of(operands[0].dtype)
    return Problem(n_rows, n_cols, dtype, dtype, vector, True, form, backward, ragged=ragged)


def problem_across(operands, form, backward):
    """Of [matrices, columns, rows], softmax along the columns, in any of LAYOUTS."""
    lines = lines_of(operands[0].shape, 1, [each.stride() for each in operands], True)
    return runtime.problem_from(operands, lines, form, backward, False)


def sizes_of(operands, problem):
    """Values that the kernels take after their operands: rows, or [matrices, columns, rows] that lie in any of LAYOUTS."""
    if operands[0].dim() == 3:
        return runtime.sizes_of(problem)
    unit = 1 if problem.ragged else problem.vector
    n_rows, n_cols = operands[0].shape
    if problem.paired:
        return n_rows, n_cols
    one = [1, 0, 0]
    return (n_rows, n_cols // unit, *(each.stride(0) // unit for each in operands[:2]), *one, *one)


def launch(device, operands, problem, tiling, num_programs):
    run = prepare(KernelSpec.of(problem, tiling), device, (num_programs, 1, 1), sizes_of(operands, problem))
    if tiling.parts > 1:
        run = with_words(run, problem, tiling, operands[0].device)
    run(*operands)


def rows_in(n_rows, n_cols, stride, dtype, where, outside, seed=0):
    """Random rows so far apart, with `outside` before, between and after them; (rows, all of the memory)."""
    memory = torch.full((32 + n_rows * stride + 32,), outside, dtype=dtype, device=where)
    rows = memory[32:].as_strided((n_rows, n_cols), (stride, 1))
    rows.copy_(torch.randn(n_rows, n_cols, generator=torch.Generator().manual_seed(seed)))
    return rows, memory


def result_in(n_rows, n_cols, stride, dtype, where):
    """Where a launch may write, with guards around it; (rows, check)."""
    rows, memory = rows_in(n_rows, n_cols, stride, dtype, where, GUARD)
    rows.fill_(-3.0)  # what no softmax and none of these gradients is

    def assert_guards():
        outside = torch.ones_like(memory, dtype=torch.bool)
        outside[32:].as_strided(rows.shape, rows.stride()).fill_(False)
        assert (memory[outside] == GUARD).all(), "something was written outside of the rows"

    return rows, assert_guards


def forward(run, form, dtype, where, n_cols, tiling, programs, vector=1, stride=None, n_rows=5, special=None):
    """The result of run(operands, problem, tiling, programs), compared with float64; with a stride, that of ragged rows.

    Of the rows, one is half masked and far from 0, one wholly masked; one has a nan, and one an inf; or `special` fills them.
    """
    x, _ = rows_in(n_rows, n_cols, stride or n_cols, dtype, where, NAN, seed=n_cols)
    (special or masked_and_not_finite)(x, -1 if form == "softmin" else 1)
    y, assert_guards = result_in(n_rows, n_cols, stride or n_cols, dtype, where)
    run((y, x), problem_of((y, x), form, False, vector, stride is not None), tiling, programs)
    assert_guards()
    assert_close(y, expected(form, x), terms_of(form))
    return y


def masked_and_not_finite(x, sign):
    n_cols = x.shape[1]
    x[0] -= sign * 200
    x[0, : n_cols * 2 // 3], x[1, n_cols // 2] = -sign * INF, NAN
    x[2:3], x[3:4, -1] = -sign * INF, INF


def backward(run, form, dtype, where, n_cols, tiling, programs, vector=1, stride=None, n_rows=5, special=None):
    """As `forward`; of the rows of dy, one has a nan, or `special` fills them."""
    dy, y = (rows_in(n_rows, n_cols, stride or n_cols, dtype, where, NAN, seed)[0] for seed in (n_cols, n_cols + 1))
    (special or one_nan)(dy, 1)
    dx, assert_guards = result_in(n_rows, n_cols, stride or n_cols, dtype, where)
    run((dx, dy, y), problem_of((dx, dy, y), form, True, vector, stride is not None), tiling, programs)
    assert_guards()
    assert_close(dx, expected_gradient(form, dy, y), gradient_scale(form, dy, y))
    return dx


def one_nan(dy, sign):
    dy[1, dy.shape[1] // 2] = NAN


def as_they_are(x, sign):
    """Random rows without special values."""


LAYOUTS = {  # whether columns of the result, and y of a gradient, lie side by side; and those of x, or dy
    "across": (False, False),
    "to rows": (True, False),
    "from rows": (False, True),
}


def beside(direction, layout, device, run, form, dtype, where, sizes, tiling, programs, special=None):
    """As `forward` and `backward`, of [matrices, columns, rows] that lie in one of LAYOUTS; `programs` where they walk."""
    matrices, n_cols, n_side = sizes
    result_in_rows, read_in_rows = LAYOUTS[layout]

    def tensor(in_rows, seed=None):
        """(tensor, all of its memory), with guards around and between its lines."""
        outer, inner = (n_side, n_cols) if in_rows else (n_cols, n_side)
        width = -(-inner // 8) * 8 + 8
        memory = torch.full((matrices, outer, width), GUARD if seed is None else NAN, dtype=dtype, device=where)
        x = memory[..., :inner].transpose(1, 2) if in_rows else memory[..., :inner]
        if seed is not None:
            rows = torch.randn(matrices * n_side, n_cols, generator=torch.Generator().manual_seed(seed))
            if seed == n_cols:
                (special or (one_nan if backward_too else masked_and_not_finite))(rows, -1 if form == "softmin" else 1)
            x.copy_(rows.view(matrices, n_side, n_cols).transpose(1, 2))
        return x, memory

    backward_too = direction is backward
    inputs = [tensor(in_rows, n_cols + at)[0] for at, in_rows in enumerate((read_in_rows, result_in_rows)[: 1 + backward_too])]
    result, memory = tensor(result_in_rows)
    result.fill_(-3.0)
    operands = result, *inputs
    problem = as_read(problem_across(operands, form, backward_too), device)
    run(operands, problem, tiling, programs if tiling.walk else problem.tiles(tiling.tile_rows) * tiling.parts)
    outside = torch.ones_like(memory, dtype=torch.bool)
    (outside[..., :n_cols].transpose(1, 2) if result_in_rows else outside[..., :n_side]).fill_(False)
    assert (memory[outside] == GUARD).all(), "something was written outside of the lines"
    if backward_too:
        assert_close(result, expected_gradient(form, *inputs, dim=1), gradient_scale(form, *inputs, dim=1))
    else:
        assert_close(result, expected(form, inputs[0], 1), terms_of(form))
    return result
