"""Plans are made offline with the vendors' compilers, and kernels compiled once; warm_up leaves nothing to compile."""

from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch

import portable_softmax
from portable_softmax import CompileError, Device, DtypeError, occupancy, plan, warm_up
from portable_softmax.planning.operands import contiguous_problem, problem_of
from portable_softmax.planning.problem import MAX_COLS, MAX_ROWS, Problem
from portable_softmax.planning.tiling import Tiling
from portable_softmax.runtime import compile as compiler
from portable_softmax.runtime import plans
from portable_softmax.runtime.kernel import kernels_of

H200 = "nvidia/h200"
NOT_INTEGERS = (4.5, 5), (4.0, 5), ("4", 5), (None, 5), (np.float32(4), 5), (np.array([4, 4]), 5), (5, 4.5)
REFUSED = [  # a function, its arguments, and the error
    *((plan, (*size, "float32"), TypeError, "integer") for size in NOT_INTEGERS),
    *((plan, (*size, "float32"), ValueError, "must be positive") for size in ((0, 5), (5, 0), (-1, 5))),
    (plan, (1, MAX_COLS + 1, "float16"), ValueError, f"a row of {MAX_COLS + 1} elements is too large; .* up to {MAX_COLS}"),
    (plan, (MAX_ROWS + 1, 4, "float16"), ValueError, f"{MAX_ROWS + 1} rows are too many; up to {MAX_ROWS} can be"),
    (plan, (5, 5, "int8"), DtypeError, "of int8 was requested; kernels compute float16, bfloat16, float32"),
    (warm_up, ((4096, 64), ["float32"]), ValueError, r"shapes should be a list of shapes, .*, not \(4096, 64\)"),
    (warm_up, ([(4096, 0.5)], ["float32"]), TypeError, "'float' object cannot be interpreted as an integer"),
    (warm_up, ([(4096, 64)], "float32"), ValueError, "dtypes should be like .*, not 'float32'"),
    (warm_up, ([(4096, 64)], ["int8"]), DtypeError, "a kernel of int8 was requested"),
    (partial(warm_up, measure=1), ([(4, 4)], ["float32"]), TypeError, "measure should be the number .* at least 2, .* not 1"),
    (occupancy, ({"num_warps": 4},), TypeError, r"such as KernelResources\(num_warps=4, .* not \{"),
]


@pytest.mark.parametrize(("ask", "arguments", "error", "words"), REFUSED)
def test_what_is_refused(ask, arguments, error, words):
    with pytest.raises(error, match=words):
        ask(*arguments, device=H200)


@pytest.mark.parametrize("integer", [np.int8, np.uint64, np.array, torch.tensor])
def test_sizes_may_be_integers_of_any_kind_and_large(integer):
    planned = plan(integer(100), integer(64), "float32", H200)
    assert planned == plan(100, 64, "float32", H200)
    assert type(planned.num_programs) is int
    assert contiguous_problem(MAX_ROWS, MAX_COLS, "float16").n_rows == MAX_ROWS
    long = 64, MAX_COLS + 1, 8
    assert problem_of(long, 1, [(8 * long[1], 8, 1)] * 2, ("float16", "float16")).n_cols == long[1]


def test_the_interpreter_plans_nothing_that_is_compiled(monkeypatch):
    """One error for all tilings; the model of Ascend needs no compiler."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(CompileError, match=r"^TRITON_INTERPRET is set, so nothing can be compiled; unset it"):
        warm_up([(12, 345)], ["float32"], device="amd/mi300x")
    assert plan(12, 345, "float32", "ascend/910b3").num_programs


def test_what_a_compiler_cannot_compile(monkeypatch):
    """An older Triton does not compile for targets that end its process, nor tuples that it lacks."""

    def compiled(device=H200, **tiling):
        problem, device = Problem(1, 1, "float32", "float32", 4), Device.from_profile(device)
        return plans._compile(problem, Tiling(1, 256, 1, **tiling), device)

    with monkeypatch.context() as patched:
        patched.setattr(compiler, "source_of", mock.Mock(side_effect=RuntimeError("PassManager::run failed")))
        with pytest.raises(CompileError, match=r"softmax_kernel\(\*fp32:16, .* for cuda/90: PassManager::run failed"):
            compiled(max_registers=40)
    for module in (plans, compiler):
        monkeypatch.setattr(module, "triton_version", lambda: (3, 2))
    with pytest.raises(CompileError, match=r"no tuples of tensors; install Triton 3\.3 or later"):
        compiled(blocks=6)
    with pytest.raises(CompileError, match=r"Triton 3\.2 does not compile for cuda/110 .*; install Triton 3\.7\.1 or later"):
        compiled("nvidia/jetson-agx-thor")


def test_what_is_planned_is_compiled_already(monkeypatch):
    """A launch of a plan must not wait for the compiler again; nothing is loaded onto a device that is not here."""
    monkeypatch.setattr(plans, "_choices", {})
    planned, device = plan(4097, 781, "bfloat16", H200), Device.from_profile(H200)
    monkeypatch.setattr(compiler, "source_of", lambda *arguments: pytest.fail("compiled again"))
    compiler.compiled(kernels_of(planned.problem, planned.tiling, device)[0], device)
    monkeypatch.setattr(plans, "loaded", lambda *kernels: pytest.fail("loaded"))
    assert warm_up([(4097, 781)], ["bfloat16"], device=H200) == [planned]


SHAPES = [(64, 333), (2, 3, 70), (5,), ()]


@pytest.mark.kernel
@pytest.mark.parametrize("form", ["softmax", "log_softmax"])
def test_a_call_plans_and_compiles_nothing_after_it(where, form):
    planned = warm_up(SHAPES, [torch.float32, "bfloat16"], form=form, backward=True)
    assert len(planned) == len(SHAPES) * 2 * 2
    before = len(plans._choices), compiler.compiled.cache_info().currsize
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape, device=where).to(dtype).requires_grad_()
            getattr(portable_softmax, form)(x).sum().backward()
    assert (len(plans._choices), compiler.compiled.cache_info().currsize) == before
