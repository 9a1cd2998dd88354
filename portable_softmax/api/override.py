"""Kernels of this package for aten::_softmax, aten::_log_softmax and their gradients, at the device's dispatch key."""

import contextlib
import threading
import warnings
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.detect import current_device
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import check_masked_rows
from portable_softmax.operators.softmax import NO_FACTORS, call_of, launched_gradient

_lock = threading.Lock()
_replaced: list[Any] = []  # kernels that were in force: a thread may be entering one when it is removed


class override_aten(contextlib.ContextDecorator):
    """Computes aten::_softmax, aten::_log_softmax and their gradients by this package, in all threads, until it ends.

    torch.softmax, torch.nn.functional.cross_entropy, modules, engines, and graphs of torch.compile(backend="aot_eager") and
    torch.export come to these operators, with autograd, autocast and vmap as torch has them. Kernels that TorchInductor writes
    and scaled_dot_product_attention do not. Calls that no launch computes go to the kernel that was in force, bit for bit.

    The override is in force from the call on: to the end of a `with` block, or to `end()`; torch's kernels are back then.

    Args:
        masked_rows: "nan" for rows that are all -inf to be nan, as torch has it, or "zero" for 0, or -inf of log_softmax, with
            gradients of 0: then torch.nn.MultiheadAttention learns beside rows that are masked completely.

    Raises:
        ValueError: `masked_rows` is none of these.
        NotImplementedError: torch is older than 2.9, the first that returns its own kernels.
        RuntimeError: another override is in force.
        DeviceError: there is no device.
    """

    def __init__(self, *, masked_rows: str = "nan") -> None:
        check_masked_rows("override_aten", masked_rows)
        if not hasattr(torch.library, "get_kernel"):
            raise NotImplementedError(f"override_aten() needs torch 2.9 or newer, not {torch.__version__}")
        # No public name for a device's key (2.9 to 2.13); until a vendor's extension of torch renames it, it is PrivateUse1.
        key = torch._C._dispatch_key_for_device(current_device().vendor.torch_device_type)
        if not _lock.acquire(blocking=False):
            raise RuntimeError("override_aten() is in force already; end that one first")
        self._library: Any = torch.library.Library("aten", "IMPL")
        for operator, log, kernel in OPERATORS:
            before = torch.library.get_kernel(f"aten::{operator}", key)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that a kernel is overridden
                implementation = kernel(before.call_boxed, log, masked_rows)
                self._library.impl(operator, implementation, key, with_keyset=True, allow_override=True)
            _replaced.append(torch.library.get_kernel(f"aten::{operator}", key))

    def end(self) -> None:
        """Ends the override, once."""
        if self._library is not None:
            self._library._destroy()
            self._library = None
            _lock.release()

    def __enter__(self) -> "override_aten":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def _forward(before: Any, log: bool, masked_rows: str) -> Any:
    def compute(keys: Any, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        with contextlib.suppress(NotImplementedError, IndexError):
            dtype = torch.float32 if half_to_float else x.dtype
            call = call_of(log, (x, None, None, None, None, None), dim, dtype, False, masked_rows)
            if call is not None and call.run is not None and not (half_to_float and x.dtype is torch.float32):
                return call.run(None, (x, None, None, None, None, None))
        return before(keys, x, dim, half_to_float)

    return compute


def _backward(before: Any, log: bool, masked_rows: str) -> Any:
    def compute(keys: Any, dy: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        if y.dim() and -y.dim() <= dim < y.dim() and dy.dtype == y.dtype and dy.shape == y.shape:
            rest = log, dim % y.dim(), masked_rows == "zero", dtype, is_batch_invariant()
            dx = launched_gradient(dy, y, NO_FACTORS, *rest, otherwise=lambda *rest: None)
            if dx is not None:
                return dx
        return before(keys, dy, y, dim, dtype)

    return compute


OPERATORS = (
    ("_softmax", False, _forward),
    ("_log_softmax", True, _forward),
    ("_softmax_backward_data", False, _backward),
    ("_log_softmax_backward_data", True, _backward),
)
