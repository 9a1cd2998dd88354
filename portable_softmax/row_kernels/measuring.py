"""Times a few launches of a row kernel on the device, on copies of what it stores to, and selects the fastest."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from portable_softmax.devices.device import Device
from portable_softmax.row_kernels.following import ACCESSES, ASSIGNED, Run
from portable_softmax.row_kernels.row_settings import Request
from portable_softmax.row_kernels.ttir import Function, Op
from portable_softmax.row_kernels.values import Known, Pointer
from portable_softmax.runtime.guard import guard_of
from portable_softmax.runtime.timing import MIN_US, fastest, timed


class Stores(Run):
    """A run of any program that notes which store operations it has seen, and the parameters that they store to."""

    def __post_init__(self) -> None:
        self.seen: set[int] = set()
        self.roots: set[str] = set()
        super().__post_init__()

    def _if(self, op: Op) -> None:
        condition = op.operands[0]
        self.known[condition] = self.known[condition]._replace(value=None, key=op)  # another turn may take the other branch
        super()._if(op)

    def _computed(self, op: Op, kind: str) -> Any:
        value = super()._computed(op, kind)
        roots = {getattr(self.known[name].value, "root", None) for name in op.operands[1:]}
        return None if kind == "select" and isinstance(value, Pointer) and len(roots) > 1 else value

    def _end(self, op: Op, results: Sequence[Known], of: frozenset[str], sure: bool) -> None:
        super()._end(op, results, of, sure)
        carried = [[self.known[name].value for name in names] for names in ASSIGNED.findall(op.text)[op.name == "scf.for" :]]
        if any(getattr(now, "root", None) != getattr(first, "root", None) for now, first in carried):
            self.roots.add("")  # turns that are not followed may store elsewhere

    def _access(self, op: Op, kind: str) -> None:
        super()._access(op, kind)
        if kind != "load":
            pointer = self.known[op.operands[0]].value
            self.seen.add(id(op))
            self.roots.add(pointer.root if isinstance(pointer, Pointer) else "")


def stored(function: Function, arguments: Mapping[str, Any]) -> set[str] | None:
    """Returns the names of the parameters that a kernel stores to; None if they may be more."""
    run = Stores(function, arguments, None, (2, 1, 1))
    known = all(id(op) in run.seen for op in function.every if ACCESSES.get(op.kind, "load") != "load")
    hidden = any(op.kind == "call" or "pure = false" in op.text for op in function.every)  # or inline assembly that stores
    return run.roots if known and not hidden and "" not in run.roots else None


def on_copies(named: Mapping[str, Any], names: set[str]) -> tuple[dict[str, Any], Callable[[], None]]:
    """Returns arguments with copies of all memory of those with such names, and a function that copies it again.

    Raises:
        OutOfMemoryError: there is no room.
    """
    owned = {named[name].untyped_storage().data_ptr(): named[name].untyped_storage() for name in names}
    copies = {start: storage.clone() for start, storage in owned.items()}

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.untyped_storage().data_ptr() not in copies:
            return value
        storage = copies[value.untyped_storage().data_ptr()]
        empty = torch.empty(0, dtype=value.dtype, device=value.device)
        return empty.set_(storage, value.storage_offset(), value.shape, value.stride())

    def restore() -> None:
        for start, storage in owned.items():
            copies[start].copy_(storage, non_blocking=True)

    return {name: copied(value) for name, value in named.items()}, restore


def select(choice: Any, request: Request, count: int, call_of: Callable[..., Callable[[], Any]], device: Device) -> None:
    """Times the launches of the first settings of a request by cost, and lets its choice prefer the fastest.

    Args:
        choice: of the request, a row_choice.Choice.
        request: of tensors on the device.
        count: most settings that are timed.
        call_of: returns a call of a launch, a RowPlan, with arguments by name.
        device: the current one.
    """
    tensors = [value for value in request.arguments.values() if isinstance(value, torch.Tensor)]
    if any(tensor.device.type != device.vendor.torch_device_type for tensor in tensors):
        return  # a plan for types, or for tensors without memory
    candidates = choice.candidates(request, count, torch.are_deterministic_algorithms_enabled())
    kinds, plans = [kind for kind, _ in candidates], [plan for _, plan in candidates]
    if len(plans) < 2 or plans[0].terms is None or plans[0].terms.total < MIN_US:
        choice.prefer(
            None, f"not measured: fewer than two launches that do not spill, or expected to take less than {MIN_US} us"
        )
        return
    names = choice.stored(request, dict.fromkeys(setting for setting, _ in kinds))
    if names is None or not all(isinstance(request.arguments.get(name), torch.Tensor) for name in names):
        choice.prefer(None, "not measured: Triton's IR does not say which tensors the kernel stores to")
        return
    try:
        copies, restore = on_copies(request.arguments, names)
        with guard_of(device).made_current():
            rounds = timed([call_of(plan, copies) for plan in plans], device, restore)
    except torch.OutOfMemoryError:
        choice.prefer(None, f"not measured: there is no memory for copies of {', '.join(sorted(names))}")
        return
    us = [statistics.mean(times) for times in zip(*rounds, strict=True)]
    lines = [f"{_line(plan, request)} took {time:.1f} us" for plan, time in zip(plans, us, strict=True)]
    best = fastest(rounds)
    choice.prefer(kinds[best], f"measured: {'; '.join([lines.pop(best), *lines])}")


def _line(plan: Any, request: Request) -> str:
    """Returns a launch as arguments that make it permanent."""
    meta = {name: value for name, value in plan.meta.items() if name not in request.meta}
    programs = {"num_programs": plan.num_programs} if request.grid is None else {}
    return ", ".join(f"{name}={value!r}" for name, value in {**meta, **programs}.items())
