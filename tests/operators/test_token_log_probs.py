"""token_log_probs: gradients of all inputs, rows that are ignored or greedy, ids of any kind, gradients in place of logits."""

import pytest
import torch

from portable_softmax import token_log_probs

pytestmark = pytest.mark.kernel


def double(x, ids):
    """Returns log-probabilities by torch's operators in float64, 0 for ids of -100."""
    return x.double().log_softmax(-1).gather(-1, ids.clamp(min=0)[..., None])[..., 0] * (ids >= 0)


WRITTEN = {
    "all": lambda t: t, "some rows": lambda t: t[1:], "columns": lambda t: t[:, 1:4], "every second": lambda t: t[::2],
    "transposed": lambda t: t.t().contiguous().t(), "one row of stride 0": lambda t: t[:1].as_strided((1, 5), (0, 1)),
    "windows apart": lambda t: t.flatten().unfold(0, 4, 6), "a diagonal": lambda t: t.diagonal()[None],
}  # fmt: skip
NOT_WRITTEN = {
    "rows": lambda t: t[:1].expand(3, 5), "windows": lambda t: t.flatten().unfold(0, 5, 2), "split": lambda t: t.split(2)[0],
    "strided": lambda t: t.as_strided((3, 5), (1, 1)), "chunk": lambda t: t.chunk(2, 1)[1], "unbind": lambda t: t.unbind()[0],
    "a slice of a part": lambda t: t.split(2)[0][:, 1:], "detached": lambda t: t.detach().requires_grad_(),
    "a slice of a leaf": lambda t: t.detach().requires_grad_()[:, :-1], "expanded columns": lambda t: t[:, :1].expand(4, 7),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("view", [*WRITTEN, *NOT_WRITTEN])
def test_logits_that_a_gradient_may_be_written_over(where, view, dtype):
    def gradient(grad_inplace):
        memory, take = leaf * 1, (WRITTEN | NOT_WRITTEN)[view]
        logits, others = take(memory), torch.ones_like(leaf)
        take(others).detach().zero_()
        ids = torch.arange(logits[..., 0].numel(), device=where).view(logits.shape[:-1]) % logits.shape[-1]
        loss = token_log_probs(logits, ids, grad_inplace=grad_inplace, entropy=True)[0].square().sum()
        result = torch.autograd.grad(loss, leaf)
        assert torch.equal(memory[others != 0], leaf[others != 0]), "nothing beside the logits is written"
        return result

    leaf = torch.randn(4, 5, device=where, dtype=dtype, requires_grad=True)
    if view in WRITTEN:
        torch.testing.assert_close(gradient(True), gradient(False))
        return
    with pytest.raises(RuntimeError, match="grad_inplace=True would write over logits that"):
        gradient(True)
    with torch.no_grad(), pytest.raises(RuntimeError, match="does not require grad"):  # of a call, nothing is to be written
        gradient(True)


@pytest.mark.parametrize("operand", ["mask", "scale", "temperature", "gradient"])
def test_logits_with_memory_of_an_operand_are_written_last(where, operand):
    leaf, gradients = torch.rand(4, 5, device=where, requires_grad=True), []
    for in_place in (True, False):
        logits, ids = leaf * 1, torch.zeros(4, dtype=torch.long, device=where)
        shared = logits.detach()[1] if operand == "mask" else logits.detach()[:, 2:3]
        options = {} if operand == "gradient" else {operand: shared}
        y = token_log_probs(logits, ids, **options, grad_inplace=in_place)
        gradients.append(torch.autograd.grad(y, leaf, shared[:, 0] if operand == "gradient" else torch.ones_like(y)))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.5, "return_lse": True}])
def test_batches_of_gradients_are_not_in_place(x, ids, options):
    def of(x, **more):
        return token_log_probs(x * 1, ids, **options, **more)

    jacobian = torch.autograd.functional.jacobian
    torch.testing.assert_close(jacobian(lambda x: of(x, grad_inplace=True), x, vectorize=True), jacobian(of, x))


GREEDY = {"temperature": 0.0}


@pytest.mark.parametrize("options", [{}, {"softcap": 3.0}, GREEDY, {"softcap": 1.0, **GREEDY}], ids=str)
@pytest.mark.parametrize("many", [False, True])
def test_ignored_and_greedy_rows_have_no_gradient_whatever_they_hold(x, ids, many, options):
    ids[1], (x[0, 2], x[1, 0], x[1, 1], x[1, 2]) = -100, (torch.nan, torch.inf, -torch.inf, torch.nan)
    ignored = ids == -100
    without, chosen = ignored | ("temperature" in options), torch.stack([ids, ids], -1) if many else ids
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        leaf = x.to(dtype, copy=True).requires_grad_()
        y = token_log_probs(leaf, chosen, **options)
        y.sum().backward()
        assert (y[ignored] == 0).all()
        assert ((leaf.grad != 0).any(-1) == ~without).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ignored_rows_that_an_added_mask_empties_have_no_gradient(x, ids, dtype):
    leaf, ids = x.to(dtype, copy=True).requires_grad_(), torch.full_like(ids, -100)
    y, lse = token_log_probs(leaf, ids, mask=torch.full_like(leaf, -torch.inf), return_lse=True)
    assert (torch.autograd.grad((y, lse), leaf, (torch.ones_like(y), torch.zeros_like(lse)))[0] == 0).all()


def test_ids_of_any_kind(x, ids):
    exact = double(x, ids).float()
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        torch.testing.assert_close(token_log_probs(x, ids.to(dtype)), exact)
    apart = torch.stack([ids, ids], -1)[..., 0]
    torch.testing.assert_close(token_log_probs(x, apart), exact)
    torch.testing.assert_close(token_log_probs(x, torch.stack([ids, ids.flip(0)], -1))[..., 0], exact)
    torch.testing.assert_close(token_log_probs(x.movedim(-1, 0), ids, dim=0), exact)
    torch.testing.assert_close(token_log_probs(x[0, 0], torch.tensor(3, device=x.device)), x[0, 0].log_softmax(-1)[3])
    for outside in (5, -1, 2**40):
        leaf = x.clone().requires_grad_()
        y = token_log_probs(leaf, torch.full_like(ids, outside))
        assert y.isnan().all()
        assert token_log_probs(x, torch.full_like(ids, outside), ignore_index=outside).eq(0).all()
