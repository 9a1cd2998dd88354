"""Puts this package's kernels in the place of torch's own in torch's dispatcher, where whatever computes with torch finds them.

What is registered stays registered, and passes calls on to torch's kernels once the last override has ended: torch frees a
kernel that is taken back although another thread may be on its way into it.
"""

import math
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._C import DisableTorchFunctionSubclass

from portable_softmax.api.routed import COMPUTED
from portable_softmax.errors import DeviceError, DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.compute import backward, forward
from portable_softmax.planning.problem import MAX_COLS

Kernel = Callable[..., torch.Tensor]

_CONVERTED = torch.float16, torch.float32  # the types that torch's half_to_float leads from and to

_lock = threading.RLock()  # a `with` in a generator that is collected as garbage ends, maybe while another begins
_active = 0
_libraries: dict[str, torch.library.Library] = {}  # by dispatch key


class Override:
    """An override that is in force: the end of its `with` block, or `end`, ends it."""

    _ended = False

    def end(self) -> None:
        """Stops the override, once: torch's kernels compute again as soon as no other is in force."""
        global _active
        with _lock:
            _active -= not self._ended
            self._ended = True

    def __enter__(self) -> "Override":
        """Returns the override, which is in force already.

        Raises:
            RuntimeError: it has ended.
        """
        if self._ended:
            raise RuntimeError("this override has ended; call override_aten() for another one")
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def override_aten() -> Override:
    """Lets this package compute aten::_softmax, aten::_log_softmax and their gradients, for all of the process, from now on.

    These operators are what torch.softmax, torch.nn.functional.cross_entropy, modules, engines, and graphs of torch.compile,
    torch.export and torch.jit come to, with autograd, autocast and vmap as torch has them. Only what never asks torch's
    dispatcher stays as it is: kernels that TorchInductor writes, and those of scaled_dot_product_attention.

    A call without `with` holds for the process; `with override_aten():` ends with its block. All threads are concerned. Several
    overrides may be in force, and end in any order, in any thread; torch computes again after the last.

    Calls that this package does not compute go to the kernel that was torch's before, bit for bit: with types that the device
    does not compute here (float8, complex, integers), rows or lines of more than 2**31 elements, half_to_float of other types
    than float16, and all that torch refuses. Layouts other than strided never come here, nor do tensors on other devices; those
    on the CPU do with TRITON_INTERPRET=1.

    Gradients are computed in threads of autograd, so they follow `set_batch_invariant`, and no context of `batch_invariant`.

    Returns:
        What ends it: a context, with a method `end`.

    Raises:
        NotImplementedError: torch is older than 2.9.
        DeviceError: torch has no kernels of its own for any device that this package computes.
    """
    global _active
    with _lock:
        _register()
        _active += 1
    return Override()


def _register() -> None:
    """Registers kernels for each dispatch key that torch has kernels for, unless it is done."""
    if not hasattr(torch.library, "get_kernel"):
        raise NotImplementedError(
            f"override_aten was called with torch {torch.__version__}; torch 2.9 is the first that hands out its own kernels, "
            "for what this package does not compute. Install a newer torch, or use patch_torch()"
        )
    for device_type in COMPUTED:
        key = _key_of(device_type)
        if key not in _libraries and torch._C._dispatch_has_kernel_for_dispatch_key("aten::_softmax", key):
            _libraries[key] = _registered(key)
    if not _libraries:
        raise DeviceError(
            f"this torch {torch.__version__} has no kernels for {', '.join(COMPUTED)}, and so none to override; "
            "install torch for an accelerator, or set TRITON_INTERPRET=1 to compute tensors on the CPU in Triton's interpreter"
        )


def _key_of(device_type: str) -> str:
    try:
        return str(torch._C._dispatch_key_for_device(device_type))
    except RuntimeError:  # until a vendor's extension of torch names it
        return "PrivateUse1"


def _registered(key: str) -> torch.library.Library:
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that kernels are overridden
        for form in ("softmax", "log_softmax"):
            kernels: dict[str, Kernel] = {f"_{form}": _forward, f"_{form}_backward_data": _backward}
            for name, ours in kernels.items():
                library.impl(name, _in_place_of(name, key, ours, form), key, with_keyset=True)
    return library


def _in_place_of(name: str, key: str, ours: Kernel, form: str) -> Kernel:
    """Returns the kernel that computes a form by `ours` while an override is in force, and by torch's what that refuses."""
    theirs = torch.library.get_kernel(f"aten::{name}", key).call_boxed

    def compute(keys: torch._C.DispatchKeySet, *given: Any) -> torch.Tensor:
        if _active:
            try:
                with DisableTorchFunctionSubclass():  # subclasses have been asked before the dispatcher was
                    return ours(form, *given)
            except DtypeError:
                pass
        result: torch.Tensor = theirs(keys, *given)
        return result

    return compute


def _forward(form: str, x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    if (half_to_float and x.dtype is not torch.float16) or not _is_addressed(x, dim):
        raise DtypeError(f"{form} of {tuple(x.shape)} in {x.dtype}, half_to_float {half_to_float}, is torch's")
    return forward(x, dim, torch.float32 if half_to_float else None, form, is_batch_invariant())


def _backward(form: str, dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype) -> torch.Tensor:
    alike = (dy.dtype, dy.shape, dy.device) == (y.dtype, y.shape, y.device)
    converted = x_dtype is y.dtype or (x_dtype, y.dtype) == _CONVERTED
    if not alike or not converted or not _is_addressed(y, dim):
        raise DtypeError(f"a gradient in {x_dtype} from {dy.dtype} and {y.dtype} is torch's")
    return backward(dy, y, dim, x_dtype, form, is_batch_invariant())


def _is_addressed(x: torch.Tensor, dim: int) -> bool:
    """Tells whether kernels address the elements of rows, and rows that lie side by side."""
    if x.numel() <= MAX_COLS:
        return True
    return max(x.shape[dim], math.prod(x.shape[dim % x.dim() + 1 :])) <= MAX_COLS
