"""Computes a row with the same bits in every batch: `python examples/batch_invariance.py`."""

import torch

from portable_softmax import batch_invariant, set_batch_invariant, softmax

HERE = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

torch.manual_seed(0)
rows = torch.randn(64, 5000, device=HERE)

with batch_invariant():  # in this thread; a gradient follows its forward
    alone, together = softmax(rows[:1]), softmax(rows)[:1]
print(f"in the context: the first row alone and among 64 has the same bits: {torch.equal(alone, together)}")
assert torch.equal(alone, together)

# Without it the two may differ in their last bits: few rows are cut into other tiles than many. Both are right.
difference = (softmax(rows[:1]) - softmax(rows)[:1]).abs().max().item()
by = "" if rows.device.type != "cpu" else "; on a GPU, it can be a few units in the last place"
print(f"without it: the largest difference is {difference:.1e}{by}")

set_batch_invariant(True)  # for the whole process, as training under torch.compile needs
assert torch.equal(softmax(rows[:1]), softmax(rows)[:1])
set_batch_invariant(False)
