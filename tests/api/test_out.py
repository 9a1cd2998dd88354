"""out=: written directly where it is the input or has memory of its own, else by a copy; with torch's errors."""

import pytest
import torch

from portable_softmax import softmax

pytestmark = pytest.mark.kernel


@pytest.fixture
def x(where):
    return torch.randn(2, 3, 8, device=where)


def test_in_place(where):
    long = torch.randn(2, 20000, device=where)
    expected = long.softmax(-1)
    assert softmax(long, out=long) is long
    torch.testing.assert_close(long, expected)


def test_memory_that_is_read_is_written_last(x):
    memory, mask, rows = torch.randn(40_100, device=x.device), torch.randn_like(x), torch.rand_like(x) + 1
    overlapping = memory[:-100].view(2, 20_000), memory[100:].view(2, 20_000), {}
    for read, out, options in (overlapping, (x, mask, {"mask": mask}), (x, rows, {"scale": rows[..., :1]})):
        expected = softmax(read, **options)
        torch.testing.assert_close(softmax(read, out=out, **options), expected)


def test_results_of_inference_mode(x):
    with torch.inference_mode():
        out = softmax(x, out=torch.empty_like(x))
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="InferenceMode"):
            softmax(x, out=out)
        leaf = x.clone().requires_grad_()
        softmax(leaf, out=leaf)
