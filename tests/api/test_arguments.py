"""Arguments: what is refused, with the type of torch's error and words that say what to do; modules; explain."""

import copy
import pickle

import pytest
import torch

from portable_softmax import (
    DtypeError,
    LayoutError,
    LogSoftmax,
    Softmax,
    explain,
    log_softmax,
    plan,
    softmax,
    softmin,
    token_log_probs,
)

X, IDS = torch.randn(2, 3, 5), torch.tensor([[0, 4, -100], [1, 2, 3]])
SPARSE, NESTED = X.to_sparse(), torch.nested.nested_tensor([X[0], X[1, :2]])
WRONG = [
    ({"dim": 3}, IndexError, r"expected to be in range of \[-3, 2\], but got 3"),
    ({"dim": True}, TypeError, "argument 'dim' must be int, not bool"),
    ({"dtype": "float32"}, TypeError, "argument 'dtype' must be torch.dtype, not str"),
    ({"causal": "left"}, ValueError, "'upper_left' or 'lower_right', not 'left'"),
    ({"causal": ["left"]}, ValueError, r"'lower_right', not \['left'\]"),
    ({"causal": True, "dim": 0}, ValueError, "use mask="),
    ({"masked_rows": "one"}, ValueError, "must be 'nan' or 'zero', not 'one'"),
    ({"softcap": 0}, ValueError, "must be positive and finite, not 0"),
    ({"softcap": "30"}, TypeError, "argument 'softcap' must be a number, not str"),
    ({"scale": torch.ones(2, 1, 1), "dim": 0}, RuntimeError, "its size along dim 0 must be 1"),
    ({"scale": True}, TypeError, "argument 'scale' must be a number or Tensor, not bool"),
    ({"scale": torch.ones(5)}, RuntimeError, r"its size along dim 2 must be 1, .* broadcasts to \(2, 3, 1\)"),
    ({"temperature": torch.ones(4, 1)}, RuntimeError, "does not broadcast against input"),
    ({"temperature": torch.ones(3, 1, dtype=torch.bool)}, DtypeError, "must hold real numbers, not torch.bool"),
    ({"temperature": torch.ones(3, 1, device="meta")}, RuntimeError, "on the same device"),
    ({"mask": [True]}, TypeError, "argument 'mask' must be Tensor, not list"),
    ({"mask": torch.ones(5, dtype=torch.int)}, DtypeError, "mask.bool()"),
    ({"mask": torch.ones(5).to_sparse()}, LayoutError, "use to_dense"),
    ({"sink": torch.ones(7)}, RuntimeError, "argument 'sink'"),
    ({"out": torch.empty_like(X, dtype=torch.half)}, RuntimeError, "Expected out tensor to have dtype"),
    ({"out": torch.empty_like(X, device="meta")}, RuntimeError, "Expected out tensor to have device"),
    ({"out": 3}, TypeError, "argument 'out' must be Tensor, not int"),
    ({"out": torch.ones(1).expand(X.shape)}, RuntimeError, "single memory location"),
    ({"out": torch.empty_like(X).requires_grad_()}, RuntimeError, "automatic differentiation"),
    ({"out": torch.empty_like(X), "scale": torch.ones(3, 1).requires_grad_()}, RuntimeError, "automatic differentiation"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "error", "words"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, dict) else ""
)
@pytest.mark.parametrize("function", [softmax, log_softmax, softmin])
def test_errors(function, options, error, words):
    if function is softmin and isinstance(options.get("scale"), str | bool):
        pytest.skip("the negative is Python's")
    with pytest.raises(error, match=words):
        function(X, **options)


def test_tensors_without_rows():
    for x, error in ((None, TypeError), ([1.0], TypeError), (SPARSE, LayoutError), (NESTED, LayoutError)):
        with pytest.raises(error):
            softmax(x, scale=2.0)
    for x in (SPARSE, torch.arange(3)):  # torch's error
        with pytest.raises(NotImplementedError):
            softmax(x)
    for x in (torch.arange(3), torch.ones(3).to(torch.float8_e5m2)):
        with pytest.raises(DtypeError, match="floating-point dtype of 16 bits or more"):
            softmax(x, scale=2.0)


def test_types_of_results():
    numbers = torch.arange(6).view(2, 3)
    torch.testing.assert_close(softmax(numbers, 1, dtype=float), numbers.softmax(1, dtype=torch.float64))
    torch.testing.assert_close(softmax(numbers, 1, torch.float32, scale=2.0), (2.0 * numbers).softmax(1))
    assert softmax(X.half(), dtype=torch.float32, mask=X > 0).dtype is torch.float32
    assert softmax(X, dtype=torch.bfloat16).dtype is torch.bfloat16
    assert softmax(X.double(), scale=torch.ones(3, 1)).dtype is torch.float64


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((X[0], IDS), {}, ValueError, r"shape \(3,\) of logits without dim"),
        ((X, IDS[:, :, None, None]), {}, ValueError, "or one more dimension"),
        ((X, IDS.float()), {}, DtypeError, "must hold integers"),
        ((X.long(), IDS), {}, DtypeError, "floating-point"),
        ((SPARSE, IDS), {}, LayoutError, "to_dense"),
        ((X, IDS.to("meta")), {}, RuntimeError, "same device"),
        ((X, IDS), {"entropy": 1}, TypeError, "argument 'entropy' must be bool"),
        ((X, IDS), {"ignore_index": None}, TypeError, "argument 'ignore_index' must be int"),
        ((X, IDS), {"ignore_index": [0]}, TypeError, "argument 'ignore_index' must be int, not list"),
        ((X, IDS), {"grad_inplace": "no"}, TypeError, "argument 'grad_inplace' must be bool, not str"),
        ((X, IDS), {"scale": torch.ones(5)}, RuntimeError, "argument 'scale'"),
        ((X, IDS), {"out": torch.empty(2, 2)}, RuntimeError, "out of shape"),
        ((X.clone().requires_grad_(), IDS), {"out": torch.empty(2, 3)}, RuntimeError, "automatic differentiation"),
    ],
)
def test_errors_of_log_probs(arguments, options, error, words):
    with pytest.raises(error, match=words):
        token_log_probs(*arguments, **options)


def test_modules_are_those_of_torch_with_options():
    module, plain = Softmax(-1, scale=2.0, causal=True), LogSoftmax()
    assert isinstance(module, torch.nn.Softmax)
    assert isinstance(plain, torch.nn.LogSoftmax)
    assert repr(module) == "Softmax(dim=-1, scale=2.0, causal=True)"
    seen = torch.rand(3, 5) < 0.8
    for copied in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(copied(X, mask=seen), softmax(X, scale=2.0, causal=True, mask=seen), equal_nan=True)
    torch.testing.assert_close(plain(X), X.log_softmax(-1))
    torch.testing.assert_close(module(X, scale=1.0), softmax(X, causal=True))
    for wrong in ({"scale": torch.ones(1)}, {"size": 1}):
        with pytest.raises(TypeError):
            Softmax(-1, **wrong)


META = torch.empty(64, 4096, dtype=torch.bfloat16, device="meta")
H100 = "nvidia/h100-sxm"


def test_what_a_launch_computes_and_what_none_does():
    said = explain(META, device=H100)
    assert f"one launch computes bfloat16 softmax of 64 rows of 4096 columns on {H100}, strides (4096, 1) along dim 1" in said
    assert str(plan(64, 4096, "bfloat16", H100)) in said
    assert "log-probabilities of tokens" in explain(META, ids=torch.empty(64, dtype=torch.long, device="meta"), device=H100)
    assert explain(META[:, ::2], device=H100).startswith("the input is copied first: of its strides")
    with pytest.raises(ValueError, match="only scale, temperature and softcap"):
        explain(META, ids=META[:, 0], causal=True)
    assert "the tensor is on cpu" in explain(torch.randn(3, 5))
    assert "the tensor is on meta" in explain(META)
    assert "no kernel supports torch.float64" in explain(META.double(), device=H100)
    assert "without elements" in explain(META[:0], device=H100)
    assert "options" in explain(META, softcap=1e-30, device=H100)
