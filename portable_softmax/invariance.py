"""Whether a row's result may depend on how many other rows are computed with it."""

_batch_invariant = False


def batch_invariant(enabled: bool) -> bool:
    """With True, a row gives bitwise the same result in every batch, alone or among millions, in the whole process.

    Without it results are bitwise equal from run to run for the same shape, strides and alignment; but few short rows are
    cut into other tiles than many, and sums are then added up in another order.

    The costs: tiles are chosen as if there were many rows, so few short rows occupy fewer multiprocessors; a softmax of an
    inner dimension copies its input into rows; and so does an input whose rows are not aligned like those of a contiguous
    tensor.

    Returns:
        What it was before.
    """
    global _batch_invariant
    before, _batch_invariant = _batch_invariant, enabled
    return before


def is_batch_invariant() -> bool:
    return _batch_invariant
