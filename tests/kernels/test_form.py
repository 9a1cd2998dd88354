"""The form of a kernel, as kernels see it."""

import pytest
from forms import form, in_kernel


def test_copies_in_float32_are_rounded_to_float32():
    assert form(rounded_to="bfloat16").in_float32().rounded_to == "float32"
    assert form(rounded_to="float16").in_float32().rounded_to == "float16"


def test_kernels_see_constexprs_of_all_fields_and_equal_forms_are_one():
    import triton.language as tl

    one, same, other = in_kernel(width=64), in_kernel(width=64), in_kernel(width=128)
    assert one == same != other
    assert hash(one) == hash(same)
    assert repr(one) == repr(same) != repr(other), "Triton's cache on disk goes by the text"
    for name, value in (("tile_cols", 64), ("width", 64), ("poll", "volatile"), ("held", True)):
        seen = getattr(one, name)
        assert isinstance(seen, tl.constexpr), "or shapes and static ranges refuse it"
        assert seen.value == value
    with pytest.raises(AttributeError):
        one.no_field  # noqa: B018
