"""Kernels for torch's own operators aten::_softmax, aten::_log_softmax and their gradients, at a device's dispatch key.

The dispatcher calls the newest kernel of those that are registered, and the one before it once that is taken back. Kernels of
this package stay registered, and pass calls on while no override is in force: torch frees a kernel that is taken back although
another thread may be on its way into it. So an override that begins after another library has registered the same operators
needs kernels that are newer still.
"""

import functools
import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch._C import DisableTorchFunctionSubclass

from portable_softmax.errors import DeviceError, DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.call import Asked, AskedGradient
from portable_softmax.operators.launching import backward, forward
from portable_softmax.operators.library import DISPATCH_KEYS
from portable_softmax.operators.out import write
from portable_softmax.operators.overlap import is_apart
from portable_softmax.planning.problem import MAX_COLS

Kernel = Callable[..., torch.Tensor]
Place = tuple[str, str]  # an operator's name and a dispatch key


class InForce(Protocol):
    """An override that is in force: how it wants rows that are masked wholly."""

    masked_rows: str


_CONVERTED = torch.float16, torch.float32  # the types that torch's half_to_float leads from and to
# Operators that torch makes of these: who registers one of them at a device's key computes ahead of all that is here.
_AHEAD = "softmax.int", "log_softmax.int"
_GONE = "SafeKernelFunction has been invalidated"  # how torch begins the error of a kernel that was taken back


class Kernels:
    """Kernels of this package for all places, newer than all that others had registered when they were made."""

    def __init__(self, keys: list[str], older: "Kernels | None") -> None:
        self.in_force: list[InForce] = []
        self._zero_rows: bool | None = None  # of the last one of these; None without any
        self.older = older
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that kernels are overridden
            for name, key in _places(keys):
                form, ours = _COMPUTED[name]
                # Of what Library.impl registers, older torches let nobody register another one.
                self._library.m.impl(name, key, self._in_place_of((name, key), ours, form), True)  # type: ignore[union-attr]
        self.own: dict[Place, Kernel] = {place: _registered(place) for place in _places(keys)}

    def begin(self, override: InForce) -> None:
        """Lets these kernels compute as an override wants."""
        self.in_force.append(override)
        self._zero_rows = override.masked_rows == "zero"
        for name in _AHEAD:
            self.tell_who_computes(name, stacklevel=5)

    def end(self, override: InForce) -> None:
        """Lets these kernels compute as the override before wants, or pass calls on after the last."""
        self.in_force.remove(override)
        self._zero_rows = self.in_force[-1].masked_rows == "zero" if self.in_force else None

    def tell_who_computes(self, name: str, stacklevel: int) -> None:
        """Tells, by a warning, of the kernel of an operator that computes instead of these, if there is one."""
        for key in sorted({key for _, key in self.own}):
            if holder := _holder((name, key)):
                warnings.warn(
                    f"aten::{name} at {key} is computed by the kernel {holder}, and not by this package, though an override is "
                    "in force: the newest kernel computes. Call override_aten() after that registration",
                    UserWarning,
                    stacklevel=stacklevel,
                )

    def _in_place_of(self, place: Place, ours: Kernel, form: str) -> Kernel:
        """Returns the kernel that computes a form by `ours` while an override is in force, and by another what that refuses."""
        theirs, below = _registered(place), _torchs(place)
        if self.older:
            below = self.older.own.get(place, below)

        def pass_on(keys: torch._C.DispatchKeySet, given: Any, out: Any) -> torch.Tensor:
            nonlocal theirs
            try:
                return theirs(keys, *given, **out)
            except RuntimeError as error:
                if not str(error).startswith(_GONE):
                    raise
            theirs = below
            return theirs(keys, *given, **out)

        def compute(keys: torch._C.DispatchKeySet, *given: Any, **out: torch.Tensor) -> torch.Tensor:
            zero_rows = self._zero_rows
            if zero_rows is not None:
                try:
                    with DisableTorchFunctionSubclass():  # subclasses have been asked before the dispatcher was
                        return ours(form, zero_rows, *given, **out)
                except DtypeError:
                    pass
            return pass_on(keys, given, out)

        return compute


_newest: Kernels | None = None


def newest() -> Kernels:
    """Returns kernels that the dispatcher calls at each key that torch has kernels for; registers them unless it is done.

    Raises:
        NotImplementedError: torch is older than 2.9.
        DeviceError: torch has no kernels of its own for any device that this package computes.
    """
    global _newest
    if not hasattr(torch.library, "get_kernel"):
        raise NotImplementedError(
            f"override_aten was called with torch {torch.__version__}; torch 2.9 is the first that hands out its own kernels, "
            "for what this package does not compute. Install a newer torch"
        )
    keys = [key for key in DISPATCH_KEYS.values() if torch._C._dispatch_has_kernel_for_dispatch_key("aten::_softmax", key)]
    if not keys:
        raise DeviceError(
            f"this torch {torch.__version__} has no kernels for {', '.join(DISPATCH_KEYS)}, and so none to override; "
            "install torch for an accelerator, or set TRITON_INTERPRET=1 to compute tensors on the CPU in Triton's interpreter"
        )
    _watch_registrations()
    if _newest is None or any(place not in _newest.own or _holder(place) for place in _places(keys)):
        _newest = Kernels(keys, _newest)
    return _newest


def _places(keys: list[str]) -> Iterator[Place]:
    return ((name, key) for key in keys for name in _COMPUTED)


def _registered(place: Place) -> Kernel:
    name, key = place
    kernel: Kernel = torch.library.get_kernel(f"aten::{name}", key).call_boxed
    return kernel


def _torchs(place: Place) -> Kernel:
    """Returns torch's own kernel of an operator, which another library may hide and then go, by the one that is given a result.

    Libraries leave that one alone; if one does not, it is what stays.
    """
    name, key = place
    into = _registered((f"{name.removesuffix('.out')}.out", key))
    if name.endswith(".out"):
        return into
    result = "grad_input" if name == "_softmax_backward_data" else "out"

    def compute(keys: torch._C.DispatchKeySet, x: torch.Tensor, *given: Any) -> torch.Tensor:
        dtype = given[-1] if isinstance(given[-1], torch.dtype) else torch.float32 if given[-1] else x.dtype
        y: torch.Tensor = into(keys, x, *given, **{result: x.new_empty(0, dtype=dtype)})
        return y

    return compute


def _holder(place: Place) -> str | None:
    """Returns where the kernel was registered that the dispatcher calls; None if here, or if torch composes the operator."""
    name, key = place
    table = torch._C._dispatch_dump_table(f"aten::{name}")
    found = re.search(rf"^{key}: (registered at .*) \[kernel\]$", table, re.MULTILINE)
    return found[1] if found and __file__ not in found[1] else None


@functools.cache
def _watch_registrations() -> None:
    """Lets torch tell of registrations while an override is in force, which are newer, and so compute from there on."""
    register = torch.library.Library.impl

    @functools.wraps(register)
    def watched(library: torch.library.Library, op_name: Any, *given: Any, **named: Any) -> None:
        register(library, op_name, *given, **named)
        name = getattr(op_name, "_name", op_name).split("::")[-1]  # of an OpOverload, or as it is
        if library.ns == "aten" and name in (*_COMPUTED, *_AHEAD) and (kernels := _in_force()):
            kernels.tell_who_computes(name, stacklevel=3)

    torch.library.Library.impl = watched  # type: ignore[assignment, method-assign]


def _in_force() -> Kernels | None:
    """Returns the newest kernels that compute now."""
    kernels = _newest
    while kernels and not kernels.in_force:
        kernels = kernels.older
    return kernels


def _forward(form: str, zero_rows: bool, x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    asked = Asked(_rows(x), dim, _dtype_of(form, x, dim, half_to_float), zero_rows=zero_rows)
    return forward(form, asked, is_batch_invariant()).view(x.shape)


def _into(form: str, zero_rows: bool, x: torch.Tensor, dim: int, half_to_float: bool, *, out: torch.Tensor) -> torch.Tensor:
    dtype = _dtype_of(form, x, dim, half_to_float)
    alike = (out.dtype, out.shape, out.device) == (dtype or x.dtype, x.shape, x.device)
    if not alike or not is_apart(x, out):
        raise DtypeError(f"{form} into {tuple(out.shape)} in {out.dtype} is torch's")
    write(form, Asked(_rows(x), dim, dtype, zero_rows=zero_rows), _rows(out))
    return out


def _dtype_of(form: str, x: torch.Tensor, dim: int, half_to_float: bool) -> torch.dtype | None:
    """Returns the type that x is converted to; None for its own.

    Raises:
        DtypeError: torch computes it.
    """
    if (half_to_float and x.dtype is not torch.float16) or not _is_addressed(x, dim):
        raise DtypeError(f"{form} of {tuple(x.shape)} in {x.dtype}, half_to_float {half_to_float}, is torch's")
    return torch.float32 if half_to_float else None


def _backward(form: str, zero_rows: bool, dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype) -> torch.Tensor:
    alike = (dy.dtype, dy.shape, dy.device) == (y.dtype, y.shape, y.device)
    converted = x_dtype is y.dtype or (x_dtype, y.dtype) == _CONVERTED
    if not alike or not converted or not _is_addressed(y, dim):
        raise DtypeError(f"a gradient in {x_dtype} from {dy.dtype} and {y.dtype} is torch's")
    asked = AskedGradient(_rows(dy), _rows(y), dim, x_dtype, zero_rows=zero_rows)
    return backward(form, asked, is_batch_invariant()).view(y.shape)


def _rows(x: torch.Tensor) -> torch.Tensor:
    """Returns a number as a row of one; any other tensor as it is."""
    return x if x.dim() else x.unsqueeze(0)


def _is_addressed(x: torch.Tensor, dim: int) -> bool:
    """Tells whether kernels address the elements of rows, and rows that lie side by side."""
    if x.numel() <= MAX_COLS:
        return True
    return max(x.shape[dim], math.prod(x.shape[dim % x.dim() + 1 :])) <= MAX_COLS


_COMPUTED: dict[str, tuple[str, Kernel]] = {  # by the operator's name: the form, and what computes it
    f"_{form}{end}": (form, ours)
    for form in ("softmax", "log_softmax")
    for end, ours in (("", _forward), (".out", _into), ("_backward_data", _backward))
}
