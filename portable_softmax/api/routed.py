"""Makes what stands in the places of torch's functions in a context of patch_torch, and tells which calls come here."""

import functools
import importlib
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch._C import _get_function_stack_at, _len_torch_function_stack
from torch._jit_internal import boolean_dispatched
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import handle_torch_function, has_torch_function_unary

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import interpreting
from portable_softmax.operators.arguments import KERNEL_DTYPES

Function = Callable[..., Any]

# Other subclasses of Tensor are torch's. Compilers trace with the last two.
TENSORS = torch.Tensor, torch.nn.Parameter, FakeTensor, FunctionalTensor
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool})
# What a device of each type computes. The interpreter stands in for an accelerator.
COMPUTED = {
    vendor.torch_device_type: frozenset(getattr(torch, name) for name in vendor.dtypes)
    for vendor in BACKENDS.values()
    if vendor.torch_device_type != "cpu" or interpreting()
}
DESCRIPTION = "__name__", "__doc__"  # what they have of torch's functions
routing: str | None = None  # masked_rows of the active context, or None without any; compiled code depends on it


class ModuleName:
    """Stands for a module of torch as the `__self__` of a routed function: pickles name a bound method by its object.

    So it is pickled as torch's own function, in a context or after it, and loads where this package is not installed.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.name,)

    def __deepcopy__(self, memo: Any) -> "ModuleName":
        return self  # as functions are not copied


class TensorMethod:
    """A routed method of torch.Tensor, which tensors bind as they bind functions; pickled as torch's own."""

    def __init__(self, name: str, ours: Function) -> None:
        theirs = getattr(torch.Tensor, name)
        functools.update_wrapper(self, theirs, DESCRIPTION, ())
        self._route = _router(ours, theirs, ("input", "dim", "dtype"), frozenset({"dim", "dtype"}))

    def __get__(self, x: torch.Tensor | None, owner: type) -> Function:
        return self if x is None else MethodType(self, x)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Calls this package or torch, as the tensor method would be."""
        return self._route(arguments, named)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (torch.Tensor, self.__name__)  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: Any) -> "TensorMethod":
        return self


def routed_function(
    module: Any, name: str, ours: Function, positional: tuple[str, ...], more: tuple[str, ...] = (), in_script: str = ""
) -> Function:
    """Returns what stands in the place of a function of a module of torch.

    Args:
        module: where the function is.
        name: its name there.
        ours: computes what comes to this package.
        positional: names of the parameters that may be given by position.
        more: names of those that may not.
        in_script: the operator that torch.jit.script takes for a call; if none, it compiles torch's function.
    """
    theirs = getattr(module, name)
    route = _router(ours, theirs, positional, frozenset(positional + more))

    @functools.wraps(theirs, assigned=DESCRIPTION, updated=())
    def call(self: ModuleName, *arguments: Any, **named: Any) -> Any:
        return route(arguments, named)

    call.__name__ = name  # by which a pickle finds it
    call.__prepare_scriptable__ = lambda: theirs  # type: ignore[attr-defined]
    place = ModuleName(module.__name__)
    routed = MethodType(call, place)
    setattr(place, name, routed)  # where copy.copy finds it
    if in_script:
        torch.jit._builtins._register_builtin(routed, in_script)
    else:  # a script has no calls of methods, but takes one of two functions by a flag, which is not given
        of_two: dict[str, Any] = {"if_true": theirs, "if_false": theirs, "arg_name": "", "index": 99, "default": False}
        boolean_dispatched[routed] = of_two
    return routed


def _router(
    ours: Function, theirs: Function, positional: tuple[str, ...], keywords: frozenset[str]
) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Returns what calls `ours` in a context for what it computes, and otherwise `theirs`."""

    def route(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        given = dict(zip(positional, arguments, strict=False)) | named
        understood = named.keys() <= keywords and len(given) == len(arguments) + len(named)
        x = given.get("input")
        if routing and understood and _computed(x, given.get("dim"), given.get("dtype")):
            return ours(x, given["dim"], given.get("dtype"), **({} if routing == "nan" else {"masked_rows": routing}))
        if has_torch_function_unary(x) and not is_dynamo_compiling():
            return handle_torch_function(theirs, (x,), *arguments, **named)  # torch would tell it the name, which is `call`
        return theirs(*arguments, **named)

    return route


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
