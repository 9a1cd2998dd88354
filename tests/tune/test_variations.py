"""Cells and the numbers that are varied, on devices of all vendors."""

import msgspec
import pytest

from portable_probe.tune.cells import CLASSES, GRID, Cell, cells_of, problem_on, rows_of
from portable_probe.tune.variations import first_launches, row_of, variation_of, variations, with_rows, words_of
from portable_softmax import Device, profiles
from portable_softmax.devices.policy import NUMBERS, NumberRow
from portable_softmax.planning.numbers import numbers_of

DEVICES = ("nvidia/h200", "amd/mi300x", "intel/max-1550", "ascend/910b3")


@pytest.mark.parametrize("name", profiles())
def test_every_variation_is_a_row_that_a_profile_may_have(name):
    device = Device.from_profile(name)
    for variation in variations(device):
        (row,) = row_of(variation)
        assert msgspec.convert(msgspec.to_builtins(row), NumberRow) == row
        assert row.given.items() <= dict(variation).items()
        assert variation_of(words_of(variation)) == variation
    assert variation_of(words_of(())) == ()


@pytest.mark.parametrize("name", DEVICES)
def test_a_variation_changes_its_number_alone(name):
    device = Device.from_profile(name)
    problem = problem_on(Cell("row", 64, 4096, "float32"), device)
    own = vars(numbers_of(problem, device)[0])
    for variation in variations(device):
        assert vars(numbers_of(problem, with_rows(device, row_of(variation)))[0]) == own | dict(variation)


@pytest.mark.parametrize("name", DEVICES)
def test_cells_have_every_class_that_the_device_takes(name):
    device = Device.from_profile(name)
    found = cells_of(device)
    lines = CLASSES if device.vendor.scattered_rows else set(CLASSES) - {"transposed", "heads"}
    assert {cell.kind for cell in found} == set(lines)
    assert len(set(found)) == len(found)
    for cell in found:
        assert (problem_on(cell, device).n_rows, problem_on(cell, device).n_cols) == (cell.n_rows, cell.n_cols)


def test_lengths_are_held_out_between_those_that_are_tuned():
    for tuned, held_out in GRID.values():
        assert all(min(tuned) < each < max(tuned) for each in held_out)
        assert not set(tuned) & set(held_out)


def test_cells_are_what_their_class_says():
    device = Device.from_profile("nvidia/h200")
    cells = [cell for cell in cells_of(device) if cell.dtype == "float32"]
    layouts = {cell.kind: problem_on(cell, device).layout for cell in cells}
    assert (layouts["across"], layouts["transposed"], layouts["heads"], layouts["unaligned"]) == (
        "across",
        "transposed",
        "rows",
        "rows",
    )
    assert all(problem_on(cell, device).depth > 1 for cell in cells if cell.kind == "heads")
    assert {problem_on(cell, device).access for cell in cells if cell.kind in ("unaligned", "across odd")} == {"scalar"}
    assert {problem_on(cell, device).access for cell in cells if cell.kind not in ("unaligned", "across odd")} == {"vector"}
    assert rows_of("heads", 100) % 64 == 0


def test_numbers_that_do_not_matter_leave_the_launches_alike():
    device = Device.from_profile("nvidia/h200")
    short, long = (problem_on(Cell("row", 4096, n_cols, "float32"), device) for n_cols in (64, 65536))
    varied = with_rows(device, row_of((("elements_per_split", 96),)))
    assert first_launches(short, varied) == first_launches(short, device)
    assert first_launches(long, varied) != first_launches(long, device)


def test_a_number_for_some_problems_is_tried_for_all_and_the_other_way_round():
    tried = {
        value
        for variation in variations(Device.from_profile("nvidia/h200"))
        for key, value in variation
        if key == "words_forward"
    }
    given = {row.words_forward for row in Device.from_profile("nvidia/h200").profile.launch.numbers if row.words_forward}
    assert tried > given


def test_every_number_of_a_device_with_warps_is_varied():
    keys = {key for variation in variations(Device.from_profile("nvidia/h200")) for key, _ in variation}
    assert keys == set(NUMBERS) - {"tile_elements", "stream_elements", "registers"}
