"""Launches rows of the table with the runtime's own functions, and compares them with float64.

Results have guards around them, and what is no element of an input is nan. Hostile rows are between rows whose differences are
exact, so a row that reads another one is detected.
"""

import math
from dataclasses import replace
from unittest import mock

import exact
import torch
from exact import IGNORED, INF, assert_right, logits
from table import GRADIENTS, KINDS, NAN, hostile, random, values

from portable_softmax.api.tokens import SAMPLE
from portable_softmax.operators import reference
from portable_softmax.operators.launch import MASK_KINDS
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.problem import LogProbs, Scores
from portable_softmax.runtime.bind import bind, problem_of_tensors
from portable_softmax.runtime.kernel import kernels_of

GUARD, NO_RESULT = 7.0, -3.0


def check(row, machine):
    """Launches a row of the table, and compares the results with float64; returns them."""
    return CHECKS[row.kind](row, machine)


# ---------------------------------------------------------------- memory
def empty(machine, layout, shape, dtype, fill, ahead=32):
    """Returns (a tensor of a shape in a layout, all of its memory), filled.

    Ahead of and behind the tensor there are so many elements, or none ahead and what fills 16 bytes behind it.
    """
    *outer, n_rows, n_cols = shape
    size = [*outer, n_cols, n_rows] if layout.across else [*outer, n_rows, n_cols]
    if layout.swapped:
        size[-3], size[-2] = size[-2], size[-3]
    line = size[-1]
    size[-1] += layout.gap if layout.vector else layout.gap + 1 - n_cols % 2
    elements, vector = math.prod(size), 16 // dtype.itemsize
    behind = ahead or -elements % vector
    memory = torch.full((ahead + elements + behind,), fill, dtype=dtype).to(machine.where)
    inner = memory[ahead : ahead + elements].view(size)[..., :line]
    if layout.swapped:
        inner = inner.transpose(-3, -2)
    return (inner.transpose(-2, -1) if layout.across else inner), memory


def placed(machine, layout, content):
    """Returns values in a layout, in memory of their own; between them is nan."""
    inner, _ = empty(machine, layout, content.shape, content.dtype, NAN, 0)
    return inner.copy_(content.to(machine.where))


def result(row, machine, shape, instead, dtype):
    """Returns (room for a result, all of its memory); in place that of another tensor, None."""
    layout = row.lies
    if "in place" in row.options and instead.dtype == dtype:
        return instead, None
    if row.number % 3 == 0 and layout.vector and "gradient" not in row.kind:
        layout = layout._replace(gap=0, swapped=False)
    room, memory = empty(machine, layout, shape, dtype, GUARD)
    return room.fill_(NO_RESULT), memory


def assert_guards(room, memory):
    """Asserts that nothing around a result was written."""
    if memory is not None:
        contents = room.clone()
        room.fill_(GUARD)
        assert (memory == GUARD).all(), "something was written outside of the result"
        room.copy_(contents)


# ---------------------------------------------------------------- launches
def launch(machine, row, named, about, sizes=None):
    """Launches a kernel on tensors and numbers by its parameters, and returns its config; `about` is what Problem describes."""
    layout, tiling = row.lies, row.tiling_of(machine)
    if about.get("log_probs", LogProbs()).gradient:  # which maps alone
        tiling = tiling._replace(two_launches=False)
    tensors = tuple(named[name] for name in ("result_ptr", "dx_ptr", "dy_ptr", "y_ptr", "x_ptr") if name in named)
    about |= {"dim": tensors[0].dim() - 1, "mask": named.get("mask_ptr")}
    problem = problem_of_tensors(tensors, device=machine.device, **about)
    assert problem, "copies of the tensors would be launched"
    if layout.scattered:
        problem = replace(problem, scattered=True)
    elif not layout.vector:
        problem = replace(problem, vector=problem.widest, whole_vectors=True)
    programs = tiling.splits * (2 if tiling.walk else problem.tiles(tiling.tile_rows))
    skipped = mock.patch("portable_softmax.planning.problem.MANY_ROWS", 1 if row.number % 2 else 2048)  # rows without ids
    with machine.current(), skipped:
        device = machine.device
        kernels = [(one, machine.run_of(one, device)) for one in kernels_of(problem, tiling, device)]
        kernel = kernels[0][0]
        operands = [named[name] if name in kernel.types else None for name in kernel.operands]
        plan = LaunchPlan(problem, tiling, num_programs=programs)
        bind(plan, kernels, machine.where, sizes)(*operands)
    return kernel.config


def scores_of(row, machine, arguments):
    """Returns (Scores, tensors and numbers by a kernel's parameter) for arguments of a call."""
    kinds, named, mask, shape = {}, {}, arguments.get("mask"), row.shape(machine)
    for name in ("scale", "temperature"):
        number = arguments.get(name)
        if isinstance(number, torch.Tensor):
            kinds[name], named[name] = "rows", number.reshape(-1).to(machine.where)
        elif number is not None:
            kinds[name], named[name] = "number", number
    if "sink" in arguments:
        named["sink_ptr"] = arguments["sink"].reshape(-1).to(machine.where)
    if "bits" in row.options:
        kinds["mask"] = "bits"
        bits = torch.nn.functional.pad(mask, (0, -shape[-1] % 32), value=True).unflatten(-1, (-1, 32))  # set behind a row
        words = (bits.long() << torch.arange(32)).sum(-1).to(torch.int32)
        named["mask_ptr"] = words.to(machine.where).expand(*shape[:-1], words.shape[-1])
    elif mask is not None:
        kinds["mask"] = MASK_KINDS[mask.dtype]
        as_rows = row.number % 2 and mask.shape == shape
        named["mask_ptr"] = placed(machine, row.lies, mask) if as_rows else mask.expand(shape).to(machine.where)
    kinds |= {"cap": arguments.get("softcap"), "causal": arguments.get("causal")}
    return Scores(**kinds, sink="sink" in arguments, zero_rows="masked_rows" in arguments), named


def inputs_of(row, machine):
    """Returns (x; 0 for rows whose differences are exact; arguments of a call; what `scores_of` does, and x as placed).

    What is hidden is nan: it is not seen.
    """
    shape = row.shape(machine)
    (x, loose), arguments = values(shape, row.dtype, row.number), row.arguments(shape)
    scores, named = scores_of(row, machine, arguments)
    hides = {"mask": arguments["mask"]} if scores.mask in ("bool", "bits") else {}
    x[logits("softmax", torch.zeros(shape), causal=scores.causal, **hides)[0] == -INF] = NAN
    named["x_ptr"] = placed(machine, row.lies, x)
    return x, loose, arguments, scores, named


def _softmax(row, machine):
    (x, loose, arguments, scores, named), log = inputs_of(row, machine), row.kind == "log_softmax"
    if arguments.keys() - {"causal", "masked_rows"} or row.result.itemsize == 2:
        loose.fill_(1.0)
    y, memory = result(row, machine, x.shape, named["x_ptr"], row.result)
    launch(machine, row, {"result_ptr": y, **named}, {"form": row.kind, "scores": scores})
    assert_right(y, *exact.softmax(x, log, loose, **arguments))
    assert log or not (y > 1).any()
    assert_guards(y, memory)
    return y


def _gradient(row, machine):
    shape, layout, log = row.shape(machine), row.lies, row.kind == "log gradient"
    dy, arguments = hostile(shape, row.result, row.number, GRADIENTS), row.arguments(shape)
    scores, named = scores_of(row, machine, arguments)
    x = random(*shape, seed=row.number, dtype=row.dtype)
    y = exact.softmax(x, log, 1.0, **arguments)[0].to(row.result)
    named |= {"dy_ptr": placed(machine, layout, dy), "y_ptr": placed(machine, layout, y)}
    named |= {"x_ptr": placed(machine, layout, x)} if scores.cap else {}
    dx, memory = result(row, machine, shape, named["dy_ptr"], row.dtype)
    hides = named.pop("mask_ptr", None) is not None or scores.causal or scores.sink or scores.zero_rows  # y has what it hides
    scores = Scores(scale=scores.scale, temperature=scores.temperature, cap=scores.cap, mask="bool" if hides else None)
    about = {"form": "log_softmax" if log else "softmax", "scores": scores, "backward": True}
    config = launch(machine, row, {"result_ptr": dx, **named}, about)
    factors = {name: arguments[name] for name in ("scale", "temperature", "softcap") if name in arguments}
    assert_right(dx, *exact.gradient(dy, y, log, config.MASKED_GRADIENT, x=x, **factors))
    assert_guards(dx, memory)
    return dx


def _log_probs(row, machine):
    (x, _, arguments, scores, named), n_ids = inputs_of(row, machine), 3 if "many" in row.options else 1
    shape = x.shape
    ids = torch.randint(0, shape[-1], (*shape[:-1], n_ids), generator=torch.Generator().manual_seed(row.number))
    for of_row, wrong in zip(ids.view(-1, n_ids)[::3], (IGNORED, -1, 2**40, shape[-1]), strict=False):
        of_row[-1] = wrong
    wanted = {name: name in row.options for name in ("entropy", "lse")}
    sizes = {"statistics_ptr": (2 + wanted["entropy"], *shape[:-1]), "out_ptr": ids.shape}
    named |= {name: torch.full(size, NO_RESULT).to(machine.where) for name, size in sizes.items()}
    named["ids_ptr"] = ids.to(machine.where)
    about, sizes = {"form": "log_softmax", "scores": scores}, {"n_ids": n_ids, "ignored": IGNORED}
    launch(machine, row, named, {**about, "log_probs": LogProbs(**wanted)}, sizes)
    picked, lse, entropies = exact.log_probs(x, ids, **arguments)
    assert_right(named["out_ptr"], *picked)
    statistics = named["statistics_ptr"].cpu()
    if wanted["lse"]:
        assert_right(statistics[0], *lse)
    if wanted["entropy"]:
        assert_right(statistics[2], *entropies)

    d = {"out": random(*ids.shape, seed=1)}
    d |= {name: random(*shape[:-1], seed=2) for name in wanted if wanted[name]}
    dx, memory = result(row, machine, shape, named["x_ptr"], row.dtype)
    named |= {f"d_{name}_ptr": tensor.to(machine.where) for name, tensor in d.items()}
    about["log_probs"] = LogProbs(**wanted, gradient=True, many=n_ids > 1)
    launch(machine, row, {"dx_ptr": dx, **named}, about, sizes)
    assert_right(dx, *exact.log_probs_gradient(x, ids, *map(d.get, ("out", "lse", "entropy")), **arguments))
    assert_guards(dx, memory)
    return dx


def _sample(row, machine):
    x, _, arguments, scores, named = inputs_of(row, machine)
    shape = x.shape
    min_p, seed, position = arguments.get("min_p"), torch.arange(math.prod(shape[:-1])) * 2**33 - 5, row.number
    kind = {torch.Tensor: "rows", float: "number"}.get(type(min_p))
    if min_p is not None:
        named["min_p"] = min_p.reshape(-1).to(machine.where) if kind == "rows" else min_p
    named |= {"seed": seed.to(machine.where), "position": position}
    outputs = {"out_ptr": torch.int64, "statistics_ptr": torch.float32}
    named |= {name: torch.full(shape[:-1], -7, dtype=dtype).to(machine.where) for name, dtype in outputs.items()}
    picks = LogProbs(sample=True, seed="rows", position="integer", min_p=kind)
    launch(machine, row, named, {"form": "log_softmax", "scores": scores, "log_probs": picks})
    ids, log_probs = named["out_ptr"].cpu(), named["statistics_ptr"].cpu()
    args = SAMPLE.Args(x, arguments.get("mask"), arguments.get("temperature"), min_p, seed.view(shape[:-1]), position)
    expected, _ = reference.sample(args, SAMPLE.Options(arguments.get("softcap")))
    assert ids.tolist() == expected.tolist()
    arguments.pop("min_p", None)
    (picked, error), *_ = exact.log_probs(x, ids.clamp(min=0).unsqueeze(-1), **arguments)
    assert_right(log_probs, torch.where(ids < 0, NAN, picked[..., 0]), error[..., 0])
    return log_probs


CHECKS = {kind: _gradient if "gradient" in kind else _softmax for kind in KINDS} | {"log_probs": _log_probs, "sample": _sample}
