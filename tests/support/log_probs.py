"""Launches of the kernels of log-probabilities with a tiling that a test chooses; numbers of rows, compared with float64."""

import dataclasses

import torch
from closeness import assert_close

from portable_softmax.planning.lines import lines_of_scores
from portable_softmax.planning.log_probs import LogProbs
from portable_softmax.planning.request import problem_of
from portable_softmax.planning.scores import Scores
from portable_softmax.runtime.launch import bind_tiling, name_of, sizes_of
from portable_softmax.runtime.prepared import prepare

INF, NAN, IGNORED = float("inf"), float("nan"), -7


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def hostile(n_cols):
    """Rows of logits: as a model has them, one token at 1e4, masked but for one and for none, equal, wide, nan, inf."""
    rows = 3 * random(9, n_cols)
    rows[1, n_cols // 2], rows[2, 1:], rows[3, :] = 1e4, -INF, 0.25
    rows[4] *= 30
    rows[5, ::2] = -INF
    rows[6, 0], rows[7, -1], rows[8, :] = NAN, INF, -INF
    return rows


def expected(x, ids, temperature=None, dim=-1):
    """Returns (log-probabilities, entropies, log_softmax, scores) in float64; ids have one more dimension."""
    scores = x.double().movedim(dim, -1)
    if temperature is not None:  # the kernel's scores are rounded
        compute = torch.promote_types(x.dtype, torch.float32)
        scores = (x.movedim(dim, -1).to(compute) * (1 / temperature.to(compute)).movedim(dim, -1)).double()
    logs = scores.log_softmax(-1)
    there = ids != IGNORED
    picked = torch.where(there, logs.gather(-1, torch.where(there, ids, 0)), 0.0)
    entropies = -(logs.exp() * logs.clamp(min=-1e300)).sum(-1)
    return picked, entropies, logs, scores


def expected_gradient(logs, ids, dpicked, dentropy):
    """Returns (the gradient of scores in float64, the size of its terms)."""
    there, p = ids != IGNORED, logs.exp()
    given = torch.where(there, dpicked.double(), 0.0)
    chosen = torch.zeros_like(logs).scatter_add(-1, torch.where(there, ids, 0), given)
    sizes = torch.zeros_like(logs).scatter_add(-1, torch.where(there, ids, 0), given.abs())
    slope = torch.zeros(logs.shape[:-1]).to(logs) if dentropy is None else dentropy.double()
    logs = logs.clamp(min=-1e300)
    entropies = -(p * logs).sum(-1, keepdim=True)
    slope = slope.unsqueeze(-1)
    ds = chosen - p * (given.sum(-1, keepdim=True) + slope * (logs + entropies))
    size = sizes + p * (given.abs().sum(-1, keepdim=True) + slope.abs() * (logs.abs() + entropies))
    constant = (given.sum(-1, keepdim=True) == 0) & (slope == 0)
    return torch.where(constant, chosen, ds), size.nan_to_num(0, 0, 0)


def assert_picked(found, x, ids, temperature=None, dim=-1):
    """Checks (log-probabilities, entropies); each is as near as float32 lets a difference of scores be."""
    picked, entropies = found
    *exact, _, scores = expected(x, ids, temperature, dim)
    top = scores.nan_to_num(NAN, 0, 0).abs().amax(-1).nan_to_num(0)
    fall = (scores - scores.amax(-1, keepdim=True)).nan_to_num(0, 0, 0).abs().amax(-1)
    assert_close(picked, exact[0].view(picked.shape), (1 + fall).unsqueeze(-1).expand(ids.shape).reshape(picked.shape))
    if entropies is not None:
        assert_close(entropies, exact[1].view(entropies.shape), (1 + torch.minimum(top, fall)).view(entropies.shape))


def assert_gradient(dx, x, ids, dpicked, dentropy, temperature=None):
    """Checks the gradient of logits in rows of a matrix."""
    logs = expected(x, ids, temperature)[2]
    exact, size = expected_gradient(logs, ids, dpicked, dentropy)
    by = 1.0 if temperature is None else temperature.double()
    size = size * (1 + logs.nan_to_num(0, 0, 0).abs())  # the exponential of a rounded difference
    assert_close(dx, exact / by, size / by)


def launched(device, x, ids, tiling, wanted, temperature=None, results=None, num_programs=None, vector=None, prepare=prepare):
    """Launches what is wanted of rows with a tiling; `results` are operands behind logits and temperatures."""
    name = name_of(x.dtype)
    lines = lines_of_scores(x.shape, 1, [x.stride()] * 2, (0, 0), False)
    problem = problem_of(
        lines, name, name if wanted.gradient else "float32", form="log_softmax", log_probs=wanted,
        scores=Scores() if temperature is None else Scores(temperature="rows"),
    )  # fmt: skip
    if vector:
        problem = dataclasses.replace(problem, vector=vector, unaligned=True)
    programs = num_programs or problem.tiles(tiling.tile_rows) * tiling.splits
    sizes = {**sizes_of(problem), "n_ids": ids.shape[1], "ignored": IGNORED}
    tiling = dataclasses.replace(tiling, walk=num_programs is not None)
    run = bind_tiling(problem, tiling, programs, sizes, device, x.device, prepare)
    ahead = [results.pop(0)] if wanted.gradient else []
    run(*ahead, x, *([] if temperature is None else [temperature]), *results)


def both(device, x, ids, tiling, temperature=None, entropy=True, **how):
    """Computes numbers of rows by a launch and their gradient by another, and compares both with float64."""
    where, compute = x.device, torch.promote_types(x.dtype, torch.float32)
    statistics = torch.full((2 + entropy, len(x)), NAN, dtype=compute, device=where)
    picked = torch.full(ids.shape, NAN, dtype=compute, device=where)
    forward = LogProbs(entropy=entropy)
    launched(device, x, ids, tiling, forward, temperature, [statistics, ids, picked], **how)
    along = None if temperature is None else temperature.unsqueeze(1)
    assert_picked((picked, statistics[2] if entropy else None), x, ids, along)

    dpicked, dentropy = random(*ids.shape, seed=1).to(where, compute), random(len(x), seed=2).to(where, compute)
    dx = torch.full((len(x), x.stride(0)), NAN, dtype=x.dtype, device=where)[:, : x.shape[1]]
    gradient = LogProbs(entropy=entropy, gradient=True, many=ids.shape[1] > 1)
    given = [dx, statistics, ids, dpicked, *([dentropy] if entropy else [])]
    launched(device, x, ids, tiling, gradient, temperature, given, **how)
    assert_gradient(dx, x, ids, dpicked, dentropy if entropy else None, along)
    return picked, statistics, dx
