"""Rows are chosen from a table of times: made-up ones here, whose best numbers are known."""

import pytest

from portable_probe.tune.cells import Cell, problem_on
from portable_probe.tune.choice import COMPUTED, Measured, chosen_rows, noise_of
from portable_softmax import Device
from portable_softmax.devices.policy import LEAST_GAIN
from portable_softmax.planning.numbers import load_of, takes
from portable_softmax.planning.reading import as_read

DEVICE = Device.from_profile("nvidia/h200")
A, B = (("elements_per_split", 48),), (("split_warps", 2), ("elements_per_split", 64))
LONG = (16384, 65536, 262144)


def measured(n_cols, gains, again=1.0, elements=2**25, dtype="float32", kind="row"):
    problem = problem_on(Cell(kind, elements // n_cols, n_cols, dtype), DEVICE)
    us = {COMPUTED: 100.0} | {variation: 100 / gain for variation, gain in gains.items()}
    return Measured(problem, as_read(problem, DEVICE), load_of(problem, DEVICE), us, 100 * again)


def chosen(*cells):
    return [(row.given, row.from_cols, row.to_cols, row.gain) for row in chosen_rows(cells, "tune")]


def test_the_best_number_is_found():
    found = chosen(*(measured(n_cols, {A: 1.1, B: 1.2}) for n_cols in LONG))
    assert found == [(dict(B), 16384, 262144, 1.2)]


def test_a_number_is_for_the_lengths_that_gain():
    gains = {16384: {A: 0.9}, 65536: {A: 1.1}, 262144: {A: 1.2}}
    assert chosen(*(measured(n_cols, each) for n_cols, each in gains.items())) == [(dict(A), 32769, 262144, 1.14)]


def test_lengths_may_have_a_number_each():
    gains = {16384: {A: 1.5, B: 1.1}, 65536: {A: 0.8, B: 1.1}}
    found = chosen(*(measured(n_cols, each) for n_cols, each in gains.items()))
    assert sorted(found, key=lambda row: row[1]) == [(dict(A), 16384, 32768, 1.5), (dict(B), 32769, 65536, 1.1)]


def test_the_worst_regret_decides_for_cells_of_one_length():
    cells = [measured(65536, {A: gain, B: 1.2}) for gain in (1.3, 1.3, 1.05)]
    assert chosen(*cells) == [(dict(B), 65536, 65536, 1.2)]  # A is better by the mean


def test_a_number_that_slows_one_length_down_is_not_for_it():
    gains = {16384: {A: 1.3}, 65536: {A: 0.95}, 262144: {A: 1.3}}
    assert [row[1:3] for row in chosen(*(measured(n_cols, each) for n_cols, each in gains.items()))] == [
        (16384, 32768),
        (131073, 262144),
    ]


@pytest.mark.parametrize(("gain", "rows"), [(LEAST_GAIN - 0.01, 0), (LEAST_GAIN + 0.01, 1)])
def test_nothing_is_kept_that_gains_less(gain, rows):
    assert len(chosen(*(measured(n_cols, {A: gain}) for n_cols in LONG))) == rows


@pytest.mark.parametrize(("again", "rows"), [(1.2, 0), (1 / 1.2, 0), (1.05, 1)])
def test_nothing_is_kept_within_the_noise(again, rows):
    cells = [measured(n_cols, {A: 1.1}, again) for n_cols in LONG]
    assert noise_of(cells) == pytest.approx(max(again, 1 / again))
    assert len(chosen(*cells)) == rows


def test_a_number_that_was_not_timed_everywhere_is_for_the_rest():
    cells = measured(16384, {}), measured(65536, {A: 1.2})
    assert chosen(*cells) == [(dict(A), 32769, 65536, 1.2)]


def test_few_rows_are_another_kind_than_many():
    cells = [measured(65536, {A: 1.2}), measured(65536, {A: 0.8}, elements=2**20)]
    (row,) = chosen_rows(cells, "tune")
    assert [takes(row, each.read, each.load) for each in cells] == [True, False]


def test_types_and_directions_are_other_kinds():
    cells = [measured(65536, {A: 1.2}), measured(65536, {A: 0.9}, dtype="bfloat16")]
    (row,) = chosen_rows(cells, "tune")
    assert (row.element_bytes, row.direction, row.layout, row.access) == (4, "forward", "rows", "vector")


def test_how_rows_are_read_is_asked_of_the_problem_as_it_is_given():
    on, wider = (("unaligned_cols", 1),), (("bytes_per_block", 32),)
    cell = measured(1601, {on: 1.0, wider: 1.2})
    assert (cell.given.access, cell.read.access) == ("scalar", "unaligned")
    assert [row.access for row in chosen_rows([cell], "tune")] == ["unaligned"]
    off = measured(1601, {(("unaligned_cols", 4096),): 1.2})
    assert [row.access for row in chosen_rows([off], "tune")] == ["scalar"]
