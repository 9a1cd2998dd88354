"""Cases of a sharded softmax, which all ranks of a group run in one order: see `ranks.py`, which starts them."""

import os
import time

import pytest
import torch
import torch.distributed as dist
from closeness import assert_close, expected, expected_gradient, gradient_scale, terms_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from portable_softmax import batch_invariant, log_softmax, softmax, softmin, token_log_probs
from portable_softmax.distributed import exchange
from portable_softmax.distributed.operators import map_shard, reduce_shard

FUNCTIONS = {"softmax": softmax, "log_softmax": log_softmax, "softmin": softmin}
SIZES = {2: (7, 4), 3: (5, 0, 6), 4: (3, 3, 2, 3)}  # of shards: uneven, and with one that is empty
INF, NAN = float("inf"), float("nan")
CASES = {}
WHERE = ["cpu"]  # the device of this rank's tensors


def case(*worlds):
    """Registers a case for these numbers of ranks."""

    def register(function):
        for world in worlds or (2, 3, 4):
            CASES.setdefault(world, {})[function.__name__] = function
        return function

    return register


def inputs(shape, dtype=torch.float32, seed=0):
    """Returns random numbers, the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(WHERE[0], dtype)


def mesh_of(*shape):
    return init_device_mesh(WHERE[0].split(":")[0], shape)


def world():
    return dist.get_world_size()


def shard(x, dim=-1, sizes=None):
    return x.split(sizes or SIZES[world()], dim)[dist.get_rank()]


def whole(part, dim):
    """Returns the whole tensor from all ranks' parts."""
    parts = [None] * world()
    dist.all_gather_object(parts, part.cpu())
    return torch.cat(parts, dim).to(WHERE[0])


def check(form, x, dim=-1, sizes=None, group=None, gradient=True, dtype=None, **options):
    """Compares this rank's part of the result, and of its gradient, with float64."""
    group = group or dist.group.WORLD
    part = shard(x, dim, sizes).detach().clone().requires_grad_(gradient)
    y = FUNCTIONS[form](part, dim, dtype, group=group, **options)
    rounded = x.to(dtype or x.dtype)
    exact = shard(expected(form, rounded, dim), dim, sizes)
    assert (y.dtype, y.shape, y.is_contiguous()) == (dtype or x.dtype, part.shape, True)
    assert_close(y.detach(), exact, terms_of(form))
    if not gradient:
        return y
    whole_y = whole(y.detach(), dim)
    dy = inputs(x.shape, y.dtype, seed=1)
    (dx,) = torch.autograd.grad(y, part, shard(dy, dim, sizes))
    exact = shard(expected_gradient(form, dy, whole_y, dim), dim, sizes)
    scale = shard(gradient_scale(form, dy, whole_y, dim), dim, sizes)
    assert dx.dtype == x.dtype
    assert_close(dx, exact, scale)
    return y


@case()
def forms_and_their_gradients():
    for form in FUNCTIONS:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            check(form, inputs((6, sum(SIZES[world()])), dtype))


@case()
def a_sum_of_maxima_for_many_ranks():
    most, exchange.MOST_GATHERED = exchange.MOST_GATHERED, 1
    try:
        forms_and_their_gradients()
        masked_shards_and_special_values()
    finally:
        exchange.MOST_GATHERED = most


@case()
def every_dim():
    n = sum(SIZES[world()])
    for form in FUNCTIONS:
        for dim in (0, 1, 2, -1, -3):
            shape = [2, 3, 20]
            shape[dim] = n
            check(form, inputs(shape), dim)
        check(form, inputs((n,)), 0)
    x = inputs((n, 6, 2))
    check("softmax", x.transpose(0, 2), -1)
    check("log_softmax", x.permute(1, 0, 2), 1)
    check("softmax", x[:, ::2], 0)
    check("softmax", inputs((0, n)), gradient=False)


@case()
def masked_shards_and_special_values():
    n = sum(SIZES[world()])
    first = SIZES[world()][0]
    x = inputs((8, n))
    x[1, :first] = -INF  # all of the first shard
    x[2, first:] = -INF  # all but the first
    x[3] = -INF
    x[4, 0] = NAN
    x[5, -1] = INF
    x[6] = 1e30
    x[7, 0] = 80.0
    for form in FUNCTIONS:
        given = -x if form == "softmin" else x
        y = check(form, given, gradient=False)
        like = shard((torch.log_softmax if form == "log_softmax" else torch.softmax)(x, -1))
        assert torch.equal(y.isnan(), like.isnan())


def assert_same_bits(one, other):
    assert one.isnan().equal(other.isnan())
    assert one.nan_to_num().equal(other.nan_to_num())


def tokens_of(n_ids, n):
    """Returns ids of 8 rows; one is ignored, one is the first of all, and one is in no shard."""
    ids = torch.randint(0, n, (8, n_ids), generator=torch.Generator().manual_seed(1))
    ids[0, 0], ids[7, -1], ids[2, 0] = -100, n, 0
    return ids.to(WHERE[0])


@case()
def log_probs_of_tokens():
    n, start = sum(SIZES[world()]), sum(SIZES[world()][: dist.get_rank()])
    x, temperatures = inputs((8, n)), torch.tensor([[1], [0.5], [2], [1], [0.0], [1], [3], [1]], device=WHERE[0])
    x[1, : SIZES[world()][0]] = x[2, 1:] = -INF  # all of the first shard, all but one element
    x[5] += 1e4
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for n_ids, by in ((1, None), (3, None), (3, temperatures), (1, 0.7)):
            ids = tokens_of(n_ids, n)
            given, group = x.to(dtype).requires_grad_(), {"group": dist.group.WORLD, "vocab_start": start}
            part = shard(given.detach()).clone().requires_grad_()
            *ours, ranks = token_log_probs(part, ids, temperature=by, entropy=True, rank=True, **group)
            *exact, right = token_log_probs(given, torch.where(ids == n, -100, ids), temperature=by, entropy=True, rank=True)
            assert ours[0].isnan().equal(ids == n)
            assert ranks.equal(right)
            for mine, right in zip(ours, exact, strict=True):
                torch.testing.assert_close(mine.nan_to_num(0.0, INF, -INF), right, rtol=1e-5, atol=2e-5)
            weights = inputs((8, n_ids), torch.float32, seed=2)
            for with_entropy in (0.0, 1.0):
                losses = [(each[0].nan_to_num() * weights).sum() + with_entropy * each[1].sum() for each in (ours, exact)]
                (found,), (wanted,) = (
                    torch.autograd.grad(loss, leaf, retain_graph=True) for loss, leaf in zip(losses, (part, given), strict=True)
                )
                torch.testing.assert_close(found, shard(wanted), rtol=2e-2 if dtype == torch.bfloat16 else 1e-4, atol=1e-5)
            alone = token_log_probs(part, ids[:, 0], temperature=by, **group)
            torch.testing.assert_close(alone, ours[0][:, 0].detach(), equal_nan=True)
            written = torch.full(ids.shape, NAN, dtype=alone.dtype, device=WHERE[0])
            assert token_log_probs(part.detach(), ids, temperature=by, out=written, **group) is written
            assert_same_bits(written, ours[0].detach())
            logits = part.detach().clone()
            wide = token_log_probs(logits.requires_grad_(), ids, temperature=by, grad_inplace=True, entropy=True, **group)
            (over,) = torch.autograd.grad((wide[0].nan_to_num() * weights).sum() + wide[1].sum(), logits)
            assert over.data_ptr() == logits.data_ptr()
            assert_same_bits(over, found)


@case()
def log_probs_of_even_shards():
    x, at, ids = inputs((8, 5 * world())), 5 * dist.get_rank(), torch.arange(8, device=WHERE[0])
    mine = x[:, at : at + 5]
    found = token_log_probs(mine, ids, group=dist.group.WORLD)
    torch.testing.assert_close(found, x.log_softmax(-1).gather(-1, ids.unsqueeze(1)).squeeze(1), rtol=1e-5, atol=2e-5)
    compiled = torch.compile(token_log_probs, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(mine, ids, group=dist.group.WORLD), found)
    everything = compiled(mine, ids, group=dist.group.WORLD, entropy=True, rank=True)
    for one, other in zip(everything, token_log_probs(x, ids, entropy=True, rank=True), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-5)
    with pytest.raises(RuntimeError, match="out must be torch"):
        token_log_probs(mine, ids, group=dist.group.WORLD, out=torch.empty(9, device=WHERE[0]))
    with pytest.raises(RuntimeError, match="out"):
        token_log_probs(mine.clone().requires_grad_(), ids, group=dist.group.WORLD, out=torch.empty(8, device=WHERE[0]))
    with pytest.raises(RuntimeError, match="no gradient of its scale or temperature"):
        token_log_probs(mine, ids, temperature=torch.ones(8, 1, requires_grad=True), group=dist.group.WORLD)


@case(2, 4)
def log_probs_of_dtensors():
    meshes = [mesh_of(world())] + ([mesh_of(2, 2)] if world() == 4 else [])
    x, ids = inputs((6, 5, 11)), torch.arange(30, device=WHERE[0]).view(6, 5) % 11
    weights = inputs((6, 5), seed=2)
    for mesh in meshes:
        every = [Shard(2)], [Shard(0)], [Replicate()], [Shard(1)]
        for placements in every if mesh.ndim == 1 else ([Shard(0), Shard(2)], [Shard(2), Shard(2)], [Shard(2), Replicate()]):
            leaf, given = x.clone().requires_grad_(), distribute_tensor(x, mesh, placements).requires_grad_()
            exact = token_log_probs(leaf, ids, temperature=0.7, entropy=True, rank=True)
            for tokens in (ids, distribute_tensor(ids, mesh, [Replicate()] * mesh.ndim)):
                found = token_log_probs(given, tokens, temperature=0.7, entropy=True, rank=True)
                for mine, right in zip(found, exact, strict=True):
                    torch.testing.assert_close(mine.full_tensor(), right, rtol=1e-5, atol=1e-5)
            plain = distribute_tensor(weights, mesh, found[0].placements)
            (dx,) = torch.autograd.grad((found[0] * plain).sum() + found[1].sum(), given)
            (right,) = torch.autograd.grad((exact[0] * weights).sum() + exact[1].sum(), leaf)
            torch.testing.assert_close(dx.full_tensor(), right, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="was asked for with out="):
        token_log_probs(given, ids, out=torch.empty(6, 5))
    with pytest.raises(ValueError, match="one number for each row"):
        token_log_probs(given, ids, temperature=torch.ones(6, 5, 1))


@case()
def another_type():
    check("softmax", inputs((5, sum(SIZES[world()])), torch.bfloat16), dtype=torch.float32)
    n = sum(SIZES[world()])
    integers = torch.arange(3 * n, device=WHERE[0]).view(3, n) % 7
    y = softmax(shard(integers), dtype=torch.float32, group=dist.group.WORLD)
    assert_close(y, shard(expected("softmax", integers)))
    with torch.autocast(WHERE[0].split(":")[0], torch.bfloat16):
        assert softmax(shard(inputs((2, n), torch.bfloat16)), group=dist.group.WORLD).dtype == torch.float32


@case()
def one_rank_of_its_own_group():
    alone = [dist.new_group([rank]) for rank in range(world())][dist.get_rank()]
    x = inputs((4, 9), seed=dist.get_rank())
    assert_close(softmax(x, group=alone), expected("softmax", x))


@case()
def batch_invariant_rows():
    x = shard(inputs((40, sum(SIZES[world()]))))
    with batch_invariant():
        many, few = (softmax(each.clone(), group=dist.group.WORLD) for each in (x, x[:2]))
    assert torch.equal(many[:2], few)


@case(2)
def wrong_arguments():
    x, group = inputs((2, 4)), dist.group.WORLD
    wrong = [
        (TypeError, "ProcessGroup", lambda: softmax(x, group="world")),
        (IndexError, "Dimension out of range", lambda: softmax(x, 2, group=group)),
        (NotImplementedError, "int64", lambda: softmax(x.long(), group=group)),
        (NotImplementedError, "layout", lambda: softmax(x.to_sparse(), group=group)),
        (TypeError, "must be Tensor", lambda: softmax([1.0], group=group)),
        (ValueError, "DTensor", lambda: softmax(distribute_tensor(x, mesh_of(2), [Shard(1)]), group=group)),
    ]
    for error, words, call in wrong:
        with pytest.raises(error, match=words):
            call()


@case(2)
def wrong_arguments_of_operators():
    x = inputs((2, 4))
    numbers = reduce_shard(x, x, 1, x.dtype, "softmax", False)
    for to in (lambda x: x, lambda x: x.to("meta")):
        a, out = to(x), to(torch.empty_like(x))
        with pytest.raises(ValueError, match="form 'foo' was asked for; there are softmax, log_softmax, softmin"):
            reduce_shard(a, a, 1, x.dtype, "foo", False)
        with pytest.raises(ValueError, match="form 'foo' was asked for"):
            map_shard(a, a, to(numbers), out, 1, "foo", False)
    sparse = x.to_sparse()
    with pytest.raises(NotImplementedError, match="softmax of a tensor of layout"):
        reduce_shard(sparse, sparse, 1, x.dtype, "softmax", False)
    with pytest.raises(NotImplementedError, match="softmax of a tensor of layout"):
        map_shard(x, sparse, numbers, x.clone(), 1, "softmax", False)


@case(2)
def second_derivatives_are_refused():
    x = inputs((2, 4)).requires_grad_()
    (dx,) = torch.autograd.grad(softmax(x, group=dist.group.WORLD)[0, 0], x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        dx.sum().backward()


def check_dtensor(x, mesh, placements, dim, form="softmax", result=None, **options):
    """Compares a DTensor's result, placements and gradient with torch's for the whole tensor."""
    sharded = distribute_tensor(x, mesh, placements).requires_grad_()
    y = FUNCTIONS[form](sharded, dim, **options)
    assert isinstance(y, DTensor)
    assert y.placements == tuple(result or placements)
    assert (y.shape, y.stride()) == (x.shape, torch.empty(x.shape).stride())
    assert_close(y.full_tensor().detach(), expected(form, x, dim), terms_of(form))
    dy = inputs(x.shape, seed=1)
    given = distribute_tensor(dy, mesh, y.placements)
    (dx,) = torch.autograd.grad(y, sharded, given, retain_graph=True)
    assert (dx.placements, dx.shape, dx.stride()) == (sharded.placements, x.shape, torch.empty(x.shape).stride())
    y.backward(given)
    assert sharded.grad.placements == sharded.placements
    assert torch.equal(sharded.grad.full_tensor(), dx.full_tensor())
    whole_y = y.detach().full_tensor()
    assert_close(sharded.grad.full_tensor(), expected_gradient(form, dy, whole_y, dim), gradient_scale(form, dy, whole_y, dim))


@case()
def dtensors():
    mesh = mesh_of(world())
    for form in FUNCTIONS:
        check_dtensor(inputs((5, 7)), mesh, [Shard(1)], 1, form)  # uneven, with 4 ranks: 2, 2, 2, 1
        check_dtensor(inputs((5, 7)), mesh, [Shard(0)], 1, form)
        check_dtensor(inputs((5, 7)), mesh, [Replicate()], -1, form)
    check_dtensor(inputs((5, 2)), mesh, [Shard(1)], 1)  # with 3 and 4 ranks some have nothing
    check_dtensor(inputs((3, 8, 20)), mesh, [Shard(1)], 1, "log_softmax")


@case()
def partial_dtensors():
    mesh = mesh_of(world())
    parts = [inputs((4, 6), seed=rank) for rank in range(world())]
    x = DTensor.from_local(parts[dist.get_rank()], mesh, [Partial()], run_check=False)
    y = softmax(x, 1)
    assert y.placements == (Replicate(),)
    assert_close(y.to_local(), expected("softmax", sum(parts)), 10)


@case(4)
def several_dimensions_of_a_mesh():
    mesh = mesh_of(2, 2)
    x = inputs((6, 9, 4))
    for form in FUNCTIONS:
        check_dtensor(x, mesh, [Shard(1), Shard(1)], 1, form)
        check_dtensor(x, mesh, [Shard(0), Shard(1)], 1, form)
        check_dtensor(x, mesh, [Shard(1), Replicate()], 1, form)
        check_dtensor(x, mesh, [Shard(1), Shard(2)], 1, form)
    most, exchange.MOST_GATHERED = exchange.MOST_GATHERED, 1
    try:
        check_dtensor(x, mesh, [Shard(1), Shard(1)], 1, "log_softmax")
    finally:
        exchange.MOST_GATHERED = most
    partial = DTensor.from_local(x[:3], mesh, [Partial(), Shard(0)], run_check=False)
    assert_close(softmax(partial, 1).full_tensor(), expected("softmax", torch.cat(2 * [2 * x[:3]]), 1))


@case()
def a_gradient_of_another_placement():
    mesh = mesh_of(world())
    x = distribute_tensor(inputs((5, 7)), mesh, [Shard(1)]).requires_grad_()
    y = softmax(x, 1)
    y.backward(distribute_tensor(inputs((5, 7), seed=1), mesh, [Replicate()]))
    exact = expected_gradient("softmax", inputs((5, 7), seed=1), expected("softmax", inputs((5, 7))))
    assert_close(x.grad.full_tensor(), exact, 4)


@case(2)
def operators_have_sharding_rules():
    mesh = mesh_of(2)
    for placement, kept in ((Shard(0), Shard(0)), (Shard(1), Replicate())):
        x = distribute_tensor(inputs((6, 8)), mesh, [placement])
        y = torch.ops.portable_softmax.softmax(x, 1)
        assert y.placements != (Shard(1),)
        assert placement == Shard(1) or y.placements == (kept,)
        assert_close(y.full_tensor(), expected("softmax", inputs((6, 8))))
        dx = torch.ops.portable_softmax.softmax_backward(y, y, 1, torch.float32)
        exact = expected_gradient("softmax", y.full_tensor(), y.full_tensor(), 1)
        assert_close(dx.full_tensor(), exact, 1)


def compiled(backend):
    torch._dynamo.reset()
    x = inputs((6, sum(SIZES[world()])))
    part = shard(x).clone().requires_grad_()
    group = dist.group.WORLD
    call = torch.compile(lambda x: log_softmax(x + 0.0, group=group) * 2, fullgraph=True, backend=backend)
    y = call(part)
    assert_close(y.detach(), 2 * shard(expected("log_softmax", x)), 2)
    (dx,) = torch.autograd.grad(y, part, shard(inputs(x.shape, seed=1)))
    exact = expected_gradient("log_softmax", 2 * inputs(x.shape, seed=1), expected("log_softmax", x))
    assert_close(dx, shard(exact), 8)


@case(2, 3)
def under_torch_compile():
    compiled("aot_eager")


@case(2)
def dtensors_under_torch_compile():
    torch._dynamo.reset()
    mesh = mesh_of(2)
    x = inputs((5, 7))
    sharded = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
    y = torch.compile(lambda x: softmax(x, 1), fullgraph=True, backend="aot_eager")(sharded)
    assert_close(y.full_tensor().detach(), expected("softmax", x))
    y.backward(distribute_tensor(inputs((5, 7), seed=1), mesh, [Shard(1)]))
    exact = expected_gradient("softmax", inputs((5, 7), seed=1), expected("softmax", x))
    assert_close(sharded.grad.full_tensor(), exact, 4)


FAULTS = {}  # run one at a time, by name


def fault(function):
    FAULTS[function.__name__] = function
    return function


@fault
def a_rank_that_dies():
    """The last rank ends before its second collective; the others get an error."""
    x = shard(inputs((4, sum(SIZES[world()])))).requires_grad_()
    y = softmax(x, group=dist.group.WORLD)
    if dist.get_rank() == world() - 1:
        os._exit(7)
    y.sum().backward()


@fault
def a_rank_that_never_comes():
    """The last rank sleeps for longer than the group's timeout."""
    if dist.get_rank() == world() - 1:
        time.sleep(4)
    softmax(shard(inputs((4, sum(SIZES[world()])))), group=dist.group.WORLD)


@fault
def shapes_that_differ():
    """Ranks have different numbers of rows."""
    softmax(inputs((4 + dist.get_rank(), 8)), group=dist.group.WORLD)


@fault
def shapes_that_differ_while_debugging():
    dist.set_debug_level(dist.DebugLevel.INFO)  # as TORCH_DISTRIBUTED_DEBUG=INFO does
    shapes_that_differ()


@fault
def types_that_differ_while_debugging():
    dist.set_debug_level(dist.DebugLevel.INFO)
    softmax(inputs((4, 8)), dtype=(torch.float32, torch.float64)[dist.get_rank() % 2], group=dist.group.WORLD)


@fault
def log_probs_that_differ_while_debugging():
    dist.set_debug_level(dist.DebugLevel.INFO)
    ids, rank = torch.zeros(4, dtype=torch.int64), dist.get_rank() == 1
    token_log_probs(inputs((4, 8)), ids, rank=rank, group=dist.group.WORLD)


@fault
def a_case_that_is_wrong():
    """A rank's part that is compared with another's."""
    part = shard(inputs((4, sum(SIZES[world()]))))
    assert_close(softmax(part, group=dist.group.WORLD), expected("softmax", part))
