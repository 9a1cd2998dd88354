"""Situations in which programs that share rows do not run undisturbed.

kernels/test_neighbours.py runs each in a process of its own: python tests/support/situations.py NAME [TURNS]
"""

import contextlib
import ctypes
import os
import sys
import threading
import time

import torch
import triton
import triton.language as tl
from direct import planned
from faults import FAULTS

from portable_softmax import current_device, plan, softmax
from portable_softmax.runtime.workspace import next_number

LONG, FULL, FEW = (600, 65_536), (24, 131_072), (3, 200_000)  # more programs than run at once; about as many; few
UNALIGNED = (40, 100_003)
STREAM_PER_THREAD = 2  # cudaStreamPerThread: in each thread another stream
SITUATIONS = {}


def situation(function):
    SITUATIONS[function.__name__] = function
    return function


class Case:
    """A softmax and its gradient, computed once by `step` while nothing else runs, and close to float64."""

    def __init__(self, shape, seed=0, dtype=torch.float32, side_by_side=False, step=None):
        self.dim = 0 if side_by_side else 1
        shape = shape[::-1] if side_by_side else shape
        generator = torch.Generator("cuda").manual_seed(seed)
        self.x = torch.empty(shape, device="cuda", dtype=dtype).normal_(generator=generator).requires_grad_()
        self.dy = torch.empty(shape, device="cuda", dtype=dtype).normal_(generator=generator)
        assert side_by_side or plan(*shape, self.x.dtype).tiling.strategy == "shared", f"{shape} is not shared here"
        self.y = softmax(self.x.detach(), self.dim)
        y, dx = (step or Case.step)(self)
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

    def step_in_this_thread(self):
        """Autograd's own threads have their own current contexts."""
        y = softmax(self.x.detach(), self.dim)
        return y, torch.ops.portable_softmax.softmax_backward(self.dy, y, self.dim, self.dy.dtype)

    def step_in_place(self):
        """The softmax overwrites a copy of x, and the gradient one of dy."""
        y, dx = self.x.detach().clone(), self.dy.clone()
        softmax(y, self.dim, out=y)
        given = (dx, self.y) if self.dim else (dx[None], self.y[None])
        planned(current_device(), (given[0], *given), backward=True)
        return y, dx

    def check(self, y, dx):
        """Compares with the bits of a run in which nothing else ran."""
        assert torch.equal(y, self.alone[0]), "the softmax differs"
        assert torch.equal(dx, self.alone[1]), "the gradient differs"


def on_streams(cases, streams, turns, step=Case.step):
    """Runs each case on its stream, `turns` times, then waits for all and compares."""
    torch.cuda.synchronize()
    for _ in range(turns):
        results = []
        for case, stream in zip(cases, streams, strict=True):
            with torch.cuda.stream(stream):
                results.append(step(case))
        torch.cuda.synchronize()
        for case, result in zip(cases, results, strict=True):
            case.check(*result)


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


@situation
def a_green_context(turns):
    from torch.cuda.green_contexts import GreenContext

    cases = [Case(FULL, 1), Case(LONG, 2), Case(FEW, 3)]
    context = GreenContext.create(num_sms=8, device_id=0)
    context.set_context()
    try:
        for _ in range(turns):
            for case in cases:
                result = case.step_in_this_thread()
                torch.cuda.synchronize()
                case.check(*result)
    finally:
        context.pop_context()


@situation
def a_stream_handle_that_is_reused(turns):
    """Destroys a stream while its work runs. A new stream gets the same handle, and the allocator takes it for the old one."""
    cuda = ctypes.CDLL("libcuda.so.1")
    cases = [Case(LONG, 1), Case(FULL, 2)]
    handles = []
    for _ in range(turns):
        results = []
        for case in cases:
            handle = ctypes.c_void_p()
            assert cuda.cuStreamCreate(ctypes.byref(handle), 1) == 0
            handles.append(handle.value)
            with torch.cuda.stream(torch.cuda.ExternalStream(handle.value)):
                results.append((case, case.step()))
            assert cuda.cuStreamDestroy_v2(handle) == 0
        torch.cuda.synchronize()
        for case, result in results:
            case.check(*result)
    print(f"{len(set(handles))} handles for {len(handles)} streams")


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


@situation
def torch_compile_with_reduced_overhead(turns):
    case = Case(FULL, 1)
    function = torch.compile(lambda x: softmax(x * 1.0, -1) + 0.0, mode="reduce-overhead")
    for turn in range(turns):
        torch.compiler.cudagraph_mark_step_begin()
        if turn % 5 == 4:
            softmax(torch.randn(LONG, device="cuda"))
        y = function(case.x)
        torch.testing.assert_close(y.detach(), case.alone[0], rtol=0, atol=0)
        (dx,) = torch.autograd.grad(y, case.x, case.dy)
        torch.testing.assert_close(dx, case.alone[1], rtol=0, atol=0)


@situation
def a_memory_pool_of_the_callers(turns):
    case = Case(FULL, 1)
    pool = torch.cuda.MemPool()
    for _ in range(turns):
        with torch.cuda.use_mem_pool(pool):
            result = case.step()
        case.check(*result)
        outside = case.step()
        del result
        case.check(*outside)
    del outside
    torch.cuda.synchronize()
    used = sum(segment["active_size"] for segment in pool.snapshot())
    assert used == 0, f"{used} bytes of the caller's pool are kept"


@situation
def threads_with_streams_of_their_own(turns):
    """Calls the gradient in the case's own thread: autograd's thread would have another default stream with the same handle."""
    shapes, failures = (FULL, LONG, FEW, UNALIGNED), []
    cases = [Case(shapes[n % len(shapes)], n) for n in range(8)]

    def work(case, stream):
        step = case.step_in_this_thread if stream.cuda_stream == STREAM_PER_THREAD else case.step
        try:
            for _ in range(turns):
                with torch.cuda.stream(stream):
                    result = step()
                    stream.synchronize()
                    case.check(*result)
        except BaseException as error:
            failures.append(error)

    per_thread = [torch.cuda.ExternalStream(STREAM_PER_THREAD), *(torch.cuda.Stream() for _ in cases[1:])]
    threads = [threading.Thread(target=work, args=each) for each in zip(cases, per_thread, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@situation
def several_processes(turns):
    import subprocess

    command = [sys.executable, __file__, "sixty_four_streams", str(max(1, turns // 8))]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(3)]
    for each in running:
        output, _ = each.communicate()
        assert each.returncode == 0, output


@contextlib.contextmanager
def publishing(replacement):
    """Makes kernels that are compiled within publish by `replacement`, a @triton.jit function.

    They exchange numbers by another function than `exchange.swap`, if one is given.
    """
    from portable_softmax.kernels import exchange, fallback, softmax
    from portable_softmax.operators import memory
    from portable_softmax.runtime import compiled as spec

    rooms = exchange, fallback, softmax
    before = [dict(vars(room)) for room in rooms]

    def forget():
        memory.forget()
        spec._compiled.clear()

    try:
        exchange.publish = fallback.publish = replacement
        for room in rooms:  # make new functions of all that publish: a @triton.jit function keeps the old one
            for name, value in list(vars(room).items()):
                if isinstance(value, triton.JITFunction) and value is not replacement and value.fn.__module__ == room.__name__:
                    setattr(room, name, triton.jit(value.fn))
        for room in rooms:
            for name, value in list(vars(room).items()):
                if isinstance(value, triton.JITFunction) and value.fn.__module__ != room.__name__ and value is not replacement:
                    setattr(room, name, getattr(sys.modules[value.fn.__module__], name, value))
        forget()
        assert softmax.swap.fn.__globals__["publish"] is softmax.do_alone.fn.__globals__["publish"] is replacement
        yield
    finally:
        for room, names in zip(rooms, before, strict=True):
            vars(room).update(names)
        forget()


def _cases(step):
    dtypes = torch.float32, torch.bfloat16
    cases = [Case(shape, seed, dtype, step=step) for seed, shape in enumerate((FEW, UNALIGNED, LONG)) for dtype in dtypes]
    return cases + [Case((n_rows, 40_000), 3, dtype, True, step) for dtype in dtypes for n_rows in (512, 333)]


def _with_words(turns, publish, step=Case.step):
    cases = _cases(step)
    with publishing(publish):
        for _ in range(turns):
            results = [step(case) for case in cases]
            for case, result in zip(cases, results, strict=True):
                case.check(*result)


for _name, _fault in FAULTS.items():
    SITUATIONS[_name] = lambda turns, fault=_fault: _with_words(turns, fault)


@situation
def in_place_beside_other_launches(turns):
    cases = _cases(Case.step_in_place)
    on_streams(cases, [torch.cuda.Stream(priority=-(n % 6)) for n, _ in enumerate(cases)], turns, Case.step_in_place)


@situation
def memory_full_of_words_of_launches_before(turns):
    """Gives a launch the memory of an earlier one with the same rows: its input, words and results were different."""
    cases = [Case(FEW, seed) for seed in range(4)]
    numbers = {next_number() for _ in range(1000)}
    assert len(numbers) == len({n % 2**32 for n in numbers}) == len({n >> 32 for n in numbers}) == 1000
    for _ in range(turns):
        results = [case.step() for case in cases]
        for case, result in zip(cases, results, strict=True):
            case.check(*result)


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
