"""Forms for tests, which name only the fields that matter."""

from portable_softmax.kernels.form import Form, InKernel, constexpr_of

PLAIN = {
    **dict.fromkeys(("backward", "log", "unaligned", "padded", "walks"), False),
    **dict.fromkeys(("exact", "held", "flat"), True),
    "rounded_to": "float32",
    **dict.fromkeys(("axis", "depth", "vector", "tile_rows", "blocks", "stages", "accumulators"), 1),
    "width": 16,
    "counted_in": "int64",
}


def form(**fields) -> Form:
    """Returns the form of a float32 softmax of rows that are held, with some fields replaced."""
    return Form(**(PLAIN | fields))


def in_kernel(**fields) -> InKernel:
    """Returns the value of a kernel's FORM."""
    return constexpr_of(form(**fields))
