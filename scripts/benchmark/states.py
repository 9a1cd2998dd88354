"""Times states of this package side by side on one device: each in a process of its own, in turns.

A state is a folder that holds `portable_softmax` and `device_profiles`, with a folder of profiles of its own behind a colon if
it has one. All launches are compiled by many processes first. With --peers the first state's process times a copy and torch
too, and with `ours` as a state's name its times are those that docs/speed.md is made of. The CSV has the columns of
scripts/results/README.md.

    git worktree add /tmp/old v1 && python scripts/benchmark states now=. old=/tmp/old tuned=.:profiles --out states.csv
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ELEMENTS = 2**24  # of float32, and twice as many of bfloat16: 64 MB
LENGTHS = {  # classes of contiguous rows
    "short": (3, 5, 9, 17, 33, 64, 100, 197, 256, 333, 512),
    "row": (781, 1000, 1024, 2048, 3001, 4096, 5000, 8192, 12672, 15000, 20000),
    "long": (24576, 32768, 50257, 65536, 100003, 131072, 151936, 262144),
}
FEW = (
    *(
        (1, 128256),
        (8, 128256),
        (48, 129280),
        (128, 151936),
        (256, 50304),
        (64, 50257),
        (4096, 384),
        (1823, 781),
        (1024, 32768),
    ),
)
BESIDE = tuple((n_cols, inner) for inner in (3, 8, 49, 64, 333, 1024) for n_cols in (10, 64, 300, 1000, 2560, 12000, 40999))
TRANSPOSED = (64, 200, 512, 1000, 4096, 20000)
HEADS = (48, 64, 96, 128, 192)


class Problem(NamedTuple):
    """A softmax: its class, the shape and dim, the dims that are exchanged in memory, the type and direction."""

    kind: str
    shape: tuple[int, ...]
    dim: int
    exchanged: tuple[int, ...]
    dtype: str
    direction: str


def problems() -> Iterator[Problem]:
    """Yields all problems that are timed."""
    for dtype, elements in (("float32", ELEMENTS), ("bfloat16", 2 * ELEMENTS)):
        for direction in ("forward", "backward"):
            for kind, lengths in LENGTHS.items():
                yield from (Problem(kind, (elements // n, n), 1, (), dtype, direction) for n in lengths)
            yield from (Problem("few", shape, 1, (), dtype, direction) for shape in FEW)
            for n, inner in BESIDE:
                if matrices := elements // (n * inner):
                    yield Problem("across", (matrices, n, inner), 1, (), dtype, direction)
            yield from (Problem("transposed", (elements // n, n), 1, (0, 1), dtype, direction) for n in TRANSPOSED)
            yield from (Problem("heads", (16, 16, elements // (256 * n), n), 3, (1, 2), dtype, direction) for n in HEADS)


def main() -> int:
    """Times all states and prints how their times compare with those of the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("states", nargs="+", metavar="NAME=FOLDER[:PROFILES]")
    parser.add_argument("--out", type=Path, default=Path("states.csv"))
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--peers", action="store_true", help="a copy and torch too")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="processes that compile")
    parser.add_argument("--alone", nargs=2, type=int, help=argparse.SUPPRESS)  # for processes that compile: which of how many
    parser.add_argument("--timed", action="store_true", help=argparse.SUPPRESS)  # for processes that time
    options = parser.parse_args()
    if options.timed or options.alone:
        _in_this_process(options.alone, options.peers)
        return 0
    from benchmark.here import here
    from benchmark.results import write

    states = dict(state.split("=", 1) for state in options.states)
    for where in states.values():
        started = [_process(where, "--alone", str(job), str(options.jobs)) for job in range(options.jobs)]
        for process in started:
            process.communicate()
    columns = {name: here(where.partition(":")[0]) for name, where in states.items()}
    lines: list[dict[str, Any]] = []
    for _ in range(options.turns):
        for number, (name, where) in enumerate(states.items()):
            peers = ["--peers"] if options.peers and not number else []
            timed = _process(where, "--timed", *peers).communicate()[0].splitlines()
            lines += [columns[name] | {"provider": name} | json.loads(line) for line in timed]
            results = write(options.out, _results(lines))
    _print(results, list(states))
    return 0


def _process(where: str, *words: str) -> "subprocess.Popen[str]":
    folder, _, profiles = where.partition(":")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}
    environment |= {"PORTABLE_SOFTMAX_PROFILES": profiles} if profiles else {}
    command = [sys.executable, __file__, "-", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def _in_this_process(share: list[int] | None, peers: bool) -> None:
    """Runs every problem once, or every so-manieth, or times it; a state's process imports no more of this folder."""
    import torch
    from triton.testing import do_bench

    for problem in list(problems())[share[0] :: share[1]] if share else problems():
        layout = f"transpose({', '.join(map(str, problem.exchanged))})" if problem.exchanged else "contiguous"
        line: dict[str, Any] = {"sweep": problem.kind, "shape": "x".join(map(str, problem.shape)), "layout": layout,
                                "dim": problem.dim, "dtype": problem.dtype, "direction": problem.direction}  # fmt: skip
        for name, call in _calls(problem, peers).items():
            provider = {"provider": name} if name else {}
            try:
                call()
                if not share:
                    print(json.dumps(line | provider | {"us": 1e3 * do_bench(call, 3, 15, return_mode="median")}), flush=True)
            except Exception as error:
                print(json.dumps(line | provider | {"failure": f"{type(error).__name__}: {error}"[:200]}), flush=True)
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()


def _calls(problem: Problem, peers: bool) -> dict[str, Any]:
    """Returns the state's own call, by no name, and those of the peers."""
    import torch

    from portable_softmax import softmax

    where = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
    shape = list(problem.shape)
    if problem.exchanged:
        one, other = problem.exchanged
        shape[one], shape[other] = shape[other], shape[one]
    x = torch.randn(shape, device=where, dtype=getattr(torch, problem.dtype))
    x = x.transpose(*problem.exchanged) if problem.exchanged else x
    out, dim = torch.empty(x.shape, device=where, dtype=x.dtype), problem.dim
    if problem.direction == "forward":
        others = {"copy": lambda: out.copy_(x), "torch": lambda: torch.softmax(x, dim)}
        return {"": lambda: softmax(x, dim)} | (others if peers else {})
    y = torch.softmax(x.contiguous(), dim)
    others = {
        "copy": lambda: torch.add(x, y, out=out),
        "torch": lambda: torch.ops.aten._softmax_backward_data(x, y, dim, y.dtype),
    }
    from portable_softmax.operators.softmax import NO_FACTORS, launched_gradient

    options = NO_FACTORS, False, dim % x.dim(), False, y.dtype, False
    return {"": lambda: launched_gradient(x, y, *options)} | (others if peers else {})


def _results(lines: list[dict[str, Any]]) -> Iterator[Any]:
    """Yields a result for each provider and problem: the median of its turns, or why it failed."""
    from benchmark.results import Result

    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        columns = {name: value for name, value in line.items() if name not in ("us", "failure")}
        groups[tuple(columns.items())].append(line)
    for key, group in groups.items():
        times = [line["us"] for line in group if "us" in line]
        failure = next((line["failure"] for line in group if "failure" in line), "")
        median = statistics.median(times) if times and not failure else None
        spread = (max(times) - min(times)) / median if median and len(times) > 1 else None
        yield Result(**dict(key), median_us=median, spread=spread, failure=failure)


def _print(results: list[Any], states: list[str]) -> None:
    """Prints geometric means of the first state's times over the others', by class and direction."""
    from benchmark.results import cells_of

    ratios: dict[tuple[Any, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells_of(results):
        for state in cell.us.keys() - {states[0]} if states[0] in cell.us else ():
            for group in ((cell.result.sweep, cell.result.dtype, cell.result.direction), ("all", "", "")):
                ratios[group][state].append(cell.us[states[0]] / cell.us[state])
    for group, by_state in ratios.items():
        words = [f"{state} {statistics.geometric_mean(values):.3f} (least {min(values):.2f}, {len(values)})"
                 for state, values in by_state.items()]  # fmt: skip
        print(" ".join(group), *words, sep="  ")


if __name__ == "__main__":
    raise SystemExit(main())
