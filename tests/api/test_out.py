"""out=: any strides, the input itself, and memory that both share; torch's errors and warnings, in torch's words."""

import itertools
import warnings

import pytest
import torch
from closeness import assert_close, expected, terms_of
from pairs import FLOATS, PAIRS

from portable_softmax import explain, softmax
from portable_softmax.operators import launching, memory
from portable_softmax.operators.overlap import are_disjoint, overlap_of

pytestmark = pytest.mark.kernel
GUARD = 7.0
INF, NAN = float("inf"), float("nan")


@pytest.fixture
def x(where):
    """Rows that are masked in part, wholly, with a nan, with inf, and far from 0."""
    x = torch.randn(6, 37, generator=torch.Generator().manual_seed(0)) * 3
    x[0, :20], x[1], x[2, 5], x[3, 7] = -INF, -INF, NAN, INF
    x[4] += 3e4
    return x.to(where)


def assert_softmax(form, result, x, dim=1):
    given = x.double()
    assert_close(result, expected("log_softmax" if form == "log_softmax" else "softmax", given, dim), terms_of(form))


def outcome(function, *given, **named):
    try:
        return function(*given, **named)
    except Exception as error:
        return error


PLACES = {  # a tensor of [rows, columns] in memory that the first argument makes
    "contiguous": lambda memory, rows, cols: memory(rows, cols),
    "transposed": lambda memory, rows, cols: memory(cols, rows).t(),
    "wider rows": lambda memory, rows, cols: memory(rows, cols + 11)[:, 3 : cols + 3],
    "every second element": lambda memory, rows, cols: memory(rows, 2 * cols)[:, ::2],
    "every second row": lambda memory, rows, cols: memory(2 * rows, cols)[::2],
    "in matrices": lambda memory, rows, cols: memory(cols, 3, rows + 5)[:, 1, :rows].t(),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_strides_of_the_result(x, where, form, place, dtype):
    """In place and elsewhere; nothing is written beside the result."""
    made = []
    memory = lambda *shape: made.append(torch.full(shape, GUARD, device=where, dtype=dtype)) or made[-1]  # noqa: E731
    for dim, in_place in itertools.product((0, 1), (False, True)):
        out = PLACES[place](memory, *x.shape)
        strides, before = out.stride(), x.to(dtype)
        given = out.copy_(x) if in_place else before
        assert PAIRS[form][0](given, dim, out=out) is out
        assert out.stride() == strides
        assert_softmax(form, out, before, dim)
        out.fill_(GUARD)
        assert (made.pop() == GUARD).all(), "something was written beside the result"


@pytest.mark.each_value
@pytest.mark.parametrize("scores", [{}, {"masked_rows": "zero"}], ids=["plain", "scores"])
@pytest.mark.parametrize("shape", [(3, 70_001), (1, 200_000), (40_000, 5), (2, 9000, 3)], ids=str)
def test_long_rows_and_many_in_place_follow_calls_elsewhere(where, form, shape, scores):
    """A launch that is kept for another tensor may share rows, which one in place may not."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(where)
    before = x.clone()
    PAIRS[form][0](x, 1, out=torch.empty_like(x), **scores)
    PAIRS[form][0](x, 1, out=x, **scores)
    if scores:
        torch.testing.assert_close(x, PAIRS[form][0](before, 1, **scores), rtol=1e-6, atol=1e-7)
    else:
        assert_softmax(form, x, before)


def test_an_in_place_call_is_planned_as_one(x, plans):
    x, other = x.clone(), torch.empty_like(x)
    softmax(x, 1, out=x)
    softmax(x, 1, out=other)
    softmax(x, 1, out=x.t().contiguous().t())
    softmax(x, 1)
    assert [problem.in_place for problem, _ in plans] == [True, False, False, False]
    softmax(x, 1, out=x)
    softmax(x, 1, out=other)
    assert len(plans) == 4, "a kept call is planned again"


@pytest.fixture
def launched(monkeypatch):
    """Returns the results of launches, as they come."""
    results, bind = [], launching.bind_problem
    memory.forget()

    def bound(*given):
        launch = bind(*given)
        return lambda *operands: results.append(operands[0].data_ptr()) or launch(*operands)

    monkeypatch.setattr(launching, "bind_problem", bound)
    return results


@pytest.mark.parametrize("place", ["contiguous", "every second row", "wider rows", "in place"])
def test_the_kernel_writes_the_softmax_of_scores(x, where, launched, form, place):
    given = {"mask": torch.arange(37, device=where) % 5 > 0, "temperature": x[:, :1].nan_to_num(1, 1, 1), "causal": True}
    expected = PAIRS[form][0](x.clone(), **given)
    out = x if place == "in place" else PLACES[place](lambda *shape: torch.full(shape, NAN, device=where), *x.shape)
    launched.clear()
    version = out._version
    assert PAIRS[form][0](x, out=out, **given) is out
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-7, equal_nan=True)
    assert launched == [out.data_ptr()]
    assert out._version > version, "autograd knows that it is written"


def test_a_mask_that_is_written_over_is_read_first(x, launched):
    mask = x.nan_to_num(0, 0, 0)
    expected = softmax(x, mask=mask)
    launched.clear()
    softmax(x, mask=mask, out=mask)
    torch.testing.assert_close(mask, expected, rtol=1e-6, atol=1e-7, equal_nan=True)
    assert launched != [mask.data_ptr()]


@pytest.mark.parametrize("given", [torch.int32, torch.uint8, torch.bool, torch.float16], ids=str)
def test_a_dtype_that_the_input_is_converted_to(where, given):
    x = torch.tensor([[0, 1, 1], [1, 0, 0]], device=where).to(given)
    out = torch.empty(2, 3, device=where, dtype=torch.float64)
    softmax(x, 1, torch.float64, out=out)
    assert_softmax("softmax", out, x)


@pytest.mark.parametrize("shape", [(), (0, 5), (4, 0), (1, 1)], ids=str)
def test_shapes_with_few_elements(where, form, shape):
    x, out = torch.zeros(shape, device=where), torch.full(shape, GUARD, device=where)
    PAIRS[form][0](x, -1, out=out)
    assert torch.equal(out, PAIRS[form][1](x, -1))
    assert PAIRS[form][0](x, -1, scale=3.0, out=out) is out


RESIZED = {"empty": (0,), "smaller": (3, 3), "larger": (8, 40), "as many elements": (37, 6)}


@pytest.mark.filterwarnings("ignore:An output with one or more")
@pytest.mark.parametrize("shape", RESIZED.values(), ids=RESIZED)
def test_another_shape_is_resized_with_torchs_warning(x, form, shape):
    ours, theirs = PAIRS[form]
    told = []
    for function in (ours, theirs):
        out = torch.empty(shape, device=x.device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(x, 1, out=out)
        resized = [each for each in caught if "resized" in str(each.message)]  # the interpreter's numpy warns of nan
        assert all(each.filename == __file__ for each in resized)
        told.append(([str(each.message).split(" (Triggered")[0] for each in resized], out.shape, out.stride()))
        assert_softmax(form, out, x)
    assert told[0] == told[1]
    out = torch.empty(shape, device=x.device)
    assert torch.equal(ours(x, 1, out=out, sink=1.0).nan_to_num(), ours(x, 1, sink=1.0).nan_to_num())


REFUSED = {
    "float64": lambda x: torch.empty(x.shape, device=x.device, dtype=torch.float64),
    "float16": lambda x: torch.empty(x.shape, device=x.device, dtype=torch.float16),
    "bfloat16, another shape": lambda x: torch.empty(3, 3, device=x.device, dtype=torch.bfloat16),
    "integers": lambda x: torch.empty(x.shape, device=x.device, dtype=torch.int32),
    "one row for all": lambda x: torch.empty(1, x.shape[1], device=x.device).expand(x.shape),
    "a list": lambda x: [x],
    "a number": lambda x: 1.0,
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_what_torch_refuses_is_refused_in_its_words_and_nothing_is_written(x, make):
    out, before = make(x), make(x)
    if isinstance(before, torch.Tensor):
        before.fill_(GUARD)
        out.fill_(GUARD)
    theirs, ours = (outcome(function, x, 1, out=each) for function, each in ((torch.softmax, make(x)), (softmax, out)))
    assert isinstance(theirs, Exception)
    assert type(ours) is type(theirs)
    first, of_torch = (str(each).split("\n")[0] for each in (ours, theirs))
    assert first == of_torch or "invalid combination of arguments" in of_torch  # torch 2.11 lists what it takes
    assert not isinstance(out, torch.Tensor) or (out.shape == before.shape and torch.equal(out, before))


def test_memory_that_lies_partly_under_the_inputs_is_refused_in_torchs_words(where):
    memory = torch.randn(50, device=where)
    before = memory.clone()
    for out in (memory[5:25].view(4, 5), memory[:20].view(5, 4).t()):
        theirs = outcome(torch.neg, memory[:20].view(4, 5), out=out)
        ours = outcome(softmax, memory[:20].view(4, 5), 1, out=out)
        assert isinstance(theirs, RuntimeError)
        assert (type(ours), str(ours).split("\n")[0]) == (type(theirs), str(theirs).split("\n")[0])
    assert torch.equal(memory, before)


SHARED = {  # (x, out) of one memory of [6, 40], and whether no element of out is another one, or lies under one of x
    "columns of the same rows": (lambda memory: (memory[:, :12], memory[:, 12:24]), True),
    "columns that are shared": (lambda memory: (memory[:, :12], memory[:, 5:17]), False),
    "even and odd": (lambda memory: (memory[:, ::2], memory[:, 1::2]), True),
    "rows one further": (lambda memory: (memory[:5, :12], memory[1:, :12]), False),
    "elements one further": (lambda memory: (memory[0, :6].view(2, 3), memory[0, 1:7].view(2, 3)), False),
    "rows that share elements": (lambda memory: (memory.as_strided((5, 8), (3, 1)),) * 2, False),
    "elements under each other": (lambda memory: (memory[2:4, :3], memory.as_strided((2, 3), (1, 1))), False),
    "rows through each other": (lambda memory: (memory[2:4, :3], memory.as_strided((2, 3), (3, 2))), True),
    "the input of one row": (lambda memory: (memory[:1].expand(6, 40), memory), False),
}


@pytest.mark.parametrize("given", [{}, {"scale": 2.0}], ids=["plain", "scores"])
@pytest.mark.parametrize("by", ["kernel", "torch"])
@pytest.mark.parametrize(("make", "right"), SHARED.values(), ids=SHARED)
def test_memory_that_both_share_is_refused_or_right(where, monkeypatch, make, right, by, given):
    """Refused are elements of the result that lie under others, by every call alike."""
    if by == "torch":
        monkeypatch.setattr(launching, "interpreting", lambda: False)
    memory = torch.randn(6, 40, generator=torch.Generator().manual_seed(0)).to(where)
    expected = memory.clone()
    x, out = make(memory)
    if right:
        make(expected)[1].copy_(softmax(x.clone(), 1, **given))
        softmax(x, 1, out=out, **given)
        assert overlap_of(x, out) == "none"
    else:
        for call in (softmax, explain):
            with pytest.raises(
                RuntimeError, match=r"^unsupported operation: (some elements|more than one element) .* clone\(\)"
            ):
                call(x, 1, out=out, **given)
    torch.testing.assert_close(memory, expected)


@pytest.mark.parametrize("given", [{}, {"scale": 2.0}], ids=["plain", "scores"])
def test_a_tensor_of_inference_mode_is_written_inside_of_it_alone(x, given):
    with torch.inference_mode():
        out = torch.empty_like(x)
        softmax(x, 1, out=out, **given)
    for function in (torch.softmax, softmax):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode is not allowed"):
            function(x, 1, out=out, **(given if function is softmax else {}))


def test_how_memory_lies(where):
    memory = torch.zeros(4, 10, device=where)
    assert overlap_of(memory[:2], memory[2:]) == "none"
    assert overlap_of(memory, torch.zeros(4, 10, device=where)) == "none"
    assert overlap_of(memory[:, ::2], memory[:, ::2]) == "same"
    assert overlap_of(memory[:1, :5], memory.view(-1)[:5].view(1, 5)) == "same", "strides of sizes of 1 lead nowhere"
    halves = memory.view(torch.float16)
    assert are_disjoint(memory[:, ::2], halves.view(4, 10, 2)[:, 1::2])
    assert not are_disjoint(memory[:, ::2], halves.view(4, 10, 2)[:, 2::2, 1:]), "one lies in the other's second half"
    matrices = torch.zeros(1000, 3, 16, 8, device=where)
    assert overlap_of(matrices[:, 0], matrices[:, 1]) == "none"
    assert not are_disjoint(matrices[:-1, 0], matrices.view(-1)[3 * 128 - 1 :][: 999 * 384].view(999, 3, 16, 8)[:, 0])


def test_gradients_are_refused_in_torchs_words(x, form):
    words = rf"^{form}\(\): functions with out=... arguments don't support automatic differentiation, but one of the arguments"
    leaf, out = x.clone().requires_grad_(), torch.full_like(x, GUARD)
    for given, to in ((leaf, out), (x, out.clone().requires_grad_())):
        with pytest.raises(RuntimeError, match=words):
            PAIRS[form][0](given, 1, out=to)
        with pytest.raises(RuntimeError, match=words):
            getattr(torch.ops.portable_softmax, f"{form}_out")(given, 1, out=to)
    assert (out == GUARD).all()
    with pytest.raises(RuntimeError, match=words):
        PAIRS[form][0](x, 1, out=out, scale=x.new_ones(1, requires_grad=True))
    with torch.no_grad():
        assert_softmax(form, PAIRS[form][0](leaf, 1, out=out), x)


def test_forward_mode_is_refused(x):
    with pytest.raises(NotImplementedError, match="forward AD with softmax"):
        torch.func.jvp(lambda x: softmax(x, 1, out=torch.empty_like(x)), (x,), (x,))


def test_autograd_knows_that_it_is_written(x):
    weights = torch.ones_like(x, requires_grad=True)
    version, product = x._version, weights * x
    softmax(x, 1, out=x)
    assert x._version == version + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    with torch.inference_mode():
        inside = torch.zeros(2, 3, device=x.device)
        assert torch.equal(softmax(inside, 1, out=inside), torch.full_like(inside, 1 / 3))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_it_is_compiled_whole(x, form, backend):
    def steps(x, out):
        return PAIRS[form][0](x, 1, out=out) * 2, PAIRS[form][0](x, 1, out=x)

    out, given = torch.empty_like(x), x.clone()
    torch._dynamo.reset()
    twice, same = torch.compile(steps, backend=backend, fullgraph=True)(given, out)
    assert_softmax(form, out, x)
    assert_softmax(form, given, x)
    torch.testing.assert_close(twice, out * 2, equal_nan=True)
    torch.testing.assert_close(same, given, equal_nan=True)


def test_the_operator_itself_resizes_nothing(x):
    with pytest.raises(RuntimeError, match=r"of shape \(6, 37\) was to be written to a tensor of shape \(3, 3\)"):
        torch.ops.portable_softmax.softmax_out(x, 1, out=torch.empty(3, 3, device=x.device))


def test_a_negated_view_gets_the_result(x):
    memory = torch.empty_like(x)
    softmax(x, 1, out=torch._neg_view(memory))
    assert_softmax("softmax", -memory, x)


def test_autocast_keeps_the_type_as_torch_does(x):
    out = torch.empty_like(x, dtype=torch.bfloat16)
    with torch.autocast(x.device.type, torch.bfloat16):
        assert softmax(x.bfloat16(), 1, out=out).dtype is torch.bfloat16
