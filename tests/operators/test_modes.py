"""Calls under functorch, forward mode, dispatch modes, hooks, autocast, of subclasses and in threads are right."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from calls import in_double, recording, results
from torch.autograd.functional import hessian, jacobian

from portable_softmax import log_softmax, softmax
from portable_softmax.operators import launch

pytestmark = [pytest.mark.kernel, pytest.mark.xdist_group("compilers")]


def close(actual, exact, error=1e-4):
    torch.testing.assert_close(actual, exact, rtol=error, atol=error, equal_nan=True, check_dtype=False)


TRANSFORMS = {
    "vmap": lambda call, x: torch.func.vmap(call)(torch.stack([x, x + 1])),
    "leaf": lambda call, x: torch.func.vmap(lambda t, x: [y * t for y in call(x)], (0, None))(x[0, 0], torch.nn.Parameter(x)),
    "jvp": lambda call, x: torch.func.jvp(call, (x,), (x,)),
    "jacrev": lambda call, x: torch.func.jacrev(call)(x),
    "jacfwd": lambda call, x: torch.func.jacfwd(call)(x),
    "jacobian": lambda call, x: jacobian(call, x, vectorize=True),
    "hessian": lambda call, x: hessian(lambda x: sum(y[y > -1e9].square().sum() for y in call(x)), x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functorch_forward_mode_and_second_derivatives(x, cases, name):
    transform = TRANSFORMS[name]
    for function, options in cases[:: 5 if name == "hessian" else 1]:
        exact = transform(lambda x, f=function, o=options: in_double(f, x, -1, o), x.double())
        close(transform(lambda x, f=function, o=options: results(f, x, -1, **o), x), exact)


def test_gradients_that_lie_elsewhere(x, cases):
    """Gradients that are negative views, or expanded; saved tensors that hooks lay out with gaps."""
    leaf = x.clone().requires_grad_()
    for function, options in cases:
        y = results(function, leaf, -1, **options)[0]
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: torch.stack([t, t], -1)[..., 0]):
            hooked = results(function, leaf, -1, **options)[0]
        for dy in (torch._neg_view(torch.randn_like(y)), y.new_ones(()).expand(y.shape)):
            actual, expected = torch.autograd.grad(hooked, leaf, dy, True), torch.autograd.grad(y, leaf, dy + 0, True)
            close(actual, expected)
    zero = torch._efficientzerotensor(x.shape, device=x.device)
    assert (torch.autograd.grad(softmax(leaf), leaf, zero)[0] == 0).all()
    close(softmax(zero), torch.full(x.shape, 0.2)) if x.is_cpu else None


def test_results_of_inference_mode_are_not_written_outside_of_it(x):
    with torch.inference_mode():
        result = softmax(x, out=torch.empty_like(x))
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="InferenceMode"):
            softmax(x, out=result)
        softmax(x.requires_grad_(), out=x)


def test_out_shares_memory_with_inputs_in_any_way(where):
    """Of the same type or another, at any distance, in any order; inputs may overlap themselves."""
    dtypes, strides = (torch.float32, torch.bfloat16, torch.float16), ((8, 1), (1, 4), (16, 2), (1, 1))
    for seed in range(150):
        choose = random.Random(seed)
        memory = torch.randn(256, generator=torch.Generator().manual_seed(seed)).to(where)

        def view(dtype, step, choose=choose, memory=memory):
            return memory.view(dtype).as_strided((4, 8), step, choose.choice((0, 0, 0, 1, 2, 4, 8)))

        x, kind = view(choose.choice(dtypes), choose.choice(strides)), choose.choice(dtypes)
        out = view(kind, choose.choice(strides[:3]))
        if choose.random() < 0.5:
            out = memory.view(kind).as_strided((4, 8), x.stride(), x.storage_offset())
        options = {"mask": view(torch.float32, (8, 1)), "scale": view(torch.bfloat16, (8, 1))[:, :1]}
        options = {name: option for name, option in options.items() if choose.random() < 0.25}
        expected = softmax(x.clone(), dtype=kind, **{name: option.clone() for name, option in options.items()})
        if out.stride() != (1, 1):  # else results overlap each other
            assert softmax(x, dtype=kind, out=out, **options) is out
            close(out, expected, 2e-2)


def test_out_beside_an_operand_is_written_directly(where):
    memory, launched = torch.rand(36, device=where), []
    x, scale = memory[4:].view(4, 8), memory[:4].view(4, 1)
    with recording(launched):
        softmax(x, scale=scale, out=x)
    assert [problem.overwrites for problem, _ in launched] == [True]


def test_types_of_tensors(x):
    class Sub(torch.Tensor):
        pass

    assert type(softmax(x.as_subclass(Sub))) is Sub
    assert softmax(torch.nn.Parameter(x)).requires_grad
    assert softmax(x.to("meta"), scale=2.0).is_meta
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        assert softmax(torch.empty(3, 4)).shape == (3, 4)
    nested = torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged)
    close(softmax(nested, -1).values(), nested.values().softmax(-1))
    close(log_softmax(nested, -1).values(), nested.values().log_softmax(-1))
    for mode in (torch.inference_mode(), torch.device("meta")):
        with mode:
            close(softmax(x), x.softmax(-1))
    traced = torch.jit.trace(lambda x: softmax(x, scale=2.0), (x,))
    close(traced(x + 1), ((x + 1) * 2).softmax(-1))


def test_distributed_tensors(x, cases):
    """DTensors of one process: tensors that the options make are distributed too."""
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        for at, (function, options) in enumerate(cases):
            place = [(Shard(0), Shard(1), Replicate())[at % 3]]
            tensors = {n: o.cpu() for n, o in options.items() if isinstance(o, torch.Tensor)}
            tensors = {n: distribute_tensor(o, mesh, [Replicate()]) for n, o in tensors.items()}
            ys = results(function, distribute_tensor(x.cpu(), mesh, place), -1, **options | tensors)
            close([y.full_tensor() for y in ys], [y.cpu() for y in results(function, x, -1, **options)])
    finally:
        torch.distributed.destroy_process_group()


def test_checkpoints_and_threads(x):
    leaf = x.clone().requires_grad_()
    torch.utils.checkpoint.checkpoint(lambda x: softmax(x, scale=2.0), leaf, use_reentrant=False)[0].sum().backward()

    def work(n_cols):
        leaf = torch.randn(3, n_cols, device=x.device, requires_grad=True)
        y = softmax(leaf, scale=2.0)
        y.square().sum().backward()
        close(y, (leaf * 2).softmax(-1))

    launch.calls.clear()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [4, 5, 6] * 8))
