"""Says how a call of token_log_probs is computed: the plan of its launch, or that torch computes it."""

from collections.abc import Iterator

import torch

from portable_softmax.devices.device import Device
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import device_of
from portable_softmax.operators.explained import like
from portable_softmax.operators.launching import by_torch, described
from portable_softmax.operators.layout import AS_THEY_LIE
from portable_softmax.operators.log_probs.asked import call_of
from portable_softmax.operators.log_probs.call import Given, read
from portable_softmax.runtime.launch import name_of
from portable_softmax.runtime.plans import plan_problem


def explained(x: torch.Tensor, ids: torch.Tensor, given: Given, device: Device | None) -> str:
    """Returns lines about token_log_probs(x, ids, ...); compiles the kernel that the call would, and launches none.

    Args:
        x, ids, given: of the call.
        device: plans for it, wherever x is; None for the device that x is on.
    """
    return "\n".join(_lines(x, ids, given, device))


def _lines(x: torch.Tensor, ids: torch.Tensor, given: Given, device: Device | None) -> Iterator[str]:
    factors = {name: like(each.detach()) for name, each in given._asdict().items() if isinstance(each, torch.Tensor)}
    asked = read(like(x.detach()), like(ids), given._replace(**factors))
    if device is None and (x.is_meta or by_torch(x)):
        on_meta = "nothing is computed: the tensor is on meta. Give device='vendor/product', and it is planned for that one"
        on_cpu = "torch's operators compute it: the tensor is on the CPU, and TRITON_INTERPRET=1 is not set"
        yield on_meta if x.is_meta else on_cpu
        return
    device = device or device_of(x, asked.x.dtype)
    device.check_dtype(name_of(asked.x.dtype))
    if not x.numel():
        yield "nothing is computed: the tensor has no elements"
        return
    call, operands = call_of(asked, is_batch_invariant())
    way, problem = described(call, (operands[0], operands[0]), device)
    if way is not AS_THEY_LIE:
        reads = "batch_invariant reads rows as those of a contiguous tensor"
        yield f"logits are copied first: {reads if is_batch_invariant() else 'no kernel takes these strides'}"
    planned = plan_problem(problem, device)
    shape = f"{planned.problem.n_rows} rows of {planned.problem.n_cols} columns"
    yield f"a kernel of this package computes {problem.name}, {asked.n_ids} of each of {shape} on {device.name}"
    yield str(planned)
