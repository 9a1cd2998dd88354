"""Runs each kernel once in each strategy, for compute-sanitizer:

compute-sanitizer --tool memcheck python tests/sanitize.py
compute-sanitizer --tool racecheck python tests/sanitize.py

Operands lie in one allocation each, with odd lengths and unaligned starts, so that an access outside of them is seen.
"""

import itertools

import torch

from portable_softmax import current_device, launch
from portable_softmax.problem import FORMS

SHAPES = ((5, 200), (5, 203), (3, 70_003), (2, 65_536), (2, 37, 40), (1, 9001, 19))  # [rows, cols], [matrices, cols, rows]
DTYPES = (torch.float32, torch.bfloat16)


def main() -> None:
    device = current_device()
    where = device.vendor.torch_device_type
    strategies, launches = set(), 0

    def recorded(problem, device, plan_problem=launch.plan_problem):
        plan = plan_problem(problem, device)
        strategies.add(("backward" if problem.backward else "forward", "across" if problem.across else "along", plan.strategy))
        return plan

    launch.plan_problem = recorded
    for form, shape, dtype, start in itertools.product(FORMS, SHAPES, DTYPES, (0, 1)):
        x, y, dy, dx = (operand(shape, dtype, start, where) for _ in range(4))
        launch.softmax_rows(x, y, device, form)
        launch.softmax_backward_rows(dy, y, dx, device, form)
        assert not y.isnan().any(), (form, shape, dtype)
        assert not dx.isnan().any(), (form, shape, dtype)
        launches += 2
    expected = set(itertools.product(("forward", "backward"), ("across", "along"), ("tile", "online")))
    assert expected <= strategies, f"never launched: {expected - strategies}"
    print(f"{launches} launches, {len(strategies)} strategies: {', '.join(sorted(' '.join(each) for each in strategies))}")


def operand(shape, dtype, start, where):
    size = torch.Size(shape).numel()
    return torch.randn(start + size, device=where).to(dtype)[start:].view(shape)


if __name__ == "__main__":
    main()
