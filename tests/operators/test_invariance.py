"""batch_invariant: a row has the same bits in any batch, where that was chosen: for a thread, or for the process."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from offline import light
from pairs import PAIRS

from portable_softmax import Device, batch_invariant, is_batch_invariant, plan, set_batch_invariant, softmax, warm_up
from portable_softmax.operators import memory
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.specialization import KernelSpec

CHOICES = (False, True)
kernel = pytest.mark.kernel


@pytest.fixture(params=CHOICES, ids=["by context", "by process"])
def invariant(request):
    if not request.param:
        with batch_invariant():
            yield
        return
    set_batch_invariant(True)
    yield
    set_batch_invariant(False)


@pytest.fixture
def of_process():
    """set_batch_invariant, undone after the test."""
    yield set_batch_invariant
    set_batch_invariant(False)


def in_a_thread(function, *arguments):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


@kernel
@pytest.mark.each_value
@pytest.mark.parametrize("n_cols", [7, 782, 5000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_row_is_the_same_in_any_batch(where, invariant, plans, n_cols, dtype):
    x = torch.randn(300, n_cols, device=where).to(dtype)
    whole = softmax(x)
    for alone in (
        softmax(x[5:6]),
        softmax(x[5:6].clone()),
        softmax(x[3:10])[2:3],
        softmax(x[None, :, :].expand(3, -1, -1))[1, 5:6],
    ):
        assert torch.equal(alone, whole[5:6])
    assert torch.equal(softmax(x.t().contiguous(), 0)[:, 5], whole[5]), "an inner dimension too"
    assert len({KernelSpec.of(problem, plan.tiling) for problem, plan in plans}) == 1, "one kernel computes them all"


def test_plans_do_not_depend_on_rows():
    device = Device.from_profile("nvidia/h200")
    plans = [choose(Problem(n, 128, "float32", "float32", 4, batch_invariant=True), device, light) for n in (1, 100, 10**6)]
    assert len({plan.tiling for plan in plans}) == 1
    assert plans[0].num_programs == 1
    free = [choose(Problem(n, 128, "float32", "float32", 4), device, light).tiling for n in (1, 10**6)]
    assert free[0] != free[1]


def test_contexts_nest_and_a_decorator_is_one():
    @batch_invariant()
    def chosen(depth):
        return is_batch_invariant() and (depth == 0 or chosen(depth - 1))

    assert not is_batch_invariant()
    with batch_invariant():
        with batch_invariant(False):
            assert not is_batch_invariant()
            assert chosen(2)
            assert not is_batch_invariant()
        assert is_batch_invariant()
        with pytest.raises(KeyError), batch_invariant(False):
            raise KeyError
        assert is_batch_invariant()
    assert not is_batch_invariant()


def test_a_context_is_of_its_thread_and_the_process_of_the_others(of_process):
    with batch_invariant():
        assert not in_a_thread(is_batch_invariant)
        of_process(False)
        assert is_batch_invariant()
    of_process(True)
    assert is_batch_invariant()
    assert in_a_thread(is_batch_invariant)
    with batch_invariant(False):
        assert not is_batch_invariant()
        assert in_a_thread(is_batch_invariant)


@pytest.mark.parametrize("choice", ["yes", 1, None, lambda: None])
def test_a_choice_is_a_bool(choice):
    for take in (batch_invariant, set_batch_invariant):
        with pytest.raises(TypeError, match="batch_invariant is True or False, not"):
            take(choice)


def test_a_plan_has_the_choice_of_its_thread():
    device = Device.from_profile("nvidia/h200")
    free = plan(1, 512, "float32", device), warm_up([(1, 512)], ["float32"], device=device)[0]
    with batch_invariant():
        chosen = plan(1, 512, "float32", device), warm_up([(1, 512)], ["float32"], device=device)[0]
    assert free[0] == free[1] != chosen[0] == chosen[1]


def choices_of(plans):
    return {problem.batch_invariant for problem, _ in plans}


FORWARDS = {  # how a call is made; autocast, forward mode and torch.func go through the dispatcher
    "plain": lambda form, x: PAIRS[form][0](x),
    "scored": lambda form, x: PAIRS[form][0](x, scale=0.5),
    "autocast": lambda form, x: torch.autocast(x.device.type, torch.bfloat16)(PAIRS[form][0])(x.bfloat16()),
}


@kernel
@pytest.mark.parametrize("name", FORWARDS)
def test_a_gradient_has_the_choice_of_its_forward_in_any_thread(where, form, plans, name):
    for choice in (*CHOICES, *CHOICES):
        x = torch.randn(3, 20, device=where, requires_grad=True)
        with batch_invariant(choice):
            y = FORWARDS[name](form, x)
            pull = torch.func.vjp(lambda x: FORWARDS[name](form, x), x.detach())[1]
        with batch_invariant(not choice):
            (dx,) = torch.autograd.grad(y.sum(), x, retain_graph=True, create_graph=name == "plain")
            if name == "plain":
                dx.square().sum().backward(retain_graph=True)
            y.sum().backward(retain_graph=True)
            pull(y.detach())
        in_a_thread(y.sum().backward)
        assert choices_of(plans) == {choice}
        plans.clear()
        memory.forget()


@kernel
def test_compiled_code_reads_the_choice_when_it_runs(where, plans):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: softmax(x * 2), fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 20, device=where)
    for choice in (*CHOICES, *CHOICES):
        plans.clear()
        memory.forget()
        with batch_invariant(choice):
            compiled(x)
        assert choices_of(plans) == {choice}


@kernel
def test_a_context_in_compiled_code_holds_there(where, plans):
    """Compilers cannot trace it: the graph breaks, and with fullgraph=True that is an error."""
    x = torch.randn(3, 20, device=where)

    def inner(x):
        with batch_invariant():
            return softmax(x * 2) + 1

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(inner, backend="aot_eager")(x), torch.softmax(x * 2, -1) + 1)
    assert choices_of(plans) == {True}
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(inner, backend="aot_eager", fullgraph=True)(x)
