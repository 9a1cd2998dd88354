"""The softmax of scores into `out=`: the kernel writes it there, or it is copied where the kernel may not."""

import math

import pytest
import torch

from portable_softmax import log_softmax, softmax
from portable_softmax.operators import launching, memory

pytestmark = pytest.mark.kernel
FORMS = {"softmax": softmax, "log_softmax": log_softmax}


@pytest.fixture
def launched(monkeypatch):
    """Returns the results of launches, as they come."""
    results, bind = [], launching.bind_problem
    memory.forget()

    def bound(*given):
        launch = bind(*given)
        return lambda *operands: results.append(operands[0]) or launch(*operands)

    monkeypatch.setattr(launching, "bind_problem", bound)
    return results


def given(where, shape=(2, 3, 40)):
    """Returns x, and arguments of scores that leave each row an element."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(where)
    mask = (torch.rand(shape[-1], generator=torch.Generator().manual_seed(1)) < 0.7).to(where)
    mask[0] = True
    temperature = torch.tensor([1.0, 0.0, -0.5], device=where)[:, None]
    return x, {"mask": mask, "temperature": temperature, "causal": "lower_right"}


def assert_alike(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["contiguous", "transposed", "padded", "in place"])
def test_the_kernel_writes_it(where, launched, form, place):
    x, arguments = given(where)
    expected = FORMS[form](x.clone(), **arguments)
    out = {
        "contiguous": torch.full_like(x, math.nan),
        "transposed": torch.full_like(x, math.nan).transpose(0, 1).contiguous().transpose(0, 1),
        "padded": torch.full((2, 3, 47), math.nan, device=where)[..., 5:45],
        "in place": x,
    }[place]
    launched.clear()
    version = out._version
    assert FORMS[form](x, out=out, **arguments) is out
    assert_alike(out, expected)
    assert [each.data_ptr() for each in launched] == [out.data_ptr()]
    assert out._version > version, "autograd knows that it is written"


@pytest.mark.parametrize("cols", [781, 40_000])
def test_long_rows_in_place_follow_calls_elsewhere(where, launched, cols):
    """A launch that is kept for another tensor may share rows, which one in place may not."""
    x, _ = given(where, (2, cols))
    arguments = {"temperature": torch.tensor([[0.7], [0.0]], device=where)}
    expected = softmax(x, **arguments)
    assert softmax(x, out=torch.empty_like(x), **arguments).data_ptr() != x.data_ptr()
    softmax(x, out=x, **arguments)
    assert_alike(x, expected)


def test_a_mask_that_is_written_over_is_read_first(where, launched):
    x, _ = given(where)
    mask = torch.randn(x.shape, generator=torch.Generator().manual_seed(2)).to(where)
    expected = softmax(x, mask=mask)
    launched.clear()
    softmax(x, mask=mask, out=mask)
    assert_alike(mask, expected)
    assert launched[0].data_ptr() != mask.data_ptr()


def test_another_shape_is_resized_and_copied(where):
    x, arguments = given(where)
    out = torch.empty(0, device=where)
    assert_alike(softmax(x, out=out, **arguments), softmax(x, **arguments))
    assert out.shape == x.shape


def test_a_number_has_one_result(where):
    x, out = torch.tensor(2.0, device=where), torch.tensor(math.nan, device=where)
    assert softmax(x, 0, scale=3.0, out=out) == 1
