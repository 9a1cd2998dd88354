"""Overrides the operators of a batch-invariant mode, as serving engines have one: `python examples/batch_invariant_mode.py`.

Such a mode registers its operators with torch's dispatcher, which uses the newest registration. So does an override: start it
after the mode, and end it before the mode ends.
"""

import torch

from portable_softmax import DeviceError, override_aten, set_batch_invariant

launched: list[str] = []
HERE = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")


def log_softmax_batch_invariant(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """A stand-in for an engine's kernel."""
    launched.append("engine")
    x = x.float() if half_to_float else x
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


def enable_batch_invariant_mode() -> torch.library.Library:
    """Registers it as engines do, for the lifetime of the returned library."""
    mode = torch.library.Library("aten", "IMPL")
    mode.impl("aten::_log_softmax", log_softmax_batch_invariant, HERE.type.upper())
    return mode


def loss(logits: torch.Tensor) -> int:
    """Computes a loss and its gradient, and returns how many times the engine's kernel ran for it."""
    launched.clear()
    leaf = logits.detach().requires_grad_()
    torch.nn.functional.cross_entropy(leaf, torch.zeros(len(leaf), dtype=torch.int64, device=HERE)).backward()
    return len(launched)


torch.manual_seed(0)
logits = torch.randn(16, 500, device=HERE)
set_batch_invariant(True)
mode = enable_batch_invariant_mode()
print(f"under the mode alone: the engine's kernel ran {loss(logits)} time")
try:
    override = override_aten()
except DeviceError as error:
    print(f"nothing is overridden here: {error}")
    raise SystemExit from None
print(f"under an override that began after it: {loss(logits)} times")
alone, together = (torch.log_softmax(rows, -1)[0] for rows in (logits[:1], logits))
assert torch.equal(alone, together), "a row has the same bits in every batch"
override.end()
print(f"after the override: {loss(logits)} time")
mode._destroy()  # as engines end it
print(f"at the end: {loss(logits)} times")
