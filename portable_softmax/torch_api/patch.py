"""A context in which torch's own functions come here, for the calls that this package computes."""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as functional
from torch._C import _get_function_stack_at, _len_torch_function_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import handle_torch_function, has_torch_function_unary

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import interpreting
from portable_softmax.torch_api.fast_path import KERNEL_DTYPES
from portable_softmax.torch_api.functional import log_softmax, softmax, softmin

# Other subclasses of Tensor are torch's. Compilers trace with the last two.
TENSORS = torch.Tensor, torch.nn.Parameter, FakeTensor, FunctionalTensor
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool})
# What a device of each type computes. The interpreter stands in for an accelerator.
COMPUTED = {
    vendor.torch_device_type: frozenset(getattr(torch, name) for name in vendor.dtypes)
    for vendor in BACKENDS.values()
    if vendor.torch_device_type != "cpu" or interpreting()
}


@contextlib.contextmanager
def patch_torch() -> Iterator[None]:
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
    """
    _begin()
    try:
        yield
    finally:
        _end()


def _routed(
    ours: Callable[..., torch.Tensor], theirs: Callable[..., Any], parameters: tuple[str, ...], in_script: str | None
) -> Callable[..., Any]:
    """Makes a function that calls `ours` in a context for what it computes, and otherwise `theirs`.

    Args:
        parameters: names of the positional ones.
        in_script: the operator that torch.jit.script takes for a call; None to compile `theirs`.
    """

    @functools.wraps(theirs, assigned=("__name__", "__doc__"), updated=())
    def call(*arguments: Any, **named: Any) -> Any:
        given = dict(zip(parameters, arguments, strict=False)) | named
        understood = given.keys() <= {"input", "dim", "dtype", "_stacklevel"} and len(given) == len(arguments) + len(named)
        x = given.get("input")
        if _routing and understood and _computed(x, given.get("dim"), given.get("dtype")):
            return ours(x, given["dim"], given.get("dtype"))
        if has_torch_function_unary(x) and not is_dynamo_compiling():
            return handle_torch_function(theirs, (x,), *arguments, **named)  # torch would tell it the name, which is `call`
        return theirs(*arguments, **named)

    if in_script:
        torch.jit._builtins._register_builtin(call, in_script)
    else:
        call.__prepare_scriptable__ = lambda: theirs  # type: ignore[attr-defined]
    return call


def _computed(x: Any, dim: Any, dtype: Any) -> bool:
    """Tells whether this package computes the softmax that is asked for, as torch would."""
    return (
        type(x) in TENSORS
        and type(dim) is int
        and not _users_mode()
        and (dtype or x.dtype) in COMPUTED.get(x.device.type, ())
        and (x.dtype in KERNEL_DTYPES or x.dtype in INTEGERS)
        and x.layout is torch.strided
        and not x.is_nested
    )


def _users_mode() -> bool:
    """Tells whether there is a TorchFunctionMode that is not torch's own, as those of compilers and of a default device are."""
    modes = (type(_get_function_stack_at(at)) for at in range(_len_torch_function_stack()))
    return any(mode.__module__.split(".")[0] != "torch" for mode in modes)


def _places() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Names each place where torch keeps a function, its name there, and what stands there in a context."""
    usual, stacked = ("input", "dim", "dtype"), ("input", "dim", "_stacklevel", "dtype")
    for name, ours in (("softmax", softmax), ("log_softmax", log_softmax)):
        yield torch, name, _routed(ours, getattr(torch, name), usual, f"aten::{name}")
        yield torch.Tensor, name, _routed(ours, getattr(torch.Tensor, name), usual, None)
        yield functional, name, _routed(ours, getattr(functional, name), stacked, None)
    yield torch.special, "softmax", _routed(softmax, torch.special.softmax, usual, "aten::special_softmax")
    special = torch.special.log_softmax
    yield torch.special, "log_softmax", _routed(log_softmax, special, usual[:2], "aten::special_log_softmax")
    yield functional, "softmin", _routed(softmin, functional.softmin, stacked, None)


_PLACES = tuple(_places())  # made once, so that what torch compiled in one context is right in the next
_lock = threading.RLock()  # a context that is collected as garbage ends, maybe while another begins
_active = 0
_routing = False  # whether any is active; compiled code depends on it
_before: list[Any] = []  # what stood in each place; None where it was inherited


def _begin() -> None:
    global _active, _routing
    with _lock:
        if not _active:
            _fill_tables()
            _before[:] = [vars(place).get(name) for place, name, _ in _PLACES]
            for place, name, routed in _PLACES:
                setattr(place, name, routed)
        _active += 1
        _routing = True


def _end() -> None:
    global _active, _routing
    with _lock:
        _active -= 1
        if _active:
            return
        _routing = False
        for (place, name, routed), before in zip(_PLACES, _before, strict=True):
            if vars(place).get(name) is not routed:
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
