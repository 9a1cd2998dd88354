"""Arguments of scores that do not fit: what was asked, what was found and what to do, with torch's types of errors."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from pairs import PAIRS

from portable_softmax import DtypeError, softmax

X = torch.zeros(2, 3, 4, 5)
REFUSED = {
    "a mask that does not broadcast": (
        {"mask": torch.ones(3, 5, dtype=torch.bool)}, RuntimeError,
        r"'mask' of shape \(3, 5\) does not broadcast against input of shape \(2, 3, 4, 5\); .* like \(1, 3, 1, 5\)$",
    ),
    "a mask of other sizes": ({"mask": torch.ones(6, 5)}, RuntimeError, "does not broadcast .*; each of its last sizes must"),
    "a mask of more dimensions": ({"mask": torch.ones(1, 2, 3, 4, 5)}, RuntimeError, "argument 'mask' .* does not broadcast"),
    "a mask of integers": (
        {"mask": torch.ones(4, 5, dtype=torch.int64)}, DtypeError,
        r"argument 'mask' must be boolean, or floating to be added, not torch.int64; give mask.bool\(\), which is True",
    ),
    "a mask of complex numbers": ({"mask": torch.ones(4, 5) + 0j}, DtypeError, "must be boolean, or floating"),
    "a mask that is no tensor": ({"mask": [True] * 5}, TypeError, "argument 'mask' must be Tensor, not list"),
    "a sparse mask": (
        {"mask": torch.ones(4, 5).to_sparse()}, TypeError, r"'mask' must be a strided tensor; use mask.to_dense\(\)",
    ),
    "a mask elsewhere": (
        {"mask": torch.ones(4, 5, device="meta")}, RuntimeError,
        r"Expected all tensors to be on the same device, but input is on cpu and argument 'mask' on meta; use mask.to\(",
    ),
    "scales along dim": (
        {"scale": torch.ones(4, 5)}, RuntimeError,
        r"'scale' has one number for each row, so its size along dim 3 must be 1, and its shape is \(4, 5\); .* \(2, 3, 4, 1\)",
    ),
    "temperatures of a batch": ({"temperature": torch.ones(2)}, RuntimeError, r"does not broadcast .* like \(2, 1, 1, 1\)"),
    "a scale of booleans": ({"scale": torch.ones(1, dtype=torch.bool)}, DtypeError, "'scale' must hold real numbers"),
    "a scale of words": ({"scale": "2"}, TypeError, "argument 'scale' must be a number or Tensor, not str"),
    "a temperature of a boolean": ({"temperature": True}, TypeError, "'temperature' must be a number or Tensor, not bool"),
    "a temperature elsewhere": ({"temperature": torch.ones(1, device="meta")}, RuntimeError, "'temperature' on meta"),
    "sinks of other heads": (
        {"sink": torch.ones(4)}, RuntimeError,
        r"'sink' of shape \(4,\) is of one number for each head, and input of shape \(2, 3, 4, 5\) has 3 heads; "
        r"give it the shape \(3,\), or one for each row: \(2, 3, 4, 1\)",
    ),
    "sinks of sequences and heads": ({"sink": torch.ones(2, 3)}, RuntimeError, r"give it a shape like \(2, 3, 1, 1\)"),
    "sinks along dim": ({"sink": torch.ones(1, 5)}, RuntimeError, "'sink' has one number for each row"),
    "causal of other words": (
        {"causal": "lower"}, ValueError, "must be True, False, 'upper_left' or 'lower_right', not 'lower'",
    ),
    "causal of a number": ({"causal": 1}, ValueError, "argument 'causal' must be True, False"),
    "causal of None": ({"causal": None}, ValueError, "argument 'causal' must be True, False"),
    "causal along another dim": (
        {"causal": True, "dim": 1}, ValueError, "the last dimension, and dim is 1 of 4; give input.movedim",
    ),
    "no cap": ({"softcap": 0}, ValueError, "argument 'softcap' must be positive and finite, not 0; None is no cap"),
    "a negative cap": ({"softcap": -1.0}, ValueError, "positive and finite, not -1.0"),
    "a cap of nan": ({"softcap": float("nan")}, ValueError, "positive and finite, not nan"),
    "a cap without end": ({"softcap": float("inf")}, ValueError, "positive and finite, not inf"),
    "a cap too large for a float": ({"softcap": 10**400}, ValueError, "positive and finite, not 10{23}; None"),
    "a tensor as cap": ({"softcap": torch.ones(())}, TypeError, "argument 'softcap' must be a number, not Tensor"),
    "masked rows of 0": ({"masked_rows": 0}, ValueError, "argument 'masked_rows' must be 'nan' or 'zero', not 0"),
    "a dim that is not there": ({"scale": 2.0, "dim": 4}, IndexError, r"expected to be in range of \[-4, 3\], but got 4"),
    "a dtype of integers": ({"scale": 2.0, "dtype": torch.int32}, DtypeError, "name a floating-point dtype"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(form, given, error, words):
    with pytest.raises(error, match=words) as refused:
        PAIRS[form][0](X, **given)
    assert isinstance(refused.value, IndexError | DtypeError) or str(refused.value).startswith(f"{form}(): ")


def test_causal_needs_two_dimensions():
    with pytest.raises(ValueError, match="causal is of the last two dimensions, and input has 1; leave causal out"):
        softmax(torch.zeros(5), causal=True)


def test_only_tensors_are_taken(form):
    with pytest.raises(TypeError, match=rf"{form}\(\): argument 'input' must be Tensor, not list"):
        PAIRS[form][0]([1.0], scale=2.0)
    with pytest.raises(NotImplementedError, match=r"of a tensor of layout torch.sparse_coo .* x.to_dense\(\)"):
        PAIRS[form][0](X.to_sparse(), scale=2.0)
    with pytest.raises(DtypeError, match="name a floating-point dtype"):
        PAIRS[form][0](X.int(), scale=2.0)


@pytest.mark.parametrize("given", [{"scale": 2.0}, {"causal": True}, {"mask": torch.ones(5, dtype=torch.bool)}], ids=str)
def test_a_group_is_refused(form, given):
    name = re.escape(next(iter(given)))
    with pytest.raises(ValueError, match=rf"{form}\(\) of a shard was asked for with {name}; apply these to the input first"):
        PAIRS[form][0](X, group=object(), **given)


def test_dtensors_are_refused(tmp_path):
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        x = distribute_tensor(X, init_device_mesh("cpu", (1,)), [Replicate()])
        with pytest.raises(
            ValueError, match=r"of a DTensor was asked for with scale, causal; .* local tensors that hold whole rows"
        ):
            softmax(x, scale=2.0, causal=True)
        with pytest.raises(ValueError, match="of a DTensor was asked for with mask"):
            softmax(X, mask=x)
    finally:
        destroy_process_group()


@pytest.mark.parametrize(
    ("given", "like"),
    [
        ({"scale": np.float32(2)}, {"scale": 2.0}),
        ({"scale": 2}, {"scale": 2.0}),
        ({"scale": torch.tensor([2], dtype=torch.int64)}, {"scale": 2.0}),
        ({"temperature": torch.tensor(2.0)}, {"temperature": 2.0}),
        ({"sink": torch.arange(3.0)}, {"sink": torch.arange(3.0).view(1, 3, 1, 1)}),
        ({"sink": torch.ones(1)}, {"sink": 1.0}),
        ({"mask": torch.ones(5).to(torch.float8_e4m3fn)}, {"mask": torch.ones(5)}),
        ({"causal": "upper_left"}, {"causal": True}),
    ],
    ids=str,
)
def test_what_is_read_as_the_same(by_torch, given, like):
    x = torch.randn(X.shape)
    torch.testing.assert_close(softmax(x, **given), softmax(x, **like))


@pytest.mark.kernel
@pytest.mark.parametrize("in_place", [True, False])
def test_out_is_written(where, form, in_place):
    x = torch.randn(3, 5, device=where)
    given = {"temperature": torch.tensor([[0.0], [1.0], [2.0]], device=where), "causal": "lower_right"}
    expected = PAIRS[form][0](x, **given)
    out = x if in_place else torch.empty(5, 3, device=where).t()
    assert PAIRS[form][0](x, out=out, **given) is out
    assert torch.equal(out, expected)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float, but got double instead"):
        PAIRS[form][0](x, out=x.double(), **given)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        PAIRS[form][0](x, out=out, scale=torch.ones(1, device=where, requires_grad=True))


def test_the_example_of_usage_runs(by_torch):
    blocks = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs/usage.md").read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "temperature=" in block]
    names = {"torch": torch, "softmax": softmax}
    exec(code, names)
    assert names["weights"][1, :, :, 5:].eq(0).all()
    assert names["probabilities"][0].max() == 1
