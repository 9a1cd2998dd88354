"""The form of a kernel: what follows from its fields, in plain Python."""

import pytest
from forms import form, in_kernel


@pytest.mark.parametrize(("unaligned", "unit"), [(False, 4), (True, 1)])
def test_lengths_are_counted_in_vectors_but_for_unaligned_rows(unaligned, unit):
    assert form(vector=4, unaligned=unaligned).unit == unit


def test_a_block_has_its_split_of_the_columns():
    assert form(width=256, blocks=6).tile_cols == 1536


@pytest.mark.parametrize(("axis", "out_axis", "transposed"), [(1, 1, False), (0, 0, False), (1, 0, True), (0, 1, True)])
def test_an_input_is_transposed_if_it_lies_otherwise_than_the_result(axis, out_axis, transposed):
    assert form(axis=axis, out_axis=out_axis).transposed is transposed


def test_a_look_has_room_for_the_splits_of_each_row():
    assert form(lanes=128).splits_read == 128
    assert form(lanes=128, tile_rows=16).splits_read == 8


@pytest.mark.parametrize(
    ("fields", "products", "lone"),
    [
        ({}, False, False),
        ({"backward": True}, True, False),
        ({"backward": True, "splits": 3}, True, True),
        ({"backward": True, "splits": 3, "blocks": 2}, True, False),
        ({"backward": True, "log": True, "splits": 3}, False, False),
        ({"splits": 3}, False, False),
    ],
)
def test_which_sums_are_of_products(fields, products, lone):
    assert (form(**fields).products, form(**fields).lone_products) == (products, lone)


def test_copies_in_float32_are_rounded_to_float32():
    assert form(rounded_to="bfloat16").in_float32().rounded_to == "float32"
    assert form(rounded_to="float16").in_float32().rounded_to == "float16"


def test_kernels_see_constexprs_of_all_fields_and_equal_forms_are_one():
    import triton.language as tl

    one, same, other = in_kernel(width=64), in_kernel(width=64), in_kernel(width=128)
    assert one == same != other
    assert hash(one) == hash(same)
    assert repr(one) == repr(same) != repr(other), "Triton's cache on disk goes by the text"
    for name, value in (("tile_cols", 64), ("width", 64), ("compute", tl.float32), ("poll", "volatile"), ("held", True)):
        seen = getattr(one, name)
        assert isinstance(seen, tl.constexpr), "or shapes and static ranges refuse it"
        assert seen.value == value
    with pytest.raises(AttributeError):
        one.no_field  # noqa: B018
