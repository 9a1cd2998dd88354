"""override_aten: torch's own operators, computed by this package for every caller in the process."""

import threading

from portable_softmax.operators import aten
from portable_softmax.operators.options import check_masked_rows

_lock = threading.RLock()  # a `with` in a generator that is collected as garbage ends, maybe while another begins


class Override:
    """An override that is in force: the end of its `with` block, or `end`, ends it."""

    def __init__(self, masked_rows: str) -> None:
        self.masked_rows = masked_rows
        with _lock:
            self._kernels: aten.Kernels | None = aten.newest()
            self._kernels.begin(self)

    def end(self) -> None:
        """Stops the override, once: what would compute without it computes again as soon as no other is in force."""
        with _lock:
            if self._kernels:
                self._kernels.end(self)
            self._kernels = None

    def __enter__(self) -> "Override":
        """Returns the override, which is in force already.

        Raises:
            RuntimeError: it has ended.
        """
        if not self._kernels:
            raise RuntimeError("this override has ended; call override_aten() for another one")
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def override_aten(*, masked_rows: str = "nan") -> Override:
    """Lets this package compute aten::_softmax, aten::_log_softmax and their gradients, in all of the process.

    These operators are what torch.softmax, torch.nn.functional.cross_entropy, modules, engines, and graphs of torch.compile,
    torch.export and torch.jit come to, with autograd, autocast and vmap as torch has them. Only what never asks torch's
    dispatcher stays as it is: kernels that TorchInductor writes, and those of scaled_dot_product_attention.

    A call without `with` holds to the end of the process; `with override_aten():` ends with its block. All threads are
    concerned. Several overrides may be in force, and end in any order, in any thread; torch computes again after the last.

    Other libraries register these operators too, as batch-invariant modes of engines do: the newest has them, as torch has it.
    An override takes them from all that registered ahead of it, and gives them back when it ends. Who registers while one is in
    force has them until a new override begins, and a warning names the place of that registration.

    Calls that this package does not compute go to the kernel that is overridden, which is torch's own, bit for bit, unless
    another library has registered one: with types that the device does not compute here (float8, complex, integers), rows or
    lines of more than 2**31 elements, half_to_float of other types than float16, a given result of another shape, and all that
    torch refuses. Layouts other than strided never come here, but the components of nested tensors do; nor do tensors on other
    devices. Those on the CPU do with TRITON_INTERPRET=1.

    Gradients are computed in threads of autograd, so they follow `set_batch_invariant`, and no context of `batch_invariant`.

    Args:
        masked_rows: "nan" for rows that are all -inf to be nan, as torch has it, or "zero" for 0, or -inf of log_softmax, with
            gradients of 0: then torch.nn.MultiheadAttention learns beside rows that are masked wholly. Of several overrides
            that are in force, the last one decides.

    Returns:
        What ends it: a context, with a method `end`.

    Raises:
        ValueError: `masked_rows` is none of the above.
        NotImplementedError: torch is older than 2.9.
        DeviceError: torch has no kernels of its own for any device that this package computes.
    """
    check_masked_rows("override_aten", masked_rows)
    return Override(masked_rows)
