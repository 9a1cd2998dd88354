"""Situations in which programs that share rows do not run undisturbed.

kernels/test_neighbours.py runs each in a process of its own: python tests/support/situations.py NAME [TURNS]
"""

import contextlib
import os
import sys
import time

import torch
import triton
import triton.language as tl
from faults import FAULTS

from portable_softmax import current_device, plan, softmax

LONG, FULL, FEW = (600, 65_536), (24, 131_072), (3, 200_000)  # more programs than run at once; about as many; few
UNALIGNED = (40, 100_003)
SITUATIONS = {}


def situation(function):
    SITUATIONS[function.__name__] = function
    return function


class Case:
    """A softmax and its gradient, computed once while nothing else runs, and close to float64."""

    def __init__(self, shape, seed=0, dtype=torch.float32, side_by_side=False):
        self.dim = 0 if side_by_side else 1
        shape = shape[::-1] if side_by_side else shape
        generator = torch.Generator("cuda").manual_seed(seed)
        self.x = torch.empty(shape, device="cuda", dtype=dtype).normal_(generator=generator).requires_grad_()
        self.dy = torch.empty(shape, device="cuda", dtype=dtype).normal_(generator=generator)
        assert side_by_side or plan(*shape, self.x.dtype).tiling.strategy == "shared", f"{shape} is not shared here"
        self.y = softmax(self.x.detach(), self.dim)
        y, dx = self.step()
        torch.cuda.synchronize()
        exact = torch.softmax(self.x.detach().double(), self.dim)
        gradient = exact * (self.dy.double() - (exact * self.dy).sum(self.dim, keepdim=True))
        units = torch.finfo(dtype).eps
        torch.testing.assert_close(y.double(), exact, rtol=32 * units, atol=units * 1e-5)
        torch.testing.assert_close(dx.double(), gradient, rtol=256 * units, atol=units * 1e-2)
        self.alone = y, dx

    def step(self):
        y = softmax(self.x, self.dim)
        return y.detach(), *torch.autograd.grad(y, self.x, self.dy)

    def check(self, y, dx):
        """Compares with a run in which nothing else ran: sums of late splits may be added in another order."""
        units = torch.finfo(y.dtype).eps
        torch.testing.assert_close(y, self.alone[0], rtol=16 * units, atol=units * 1e-5, msg="the softmax differs")
        torch.testing.assert_close(dx, self.alone[1], rtol=256 * units, atol=units * 1e-2, msg="the gradient differs")


@situation
def a_graph_with_two_branches(turns):
    cases = [Case(FULL, 1), Case(LONG, 2)]
    branches = [torch.cuda.Stream() for _ in cases]
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        start = torch.cuda.current_stream()
        results = []
        for case, branch in zip(cases, branches, strict=True):
            branch.wait_stream(start)
            with torch.cuda.stream(branch):
                results.append([case.step() for _ in range(3)])
        for branch in branches:
            start.wait_stream(branch)
    for _ in range(turns):
        graph.replay()
        torch.cuda.synchronize()
        for case, steps in zip(cases, results, strict=True):
            for step in steps:
                case.check(*step)
                for each in step:
                    each.zero_()


@triton.jit
def _hold_multiprocessors(flag_ptr, memory_ptr, MOST: tl.constexpr):
    """Keeps every register of a multiprocessor (1024 threads with 64) until the flag is set, or for MOST turns."""
    place = memory_ptr + tl.program_id(0) * 65536 + tl.arange(0, 16384)
    a, b, c, d = tl.load(place), tl.load(place + 16384), tl.load(place + 32768), tl.load(place + 49152)
    turns = 0
    while (tl.atomic_or(flag_ptr, 0) == 0) & (turns < MOST):
        turns += 1
        a, b, c, d = b * 0.5 + turns, c * 0.5, d * 0.5, a * 0.5
    tl.store(place, a + b + c + d)


@situation
def a_kernel_that_holds_multiprocessors_until_afterwards(turns):
    cases = [Case(FULL, 1), Case(LONG, 2), Case(FEW, 3)]
    memory = torch.randn(8 * 65536, device="cuda")
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    holder, worker = torch.cuda.Stream(), torch.cuda.Stream()
    for turn in range(turns):
        flag.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(holder):
            _hold_multiprocessors[(8,)](flag, memory, 20_000_000, num_warps=32)
        with torch.cuda.stream(worker):
            case = cases[turn % len(cases)]
            result = case.step()
            flag.fill_(1)
        worker.synchronize()
        case.check(*result)
        torch.cuda.synchronize()


@contextlib.contextmanager
def publishing(replacement):
    """Makes kernels that are compiled within publish by `replacement`, a @triton.jit function."""
    from portable_softmax.kernels import log_probs, softmax
    from portable_softmax.operators import launch
    from portable_softmax.runtime import compiled as spec

    rooms = softmax, log_probs
    before = [dict(vars(room)) for room in rooms]

    def forget():
        launch.calls.clear()
        spec._compiled.clear()

    try:
        for room in rooms:  # make new functions of all that publish: a @triton.jit function keeps the old one
            room.publish = replacement
            for name, value in list(vars(room).items()):
                if isinstance(value, triton.JITFunction) and value.fn.__module__ == room.__name__:
                    setattr(room, name, triton.jit(value.fn))
        forget()
        assert softmax.softmax_kernel.fn.__globals__["publish"] is replacement
        yield
    finally:
        for room, names in zip(rooms, before, strict=True):
            vars(room).update(names)
        forget()


def _with_words(turns, publish):
    dtypes = torch.float32, torch.bfloat16
    cases = [Case(shape, seed, dtype) for seed, shape in enumerate((FEW, UNALIGNED, LONG)) for dtype in dtypes]
    cases += [Case((n_rows, 40_000), 3, dtype, True) for dtype in dtypes for n_rows in (512, 333)]
    with publishing(publish):
        for _ in range(turns):
            results = [case.step() for case in cases]
            for case, result in zip(cases, results, strict=True):
                case.check(*result)


for _name, _fault in FAULTS.items():
    SITUATIONS[_name] = lambda turns, fault=_fault: _with_words(turns, fault)


@situation
def sixty_four_streams(turns):
    """Runs 64 streams of mixed priorities and shapes, for three seconds a turn."""
    shapes = (LONG, FULL, FEW, UNALIGNED, (64, 33_000), (900, 40_000))
    cases = [Case(shapes[n % len(shapes)], n % 12, (torch.float32, torch.bfloat16)[n % 2]) for n in range(24)]
    streams = [torch.cuda.Stream(priority=-(n % 6)) for n in range(64)]
    end, launches = time.monotonic() + 3 * turns, 0
    while time.monotonic() < end:
        results = []
        for n, stream in enumerate(streams):
            case = cases[n % len(cases)]
            with torch.cuda.stream(stream):
                results.append((case, case.step()))
        torch.cuda.synchronize()
        for case, result in results:
            case.check(*result)
        launches += 2 * len(results)
    print(f"{launches} launches in {3 * turns} s")


if __name__ == "__main__":
    name, turns = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    started = time.monotonic()
    SITUATIONS[name](turns)
    torch.cuda.synchronize()
    print(f"{name}: {turns} turns in {time.monotonic() - started:.1f} s on {current_device().name}", flush=True)
    os._exit(0)  # some processes that use torch alone crash when Python exits (pytorch#38228)
