"""A context in which torch's own functions come here, for the calls that this package computes."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as functional

from portable_softmax.api import routed
from portable_softmax.api.functional import log_softmax, softmax, softmin
from portable_softmax.api.routed import TensorMethod, routed_function
from portable_softmax.operators.options import check_masked_rows


@contextlib.contextmanager
def patch_torch(*, masked_rows: str = "nan") -> Iterator[None]:
    """Routes softmax and log_softmax of torch, torch.special, torch.nn.functional and Tensor, and softmin, to this package.

    The functions are replaced in the whole process, in threads that run already too, as long as any context is active: from
    the beginning of the first to the end of the last, in whatever order and threads they begin and end. Then torch is as it
    was; a function that was fetched inside (`from torch import softmax`) is torch's again.

    Calls that this package does not compute go to torch, for its results and errors: with tensors that are not on an
    accelerator; with nested, sparse, mkldnn and quantized ones, DTensor and other subclasses of Tensor than Parameter; with
    types other than float16, bfloat16, float32, float64 and, with a `dtype`, integers; with `out`, names of dimensions, or
    a dim of None; and all calls under a TorchFunctionMode that is not torch's own, so that it sees torch's function. What
    torch computes inside of other functions (scaled_dot_product_attention, cross_entropy) stays its own, and so does what
    torch.jit.script compiles.

    torch.compile compiles a function once for calls in a context and once for those outside. Only Tensor.softmax and
    Tensor.log_softmax are not guarded: compiled code keeps what they were when it was compiled.

    Args:
        masked_rows: "nan" for rows that are all -inf to be nan, as torch has it, or "zero" for 0, or -inf of log_softmax, and
            gradients of 0. Of several contexts, the last one that is active decides.

    Raises:
        ValueError: `masked_rows` is none of these.
    """
    check_masked_rows("patch_torch", masked_rows)
    context = [masked_rows]  # each is another list
    _begin(context)
    try:
        yield
    finally:
        _end(context)


def _places() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Names each place where torch keeps a function, its name there, and what stands there in a context."""
    usual, stacked = ("input", "dim", "dtype"), ("input", "dim", "_stacklevel", "dtype")
    for name, ours in (("softmax", softmax), ("log_softmax", log_softmax)):
        yield torch, name, routed_function(torch, name, ours, usual, in_script=f"aten::{name}")
        yield torch.Tensor, name, TensorMethod(name, ours)
        yield functional, name, routed_function(functional, name, ours, stacked)
    special = torch.special
    yield special, "softmax", routed_function(special, "softmax", softmax, usual, in_script="aten::special_softmax")
    logs = routed_function(special, "log_softmax", log_softmax, usual[:2], ("dtype",), "aten::special_log_softmax")
    yield special, "log_softmax", logs
    yield functional, "softmin", routed_function(functional, "softmin", softmin, stacked)


_PLACES = tuple(_places())  # made once, so that what torch compiled in one context is right in the next
_lock = threading.RLock()  # a context that is collected as garbage ends, maybe while another begins
_active: list[list[str]] = []  # the contexts, each by the masked rows that it wants
_before: list[Any] = []  # what stood in each place; None where it was inherited


def _begin(context: list[str]) -> None:
    with _lock:
        if not _active:
            _fill_tables()
            _before[:] = [vars(place).get(name) for place, name, _ in _PLACES]
            for place, name, function in _PLACES:
                setattr(place, name, function)
        _active.append(context)
        routed.routing = context[0]


def _end(context: list[str]) -> None:
    with _lock:
        _active[:] = [each for each in _active if each is not context]
        routed.routing = _active[-1][0] if _active else None
        if _active:
            return
        for (place, name, function), before in zip(_PLACES, _before, strict=True):
            if vars(place).get(name) is not function:
                continue  # somebody else has replaced it since, and may call the routed one, which is torch's now
            if before is None:
                delattr(place, name)
            else:
                setattr(place, name, before)
        if (rules := _compilers_rules()) and _PLACES[0][2] in rules.get_torch_obj_rule_map():
            rules.clear_lru_cache()


def _fill_tables() -> None:
    """Lets torch read its tables of functions, by their names, before these lead here; it keeps them."""
    torch.overrides.get_overridable_functions()
    if rules := _compilers_rules():
        rules.get_torch_obj_rule_map()


def _compilers_rules() -> Any:
    """Returns the module with torch.compile's table; None if it is not imported, or not yet to its end."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    return rules if hasattr(rules, "clear_lru_cache") else None
