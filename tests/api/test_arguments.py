"""Arguments: what is refused, with the type of torch's error and words that say what to do; modules; explain."""

import copy
import pickle
import re
from fractions import Fraction

import numpy as np
import pytest
import torch

import portable_softmax
from portable_softmax import explain, plan, sample_token, softmax, token_log_probs
from portable_softmax.errors import DtypeError, LayoutError

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
    ({"scale": True}, TypeError, "argument 'scale' must be a number or Tensor, not bool"),
    *(({name: n}, ValueError, f"argument '{name}' is beyond the range of float64")
      for name in ("scale", "softcap", "sink") for n in (10**400, Fraction(10**5000))),
    ({"softcap": torch.ones(())}, TypeError, "argument 'softcap' must be a number, not Tensor"),
    ({"scale": torch.ones(5)}, RuntimeError, r"'scale' must broadcast against the shape \(2, 3, 1\)"),
    ({"temperature": torch.ones(3, 1, dtype=torch.bool)}, DtypeError, "must hold real numbers, not torch.bool"),
    ({"temperature": torch.ones(3, 1, device="meta")}, RuntimeError, "on the same device"),
    ({"mask": [True]}, TypeError, "argument 'mask' must be Tensor, not list"),
    ({"mask": torch.ones(5, dtype=torch.int64)}, DtypeError, "mask.bool()"),
    ({"mask": torch.ones(5, dtype=torch.int32), "dim": 0}, RuntimeError, "must have 1 words along dim 0"),
    ({"mask": torch.ones((), dtype=torch.int32)}, RuntimeError, "must have 1 words along dim 2"),
    ({"mask": torch.ones(5).to_sparse()}, LayoutError, "use to_dense"),
    ({"sink": torch.ones(7)}, RuntimeError, "argument 'sink'"),
    ({"out": torch.empty_like(X, dtype=torch.half)}, RuntimeError, "Expected out tensor to have dtype"),
    ({"out": torch.empty_like(X, device="meta")}, RuntimeError, "'out' must be on the same device"),
    ({"out": 3}, TypeError, "argument 'out' must be Tensor, not int"),
    ({"out": torch.ones(1).expand(X.shape)}, RuntimeError, "single memory location"),
    ({"out": torch.empty_like(X).requires_grad_()}, RuntimeError, "support automatic differentiation"),
    ({"out": torch.empty_like(X), "scale": torch.ones(3, 1).requires_grad_()}, RuntimeError, "automatic differentiation"),
    ({"input": None, "scale": 2.0}, TypeError, "argument 'input' must be Tensor, not NoneType"),
    ({"input": SPARSE, "scale": 2.0}, LayoutError, "use to_dense"),
    ({"input": NESTED, "scale": 2.0}, LayoutError, "to_padded_tensor"),
    ({"input": SPARSE}, NotImplementedError, "Sparse"),  # torch's error, as the next one
    ({"input": X.long()}, NotImplementedError, "not implemented for 'Long'"),
    ({"input": X.long(), "scale": 2.0}, DtypeError, "floating-point dtype of 16 bits or more"),
    ({"input": X.to(torch.float8_e5m2), "scale": 2.0}, DtypeError, "floating-point dtype of 16 bits or more"),
]  # fmt: skip
WRONG_LOG_PROBS = [
    ({"logits": X[..., :0]}, ValueError, "must have at least one token per row"),
    ({"logits": X[0]}, ValueError, r"shape \(3,\) of logits without dim"),
    ({"ids": IDS[:, :, None, None]}, ValueError, "or one more dimension"),
    ({"ids": IDS.float()}, DtypeError, "must hold integers"),
    ({"logits": X.long()}, DtypeError, "floating-point"),
    ({"logits": SPARSE}, LayoutError, "to_dense"),
    ({"ids": IDS.to("meta")}, RuntimeError, "same device"),
    ({"entropy": 1}, TypeError, "argument 'entropy' must be bool"),
    *(({"ignore_index": n}, ValueError, "'ignore_index' must be an integer of 64 bits") for n in (2**63, 2**70, -(2**63) - 1)),
    ({"ignore_index": [0]}, TypeError, "argument 'ignore_index' must be int, not list"),
    ({"grad_inplace": "no"}, TypeError, "argument 'grad_inplace' must be bool, not str"),
]
WORDS = torch.ones(2, 3, 1, dtype=torch.int32)
WRONG_MASKS = [
    ({"mask": torch.ones(2, 3, 2, dtype=torch.int32)}, RuntimeError, "must have 1 words along dim 2"),
    ({"mask": WORDS, "kept": IDS[..., None]}, ValueError, "'mask' and 'kept' exclude each other"),
    ({"kept": X > 0}, DtypeError, "'kept' must hold ids"),
    ({"kept": IDS}, ValueError, "'kept' must have the shape"),
    ({"kept": IDS[..., None] + 3}, IndexError, "'kept' must hold ids below 5, or -1"),
]
WRONG_SAMPLES = [
    ({"seed": 1.5}, TypeError, "'seed' must be an integer"),
    ({"seed": 2**63}, ValueError, "'seed' must be an integer of 64 bits"),
    ({"seed": X[..., 0]}, DtypeError, "'seed' must hold int64 or int32, not torch.float32"),
    ({"position": IDS[:, :2]}, RuntimeError, "'position' must broadcast"),
    ({"min_p": 1.0}, ValueError, "'min_p' must be at least 0 and below 1, not 1.0"),
    ({"min_p": -0.1}, ValueError, "'min_p' must be at least 0"),
    ({"temperature": X}, RuntimeError, "'temperature' must broadcast"),
    ({"generator": torch.Generator()}, TypeError, "'generator' must be None, not Generator; pass seed="),
    ({"logits": IDS}, DtypeError, "'logits' must have a floating-point dtype"),
    *(({"logits": torch.empty(1, size, device="meta")}, ValueError, f"tokens per row, not the shape .1, {size}")
      for size in (0, 2**31)),
]  # fmt: skip
HIDDEN, WEIGHT, BIAS = torch.randn(2, 3, 4).requires_grad_(), torch.randn(5, 4), torch.randn(5).requires_grad_()
WRONG_LINEAR = [
    ({"weight": WEIGHT[:, :3]}, ValueError, r"weight \(V, H\)"),
    ({"bias": BIAS[:-1]}, ValueError, r"bias \(V,\)"),
    ({"ids": IDS[:-1]}, ValueError, "'ids' must have the shape"),
    ({"hidden": [1.0]}, TypeError, "'hidden' must be Tensor"),
    ({"chunk_rows": 0}, ValueError, "'chunk_rows' must be a positive integer"),
    ({"accumulate": torch.bfloat16}, ValueError, "'accumulate' must be torch.float32"),
    ({"temperature": BIAS[:3, None]}, NotImplementedError, "have no gradient"),
    ({"temperature": BIAS[:2, None]}, RuntimeError, "must broadcast"),
    ({"kept": IDS[..., None] + 3}, IndexError, "linear_.*'kept' must hold ids"),
]
TABLES = [
    (softmax, {"input": X}, WRONG),
    (portable_softmax.log_softmax, {"input": X}, WRONG),
    (
        portable_softmax.softmin,
        {"input": X},
        [({"scale": scale}, TypeError, "must be a number or Tensor") for scale in (True, "2")],
    ),
    (token_log_probs, {"logits": X, "ids": IDS}, WRONG_LOG_PROBS + WRONG_MASKS),
    (sample_token, {"logits": X, "seed": 0}, WRONG_SAMPLES),
    (portable_softmax.linear_token_log_probs, {"hidden": HIDDEN, "weight": WEIGHT, "ids": IDS}, WRONG_LINEAR),
]
CALLS = [(function, right | wrong, *error) for function, right, table in TABLES for wrong, *error in table]


@pytest.mark.parametrize(("function", "arguments", "error", "words"), CALLS)
def test_errors(function, arguments, error, words):
    with pytest.raises(error, match=words):
        function(**arguments)


def test_types_of_results():
    numbers = torch.arange(6).view(2, 3)
    torch.testing.assert_close(softmax(numbers, 1, dtype=float), numbers.softmax(1, dtype=torch.float64))
    torch.testing.assert_close(softmax(numbers, numbers.numpy()[0, 0], torch.float32, scale=2.0), (2.0 * numbers).softmax(0))
    dtypes = [softmax(X.double(), -3, dtype, scale=torch.ones(1)).dtype for dtype in (torch.bfloat16, None)]
    assert dtypes == [torch.bfloat16, torch.float64]


@pytest.mark.parametrize("number", [Fraction(-1, 3), Fraction(0), np.float32(0.5), np.int64(2), 3, -1, 10**30])
@pytest.mark.parametrize("double", [False, True])
def test_numbers_of_any_type(number, double):
    x, floats = X.double() if double else X, {"scale": float(number), "temperature": float(number)}
    for options in ({"scale": number}, {"temperature": number}, {"sink": number}):
        torch.testing.assert_close(softmax(x, **options), softmax(x, **{name: float(number) for name in options}))
    expected = token_log_probs(x, IDS, **floats, softcap=2.0)
    torch.testing.assert_close(token_log_probs(x, IDS, scale=number, temperature=number, softcap=Fraction(2)), expected)


def test_modules_are_those_of_torch_with_options():
    module, plain = portable_softmax.Softmax(-1, scale=2.0, causal=True), portable_softmax.LogSoftmax()
    assert isinstance(module, torch.nn.Softmax)
    assert isinstance(plain, torch.nn.LogSoftmax)
    assert repr(module) == "Softmax(dim=-1, scale=2.0, causal=True)"
    seen = torch.rand(3, 5) < 0.8
    for copied in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(copied(X, mask=seen), softmax(X, scale=2.0, causal=True, mask=seen), equal_nan=True)
    torch.testing.assert_close(plain(X), X.log_softmax(-1))
    torch.testing.assert_close(module(X, scale=1.0), softmax(X, causal=True))


META = torch.empty(64, 4096, dtype=torch.bfloat16, device="meta")
H100 = "nvidia/h100-sxm"


def test_what_a_launch_computes_and_what_none_does():
    text = explain(META, device=H100)
    assert f"computes softmax in bfloat16 of 64 rows of 4096 columns on {H100}, strides (4096, 1) along dim 1" in text
    assert str(plan(64, 4096, "bfloat16", H100)) in text
    with pytest.raises(TypeError, match="unexpected keyword argument 'causal'"):
        explain(META, ids=META[:, 0], causal=True)
    for x, options, words in (
        (META, {"ids": torch.empty(64, dtype=torch.long, device="meta")}, "log-probabilities of tokens"),
        (META[:, ::2], {}, "operands are copied first, for their strides"),
        (META.double(), {}, "no kernel supports torch.float64"),
        (META[:0], {}, "without elements"),
        (META[:1].expand(2**31, 4096), {}, "no kernel supports .* or more than 2146435072 rows"),
        (META, {"softcap": 1e-30}, "options"),
        (META, {"device": None}, "the tensor is on meta"),
        (META.float(), {"dtype": torch.half}, "no kernel supports torch.float32 to torch.float16"),
        (X, {"device": None}, "the tensor is on cpu"),
    ):
        assert re.search(words, explain(x, **{"device": H100} | options))
