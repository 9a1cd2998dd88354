"""override_aten: torch's own operators, computed by this package for every caller in the process."""

import threading

from portable_softmax.operators import aten

_lock = threading.RLock()  # a `with` in a generator that is collected as garbage ends, maybe while another begins


class Override:
    """An override that is in force: the end of its `with` block, or `end`, ends it."""

    _ended = False

    def end(self) -> None:
        """Stops the override, once: torch's kernels compute again as soon as no other is in force."""
        with _lock:
            aten.in_force -= not self._ended
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
    """Lets this package compute aten::_softmax, aten::_log_softmax and their gradients, in all of the process.

    These operators are what torch.softmax, torch.nn.functional.cross_entropy, modules, engines, and graphs of torch.compile,
    torch.export and torch.jit come to, with autograd, autocast and vmap as torch has them. Only what never asks torch's
    dispatcher stays as it is: kernels that TorchInductor writes, and those of scaled_dot_product_attention.

    A call without `with` holds to the end of the process; `with override_aten():` ends with its block. All threads are
    concerned. Several overrides may be in force, and end in any order, in any thread; torch computes again after the last.

    Calls that this package does not compute go to torch's own kernel, bit for bit: with types that the device does not compute
    here (float8, complex, integers), rows or lines of more than 2**31 elements, half_to_float of other types than float16, a
    given result of another shape, and all that torch refuses. Layouts other than strided never come here, but the components
    of nested tensors do; nor do tensors on other devices. Those on the CPU do with TRITON_INTERPRET=1.

    Gradients are computed in threads of autograd, so they follow `set_batch_invariant`, and no context of `batch_invariant`.

    Returns:
        What ends it: a context, with a method `end`.

    Raises:
        NotImplementedError: torch is older than 2.9.
        DeviceError: torch has no kernels of its own for any device that this package computes.
    """
    with _lock:
        aten.register()
        aten.in_force += 1
    return Override()
