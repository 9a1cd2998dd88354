"""explain: the launch of a call, on the device that it is for, or who computes it instead."""

import pytest
import torch

from portable_softmax import batch_invariant, explain

META = torch.empty(64, 4096, dtype=torch.bfloat16, device="meta")
H100 = "nvidia/h100-sxm"


def test_what_no_kernel_computes():
    assert "the tensor is on cpu" in explain(torch.randn(3, 5))
    assert "the tensor is on meta" in explain(META)
    assert "no kernel does with torch.float64" in explain(META.double(), device=H100)
    assert "no elements" in explain(META[:0], device=H100)
    assert "options" in explain(META, softcap=1e-30, device=H100)


@pytest.mark.slow
def test_launches_of_a_device_that_is_not_here():
    for text, words in (
        (explain(META, device=H100), "softmax of 64 rows of 4096 columns"),
        (explain(META.t(), 0, scale=2.0, mask=META.t() > 0, device=H100), "scores"),
        (explain(META[:, ::2], device=H100), "copied first: of its strides"),
        (explain(META, ids=torch.empty(64, dtype=torch.long, device="meta"), entropy=True, device=H100), "log-probabilities"),
    ):
        assert words in text
    with batch_invariant():
        assert "batch_invariant reads rows" in explain(META.t(), device=H100)


def test_errors():
    with pytest.raises(ValueError, match="only scale, temperature and softcap"):
        explain(META, ids=torch.empty(64, dtype=torch.long, device="meta"), causal=True, device=H100)
    with pytest.raises(TypeError, match="must be Tensor"):
        explain([1.0])
    with pytest.raises(IndexError):
        explain(META, 2)
