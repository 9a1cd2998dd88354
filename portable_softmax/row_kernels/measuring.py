"""Times a few launches of a row kernel on the device, on copies of what it stores to, and selects the fastest."""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from portable_softmax.devices.device import Device
from portable_softmax.row_kernels.row_settings import Request
from portable_softmax.row_kernels.ttir import ACCESSES, MOVED, SAME, Function, Op
from portable_softmax.runtime.bind import made_current
from portable_softmax.runtime.timing import MIN_US, fastest, timed


def stored(function: Function) -> set[str] | None:
    """Returns the names of the parameters that a kernel may store to; None if Triton's IR does not show them."""
    same = defaultdict[str, set[str]](set)  # values that may be one pointer, or be computed from it
    for one, other in _pointers(function.body):
        same[one].add(other)
        same[other].add(one)
    names, seen = set[str](), set[str]()
    left = [op.operands[0] for op in function.every if ACCESSES.get(op.kind, "load") != "load"]
    while left:
        if (value := left.pop()) not in seen:
            seen.add(value)
            left += same[value]
            names |= {function.parameters.get(value, "")} if value in function.parameters else set()
    made = {name for op in function.every if op.kind in ("load", "int_to_ptr", "call") for name in op.results}
    is_hidden = any(op.kind == "call" or "pure = false" in op.text for op in function.every)  # or inline assembly that stores
    return None if is_hidden or made & seen else names


def _pointers(ops: Sequence[Op], owner: Op | None = None) -> Iterator[tuple[str, str]]:
    """Yields pairs of values of which one may be the other, or be computed from it."""
    labels = [name for op in ops if op.name == "label" for name in op.results]
    for op in ops:
        yield from op.carried if op.name in ("scf.for", "scf.while") else ()
        if op.kind in MOVED:
            yield op.results[0], op.operands[0]
        elif op.kind in SAME | {"select", "expand_dims", "reshape", "trans"}:
            yield from ((op.results[0], name) for name in op.operands[op.kind == "select" :])
        elif op.name in ("scf.yield", "scf.condition") and owner:
            values = op.operands[op.name == "scf.condition" :]
            heads = [region[0].results for region in owner.regions[1:] if region and region[0].name == "label"]
            for names in (owner.results, [name for name, _ in owner.carried], *heads):
                yield from zip(values, names, strict=False)
        elif op.name in ("cf.br", "cf.cond_br"):
            yield from itertools.product(op.operands, labels)
        for region in op.regions:
            yield from _pointers(region, op)


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
        with made_current(device):
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
