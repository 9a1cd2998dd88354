"""The Problem that a request means: its arguments checked, its rows described."""

import math
import operator
from dataclasses import replace
from typing import TYPE_CHECKING

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import Step
from portable_softmax.errors import DtypeError
from portable_softmax.planning.lines import Lines, lines_of
from portable_softmax.planning.problem import FORMS, MAX_COLS, VECTOR_BYTES, Problem
from portable_softmax.planning.rules import matching

if TYPE_CHECKING:
    import torch


def checked_problem(
    n_rows: int, n_cols: int, dtype: "torch.dtype | str", device: Device, form: str, backward: bool, batch_invariant: bool
) -> Problem:
    """Checks arguments as a user gives them to `plan`, and makes the contiguous_problem of them."""
    if form not in FORMS:
        raise ValueError(f"form {form!r} was asked for; there are {', '.join(FORMS)}")
    name = str(dtype).removeprefix("torch.")
    check_dtype(name, device)
    return contiguous_problem(n_rows, n_cols, name, device, form, backward, batch_invariant)


def contiguous_problem(
    n_rows: int,
    n_cols: int,
    dtype: str,
    device: Device,
    form: str = "softmax",
    backward: bool = False,
    batch_invariant: bool = False,
) -> Problem:
    """The softmax of aligned matrices whose rows follow each other, input and output of the same type.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is not positive or too large.
    """
    n_rows, n_cols = _integer("n_rows", n_rows), _integer("n_cols", n_cols)
    if n_rows < 1 or n_cols < 1:
        raise ValueError(f"n_rows and n_cols must be positive, not {n_rows} and {n_cols}")
    lines = lines_of((n_rows, n_cols), 1, [(n_cols, 1)] * (3 if backward else 2), True)
    assert lines, "contiguous rows are taken as they lie"
    return problem_of(lines, dtype, dtype, device, form=form, backward=backward, batch_invariant=batch_invariant)


def problem_of(
    lines: Lines,
    x_dtype: str,
    y_dtype: str,
    device: Device,
    *,
    aligned: bool = True,
    form: str = "softmax",
    backward: bool = False,
    batch_invariant: bool = False,
    step: Step | None = None,
) -> Problem:
    """Describes the softmax of operands that lie as lines, with the accesses that the device's profile prefers for them.

    Args:
        lines: how the operands lie.
        x_dtype, y_dtype: torch's names of the types of input and output.
        device: whose profile has rules for such rows.
        aligned, form, backward, batch_invariant, step: see Problem.

    Raises:
        ValueError: a size is too large.
    """
    n_lines, outer = lines.levels[2][0], lines.levels[0][0] * lines.levels[1][0]
    widest = VECTOR_BYTES // max(DTYPE_BYTES[x_dtype], DTYPE_BYTES[y_dtype])
    problem = Problem(
        n_rows=outer * (lines.length if lines.across else n_lines),
        n_cols=n_lines if lines.across else lines.length,
        x_dtype=x_dtype,
        y_dtype=y_dtype,
        vector=math.gcd(lines.length, *lines.strides, *([n_lines] if lines.turned else []), widest),
        aligned=aligned,
        form=form,
        backward=backward,
        inner=lines.length if lines.across else 1,
        batch_invariant=batch_invariant,
        depth=lines.depth,
        turned=lines.turned,
        step=step,
    )
    return as_scattered(as_read(problem, list(lines.levels[2][1]), device), device)


def _integer(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} should be an integer, not {value!r}") from error


def as_read(problem: Problem, strides: list[int], device: Device) -> Problem:
    """The problem with the accesses that its rows are read with: those of pairs or of ragged rows, if not their own.

    Args:
        problem: with rows as they are.
        strides: from row to row, in elements, of each operand.
        device: whose profile has rules for such rows.
    """
    paired = as_paired(problem, strides, device)
    return paired if paired.paired else as_ragged(problem, strides, device)


def as_paired(problem: Problem, strides: list[int], device: Device) -> Problem:
    """The problem with two rows in one, where a rule speaks of pairs: of an odd length, each directly after the one before.

    Rows of a batch-invariant problem stay as they are: the last of an odd number is added up in another order. So do those that
    are sharded over devices, whose steps are other kernels.
    """
    follow = problem.layout == "rows" and problem.depth == 1 and set(strides) == {problem.n_cols}
    odd = problem.n_cols % 2 == 1 and problem.n_cols <= MAX_COLS // 2
    if not (follow and odd and problem.n_rows > 1 and problem.backward and problem.aligned):
        return problem
    if problem.batch_invariant or problem.step:
        return problem
    pairs = problem.in_pairs
    return pairs if any(rule.access == "paired" for rule in matching(pairs, device)) else problem


def as_ragged(problem: Problem, strides: list[int], device: Device) -> Problem:
    """The problem with the widest accesses, where each row starts at the same offset modulo a vector in every operand.

    Rows of a batch-invariant problem stay as they are: a ragged row's elements are added in an order that depends on its start.
    So do rows shorter than a vector, which may lie inside one and have no two edges.
    """
    alike = len({stride % problem.widest for stride in strides}) == 1
    rows = problem.n_cols, problem.element_bytes, problem.access
    wanted = problem.vector < problem.widest and any(each.takes(*rows) for each in device.profile.launch.ragged)
    if not (alike and wanted and problem.aligned and device.vendor.aligned_access):
        return problem
    if problem.layout != "rows" or problem.depth > 1 or problem.batch_invariant or problem.n_cols < problem.widest:
        return problem
    return replace(problem, vector=problem.widest, ragged=True)


def as_scattered(problem: Problem, device: Device) -> Problem:
    """The problem with tiles of rows of several matrices, where a matrix has fewer side by side than a tile takes."""
    line = device.profile.launch.line_elements
    if not (problem.across and line and problem.inner < line.value and device.vendor.scattered_rows):
        return problem
    return replace(problem, scattered=True)


def check_dtype(name: str, device: Device) -> None:
    """Refuses a type that the device does not compute.

    Raises:
        DtypeError: names the types that it computes.
    """
    if name not in device.profile.dtypes:
        computed = ", ".join(device.profile.dtypes)
        where = f"{device.backend}/{device.arch}"
        raise DtypeError(f"softmax of {name} was asked for; {where} computes {computed}; convert to one of these first")
