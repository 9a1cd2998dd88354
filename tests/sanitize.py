"""Runs each kernel once in each strategy, for compute-sanitizer:

compute-sanitizer --tool memcheck python tests/sanitize.py
compute-sanitizer --tool racecheck python tests/sanitize.py

Operands lie in one allocation each, with odd lengths and unaligned starts, so that an access outside of them is seen.
"""

import itertools

import torch

from portable_softmax import PlanError, current_device
from portable_softmax.planning import candidates as tilings
from portable_softmax.planning import planner
from portable_softmax.planning.problem import FORMS
from portable_softmax.runtime import launch

DTYPES = (torch.float32, torch.bfloat16)
# [rows, cols], [matrices, cols, rows]
SHAPES = ((5, 200), (5, 203), (5, 781), (5, 1300), (5, 1301), (2, 37, 40), (1, 9001, 19))
CASES = [(case, None) for case in itertools.product(FORMS, SHAPES, DTYPES, (0, 1))]
LONG = (1, 100_003), (2, 65_536)  # in every strategy that the device has
MANY = (400, 40_000), (400, 40_003)  # more programs than run at once
STRATEGIES = ("online", "shared")
CASES += list(itertools.product(itertools.product(FORMS[:2], LONG, DTYPES[:1], (0, 1)), STRATEGIES))
CASES += [(case, "shared") for case in itertools.product(FORMS[:1], MANY, DTYPES[:1], (0, 1))]


def main() -> None:
    device = current_device()
    where = device.vendor.torch_device_type
    shared = device.profile.launch.polls
    strategies, launches = set(), 0
    plan_problem, only = launch.plan_problem, None

    def candidates(rule, problem, device):
        return (each for each in tilings.candidates(rule, problem, device) if only in (None, each.strategy))

    def recorded(problem, device):
        plan_problem.cache_clear()
        plan = plan_problem(problem, device)
        kind = "across" if problem.across else "ragged" if problem.ragged else "along"
        strategies.add(("backward" if problem.backward else "forward", kind, plan.tiling.strategy))
        return plan

    launch.plan_problem, planner.candidates = recorded, candidates
    for (form, shape, dtype, start), only in CASES:  # `only` is what candidates reads
        x, y, dy, dx = (operand(shape, dtype, start, where) for _ in range(4))
        try:
            launch.softmax_rows(x, y, device, form)
            launch.softmax_backward_rows(dy, y, dx, device, form)
        except PlanError:
            assert only == "shared"  # which not every device has, for every length
            continue
        assert not y.isnan().any(), (form, shape, dtype)
        assert not dx.isnan().any(), (form, shape, dtype)
        launches += 2
    kinds = {("across", "tile"), ("across", "online"), *itertools.product(("along",), ("tile", "online"))}
    if shared:
        kinds |= {("along", "shared")}
    if device.vendor.aligned_access:
        kinds |= {("ragged", strategy) for kind, strategy in kinds if kind == "along"}
    expected = {(direction, *kind) for direction in ("forward", "backward") for kind in kinds}
    assert expected <= strategies, f"never launched: {expected - strategies}"
    print(f"{launches} launches, {len(strategies)} strategies: {', '.join(sorted(' '.join(each) for each in strategies))}")


def operand(shape, dtype, start, where):
    size = torch.Size(shape).numel()
    return torch.randn(start + size, device=where).to(dtype)[start:].view(shape)


if __name__ == "__main__":
    main()
