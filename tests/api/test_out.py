"""out=: written directly where it is the input or has memory of its own, else by a copy; with torch's errors."""

import pytest
import torch

from portable_softmax import softmax
from portable_softmax.operators import launch

pytestmark = pytest.mark.kernel


@pytest.fixture
def x(where):
    return torch.randn(2, 3, 8, device=where)


def test_in_place(x):
    expected = x.softmax(-1)
    for ours in (x.clone(), x.transpose(0, 1).contiguous().transpose(0, 1), torch.stack([x, x], -1)[..., 0]):
        assert softmax(ours, out=ours) is ours
        torch.testing.assert_close(ours, expected)
    long = torch.randn(2, 20000, device=x.device)
    expected = long.softmax(-1)
    torch.testing.assert_close(softmax(long, out=long), expected)


def test_memory_that_is_read_is_written_last(x):
    memory = torch.randn(60, device=x.device)
    source, out = memory[:30].view(3, 10), memory[5:35].view(3, 10)
    expected = source.softmax(-1)
    torch.testing.assert_close(softmax(source, out=out), expected)
    mask = torch.randn(2, 3, 8, device=x.device)
    expected = (x + mask).softmax(-1)
    torch.testing.assert_close(softmax(x, mask=mask, out=mask), expected)
    rows = torch.rand(2, 3, 8, device=x.device) + 1
    expected = (x * rows[..., :1]).softmax(-1)
    torch.testing.assert_close(softmax(x, scale=rows[..., :1], out=rows), expected)
    launch.calls.clear()
    torch.testing.assert_close(softmax(x, scale=2.0, out=x[0].expand(2, 3, 8).clone()), (x * 2).softmax(-1))


def test_modes_of_autograd(x):
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        softmax(x.clone().requires_grad_(), out=torch.empty_like(x))
    with torch.inference_mode():
        out = softmax(x, out=torch.empty_like(x))
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="InferenceMode"):
            softmax(x, out=out)
        leaf = x.clone().requires_grad_()
        softmax(leaf, out=leaf)
