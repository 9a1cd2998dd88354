"""Calls that repeat one before: taken when all is as it was, and by nothing that only looks so."""

import gc
import warnings
import weakref

import pytest
import torch
from pairs import PAIRS

from portable_softmax import batch_invariant, log_softmax, softmax
from portable_softmax.operators import dispatch, memory

pytestmark = pytest.mark.kernel


@pytest.fixture
def x(where):
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).to(where)


@pytest.fixture
def checks(monkeypatch):
    """Tensors that all checks were made of, because no call was repeated."""
    made = []
    monkeypatch.setattr(
        dispatch, "plainly", lambda form, x, *given, find=dispatch.plainly: made.append(x) or find(form, x, *given)
    )
    memory.forget()
    return made


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_call_like_the_last_is_repeated(x, form, checks, needs_gradient):
    ours, theirs = PAIRS[form]
    for turn in range(5):
        leaves = [(x + turn).requires_grad_(needs_gradient) for _ in range(2)]
        results = ours(leaves[0], 1), theirs(leaves[1], 1)
        torch.testing.assert_close(*results)
        if needs_gradient:
            weights = torch.randn_like(x)
            torch.testing.assert_close(
                *(torch.autograd.grad(y, leaf, weights)[0] for y, leaf in zip(results, leaves, strict=True))
            )
    assert len(checks) == 1, "the first plans"


def test_shapes_that_take_turns_are_both_repeated(x, checks):
    for turn in range(5):
        for tensor in (x + turn, x[:3] + turn):
            torch.testing.assert_close(softmax(tensor, 1), torch.softmax(tensor, 1))
    assert len(checks) == 2


OTHERS = {
    "dim": lambda x: softmax(x, 0),
    "form": lambda x: log_softmax(x, 1),
    "type of the result": lambda x: softmax(x, 1, torch.float64),
    "type": lambda x: softmax(x.double(), 1),
    "shape": lambda x: softmax(x[:3], 1),
    "strides": lambda x: softmax(x.reshape(8, 6).t(), 1),
    "alignment": lambda x: softmax(torch.cat([x, x]).flatten()[1:49].view(6, 8), 1),
    "batch invariance": lambda x: batch_invariant()(softmax)(x, 1),
    "inference": lambda x: torch.inference_mode()(softmax)(x, 1),
    "meta": lambda x: softmax(x.to("meta"), 1),
    "vmap": lambda x: torch.vmap(lambda row, x: softmax(x, 1) + row, in_dims=(0, None))(x[:, 0], x),
    "batched": lambda x: torch.vmap(lambda x: softmax(x, 1))(x[None]),
    "grad": lambda x: torch.func.grad(lambda x: softmax(x, 1).square().sum())(x),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_call_that_differs_is_not_a_repetition(x, checks, other):
    for _ in range(3):
        softmax(x, 1)
    checks.clear()
    OTHERS[other](x)
    assert checks
    torch.testing.assert_close(softmax(x, 1), torch.softmax(x, 1))


def test_tensors_of_one_shape_that_take_turns_are_all_repeated(x, checks):
    strided = torch.cat([x, x], 1)[:, :8]
    unaligned, aligned = x.flatten()[1:41].view(5, 8), x.flatten()[:40].view(5, 8)
    leaf = aligned.clone().requires_grad_()
    for turn in range(4):
        for tensor in (unaligned, aligned, leaf, strided[:5]):
            result = softmax(tensor, 1)
            assert result.requires_grad is tensor.requires_grad
            torch.testing.assert_close(result, torch.softmax(tensor, 1))
        assert len(checks) == 4, turn


def test_no_more_than_so_many_tensors_of_one_shape_are_remembered(x, checks, monkeypatch):
    monkeypatch.setattr(memory, "MOST_REPEATS", 2)
    alike = [torch.cat([x] * times, 1)[:, :8] for times in (1, 2, 3)]
    for tensor in alike * 3:
        torch.testing.assert_close(softmax(tensor, 1), torch.softmax(tensor, 1))
    (repeats,) = (
        memory.find(key) for key in list(memory._calls) if len(key) == len(("form", "dim", "dtype", "invariant", "shape"))
    )
    assert len(repeats) == 2
    checks.clear()
    for tensor in alike[1:]:
        softmax(tensor, 1)
    assert not checks, "the last ones are remembered"


def test_gradients_are_recorded_when_they_are_asked_for(x, checks):
    leaf = x.clone().requires_grad_()
    for _ in range(2):
        for _ in range(3):
            with torch.no_grad():
                assert not softmax(leaf, 1).requires_grad
        for _ in range(3):
            assert softmax(leaf, 1).requires_grad
            assert not softmax(x, 1).requires_grad


def test_tracing_records_the_operator_though_a_call_could_be_repeated(x, checks):
    for _ in range(3):
        softmax(x, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(lambda x: softmax(x, 1), x)
    assert "portable_softmax::softmax" in str(traced.graph)


@pytest.mark.filterwarnings("ignore")
def test_what_has_no_sizes_or_strides_does_not_end_the_process(x, checks):
    for _ in range(3):
        softmax(x, 1)
    for make in (lambda x: torch.nested.nested_tensor([x, x]), torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr):
        with pytest.raises(NotImplementedError):
            softmax(make(x), 1)


def test_no_tensor_is_kept_alive(x):
    memory.forget()
    for leaf in (x.clone(), x.clone().requires_grad_()):
        for _ in range(3):
            softmax(leaf, 1)
    seen = weakref.ref(leaf)
    del leaf
    gc.collect()
    assert seen() is None


def test_so_many_calls_are_kept_and_no_more(x, checks, monkeypatch):
    monkeypatch.setattr(memory, "MOST_CALLS", 3)
    for n_rows in (1, 2, 3, 4, 5, 6, 1):
        torch.testing.assert_close(softmax(x[:n_rows], 1), torch.softmax(x[:n_rows], 1))
        assert len(memory._calls) <= 3
