"""In place, words are seen ahead of results, and splits are read ahead of the second look: the order in compiled code.

Each line of a kernel's code that matters is a letter, and a pattern says in which order they stand.
"""

import re

import pytest
from assembly import marks
from offline import SHARING, foremost

from portable_softmax import Device, profiles
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.specialization import KernelSpec

GPUS = [name for name in SHARING if profiles()[name].backend in ("cuda", "hip")]
PROBLEMS = {
    "rows": ({"n_rows": 4, "n_cols": 16_384}, Tiling(1, 4096, 4, 1, 4, walk=False)),
    "side by side": ({"n_rows": 256, "n_cols": 4096, "inner": 256}, Tiling(32, 128, 8, 1, 8, blocks=4, held=False, walk=False)),
}


def order_of(profile, name, in_place, **kind):
    sizes, tiling = PROBLEMS[name]
    problem = Problem(x_dtype="float32", y_dtype="float32", vector=4, in_place=in_place, **sizes, **kind)
    return marks(compile_kernel(KernelSpec.of(problem, tiling), Device.from_profile(profile)))


def is_ordered(order):
    """Tells whether words (w), a fence (f) and a wait of all threads (b) come ahead of any result (r).

    And whether a fence and a wait stand between what is read of x (x) and the next look (l), unless that stands out of line.
    """
    published = re.match(r"[^w]*w+b*f+b", order)
    if not published or "r" in published[0] or re.search(r"x[^flr]*l|f[^blr]*l", order):
        return False
    return "r" in order and order.count("l") > 1


@pytest.mark.each_value
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("profile", foremost(GPUS))
def test_words_are_seen_ahead_of_results(profile, name, backward):
    order = order_of(profile, name, True, backward=backward)
    assert is_ordered(order), order


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_launch_elsewhere_has_no_fence(name):
    order = order_of("nvidia/h200", name, False)
    assert "f" not in order
    assert not is_ordered(order)


@pytest.mark.parametrize(
    "order", ["xwbblbxbfblwlr", "xwlbfbxbfblwlr", "xwbflbxbfblwlr", "xrwbfblbxbfblwlr", "xwbfblbxbblwlr", "xwbfblr"]
)
def test_an_order_that_lacks_something_is_seen(order):
    assert is_ordered("xwbfblbxbfblwlr")
    assert not is_ordered(order)
