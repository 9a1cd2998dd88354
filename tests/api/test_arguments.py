"""Arguments that are no strided tensors, no dims and no dtypes: what torch does with them, or an error of torch's type."""

import re

import numpy as np
import pytest
import torch
from pairs import PAIRS

from portable_softmax import DtypeError, LayoutError, patch_torch, softmax

pytestmark = pytest.mark.kernel


@pytest.fixture
def x(where):
    return torch.randn(2, 3, device=where)


def outcome(function, *arguments, **named):
    try:
        return function(*arguments, **named)
    except Exception as error:
        return error


def assert_alike(result, expected):
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(result, expected)
    else:
        assert isinstance(result, type(expected)), f"{result!r} for {expected!r}"


DIMS = [
    *(True, False, np.bool_(True), 0.0, 1.0, 1.5, np.float64(1), "a", None, (1,), [1], np.array(1), np.array([1])),
    *(torch.tensor(1), torch.tensor([1]), torch.tensor(1.0), torch.tensor(True)),
    *(np.int64(1), np.int32(-1), np.uint8(0), np.int64(2), 1, -2, 2, -3, 10**9),
]


@pytest.mark.parametrize("dim", DIMS, ids=repr)
def test_a_dim_is_read_as_torch_reads_it(x, dim):
    for _ in range(2):  # 1.0 and True are equal to 1, whose launch may be kept
        for same in (dim, int(dim) if isinstance(dim, float | bool) else 0):
            theirs = outcome(torch.softmax, x, same)
            if isinstance(theirs, RuntimeError) and re.search(r"\bname\b", str(theirs), re.IGNORECASE):
                theirs = TypeError("until torch 2.13 dimensions had names, which this package never took")
            assert_alike(outcome(softmax, x, same), theirs)


@pytest.mark.parametrize(("shape", "dim"), [((2, 3), 2), ((2, 3), -3), ((), 1), ((4,), -2)])
def test_a_dim_that_is_not_there_is_refused_in_torchs_words(where, form, shape, dim):
    ours, theirs = PAIRS[form]
    x = torch.zeros(shape, device=where)
    assert str(outcome(ours, x, dim)) == str(outcome(theirs, x, dim))
    with pytest.raises(IndexError, match=r"^Dimension out of range \(expected to be in range of"):
        ours(x.requires_grad_(), dim)


@pytest.mark.parametrize("dim", [2**70, -(2**70), 2**63, -(2**63) - 1, 2**63 - 1, -(2**63)])
def test_a_dim_of_more_than_64_bits_is_refused_in_torchs_words(x, form, dim):
    ours, theirs = PAIRS[form]
    for given in (x, x.clone().requires_grad_()):
        refused, expected = outcome(ours, given, dim), outcome(theirs, given, dim)
        assert (type(refused), str(refused)) == (type(expected), str(expected))
    with patch_torch():
        assert str(outcome(torch.softmax, x, dim)) == str(outcome(theirs, x, dim))


@pytest.mark.parametrize("dim", [True, 1.0, None])
def test_a_dim_that_is_none_is_named(x, form, dim):
    with pytest.raises(TypeError, match=rf"{form}\(\): argument 'dim' must be int, not {type(dim).__name__}"):
        PAIRS[form][0](x, dim)


DTYPES = [float, int, bool, complex, "float32", np.float32, np.dtype("float32"), [torch.float32], 6, torch.int32]


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_a_dtype_is_read_as_torch_reads_it(x, dtype):
    result = outcome(softmax, x, 1, dtype)
    assert_alike(result, outcome(torch.softmax, x, 1, dtype=dtype))
    if isinstance(result, TypeError) and not isinstance(result, NotImplementedError):
        assert str(result) == f"softmax(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}"


@pytest.mark.parametrize(
    "given", [[[1.0, 2.0]], None, np.zeros((2, 2)), 1.0, "x", torch.float32], ids=lambda x: type(x).__name__
)
def test_only_tensors_are_taken(where, form, given):
    with pytest.raises(TypeError, match=rf"{form}\(\): argument 'input' must be Tensor, not {type(given).__name__}"):
        PAIRS[form][0](given, 0)


def test_objects_with_a_torch_function_are_asked(where, form):
    class Duck:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function

    assert PAIRS[form][0](Duck(), 0) is getattr(torch.ops.portable_softmax, form).default


LAYOUTS = {
    "nested": (lambda x: torch.nested.nested_tensor([x, x]), "nested tensor .* x.to_padded_tensor"),
    "jagged": (lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged), "nested tensor .* x.to_padded_tensor"),
    "coo": (torch.Tensor.to_sparse, r"tensor of layout torch.sparse_coo .* x.to_dense\(\)"),
    "csr": (torch.Tensor.to_sparse_csr, r"tensor of layout torch.sparse_csr .* x.to_dense\(\)"),
    "mkldnn": (torch.Tensor.to_mkldnn, r"tensor of layout torch._mkldnn .* x.to_dense\(\)"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "words"), LAYOUTS.values(), ids=LAYOUTS)
def test_other_layouts_are_refused(where, x, form, make, words):
    if make is torch.Tensor.to_mkldnn and where.type != "cpu":
        pytest.skip("mkldnn tensors are on the CPU")
    for dtype in (None, torch.float32):
        with pytest.raises(LayoutError, match=f"{form} of a {words}") as refused:
            PAIRS[form][0](make(x), -1, dtype)
        assert isinstance(refused.value, NotImplementedError)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.int32], ids=str)
def test_other_types_are_refused_unless_they_are_to_be_converted(x, form, dtype):
    ours, theirs = PAIRS[form]
    x = x.to(dtype)
    with pytest.raises(DtypeError, match=f"of {str(dtype)[6:]} was asked for; .* or give one as dtype="):
        ours(x, 1)
    assert isinstance(outcome(theirs, x, 1), NotImplementedError)
    assert_alike(outcome(ours, x, 1, torch.float32), outcome(theirs, x, 1, dtype=torch.float32))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.complex64], ids=str)
def test_gradients_of_converted_tensors_are_converted_back(x, dtype):
    leaves = [x.to(dtype).requires_grad_() for _ in range(2)]
    dy = torch.randn_like(x)
    for function, leaf in zip(PAIRS["softmax"], leaves, strict=True):
        function(leaf, 1, dtype=torch.float32).backward(dy)
    assert leaves[0].grad.dtype == dtype
    torch.testing.assert_close(leaves[0].grad.to(torch.complex64), leaves[1].grad.to(torch.complex64), rtol=0.3, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_are_refused(x):
    x = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    with pytest.raises(DtypeError, match="softmax of quint8 was asked for"):
        softmax(x, 1)
    assert isinstance(outcome(torch.softmax, x, 1), NotImplementedError)
