"""Starts the ranks of a process group as processes, and reports the outcome of each case of sharded_cases.py.

    python tests/support/ranks.py RESULTS --worlds 2 3 4 [--cases NAME ...] [--faults NAME ...] [--backend nccl]

Ranks on the CPU are forked from one process that has imported everything, which takes seconds. It sees no GPU: where torch
compiles, it looks for one, and refuses one that was looked for ahead of a fork. Ranks with GPUs are processes of their own.
For each world and case, and for each fault, RESULTS gets the messages of ranks that failed. A rank that hangs is killed at the
limit, and its case says so.
"""

import argparse
import datetime
import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

LIMIT = 240  # seconds for all cases of a world
HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}  # from ranks on the CPU
PRELOADED = (
    "portable_softmax.distributed.dtensor",
    "torch._dynamo",
    "torch._inductor.compile_fx",
)  # what ranks would import each


def run_cases(*arguments, interpreted=False, limit=2 * LIMIT, **environment):
    """Runs this file in a process of its own, and returns {world: {case: failures}, fault: failures}."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = [sys.executable, __file__, str(results), *map(str, arguments)]
        kept = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        kept |= {} if "nccl" in arguments else HIDDEN
        kept |= {"TRITON_INTERPRET": "1"} if interpreted else {}
        ran = subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, timeout=limit, check=False)
        assert ran.returncode == 0, ran.stderr
        return json.loads(results.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--worlds", type=int, nargs="+", default=[])
    parser.add_argument("--cases", nargs="+", help="NAME, or WORLD:NAME; all of each world if none is named")
    parser.add_argument(
        "--faults", nargs="+", default=[], help="each by a group of three of its own, with a timeout of 2 seconds"
    )
    parser.add_argument("--backend", default="gloo", help="nccl takes a GPU for each rank")
    parser.add_argument("--timeout", type=float, default=60, help="the group's, in seconds")
    options = parser.parse_args()
    import sharded_cases

    if options.backend != "nccl":
        for name in PRELOADED:
            importlib.import_module(name)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for world in options.worlds:
            names = [
                each for each in sharded_cases.CASES[world] if not options.cases or {each, f"{world}:{each}"} & {*options.cases}
            ]
            found[world] = _run_world(world, names, options, Path(folder) / str(world)) if names else {}
        options.timeout = 2
        for name in options.faults:
            found |= _run_world(3, [name], options, Path(folder) / name)
    options.results.write_text(json.dumps(found, indent=1))


def _run_world(world, names, options, folder):
    folder.mkdir()
    start = multiprocessing.get_context("spawn" if options.backend == "nccl" else "fork").Process
    ranks = [start(target=_rank, args=(rank, world, names, options, folder)) for rank in range(world)]
    for each in ranks:
        each.start()
    end = time.monotonic() + LIMIT
    for each in ranks:
        each.join(max(0, end - time.monotonic()))
    hung = [each.is_alive() for each in ranks]
    for each in ranks:
        each.kill()
        each.join()
    states = ["hung" if is_hung else each.exitcode for each, is_hung in zip(ranks, hung, strict=True)]
    return _collected(world, names, folder, states)


def _collected(world, names, folder, states):
    """Returns the messages of the failed ranks, by case; None for a case that all ranks have passed."""
    said = [json.loads(path.read_text()) if (path := folder / f"rank{rank}").exists() else {} for rank in range(world)]
    found = {}
    for name in names:
        failures = {
            rank: each.get(name, f"did not run; the rank ended with {states[rank]}")
            for rank, each in enumerate(said)
            if each.get(name, "") is not None
        }
        found[name] = failures or None
    return found


def _rank(rank, world, names, options, folder):
    """Runs the cases as one rank of a group, and ends the process."""
    import sharded_cases
    import torch
    import torch.distributed as dist

    said = {}
    try:
        torch.set_num_threads(1)
        if options.backend == "nccl":
            sharded_cases.WHERE[0] = f"cuda:{rank}"
            torch.cuda.set_device(rank)
        else:
            assert not torch.cuda.is_available(), "a GPU that is seen ahead of a fork cannot be used behind it"
        store = dist.FileStore(str(folder / "store"), world)
        timeout = datetime.timedelta(seconds=options.timeout)
        dist.init_process_group(options.backend, rank=rank, world_size=world, store=store, timeout=timeout)
        cases = sharded_cases.CASES[world] | sharded_cases.FAULTS
        for name in names:
            try:
                cases[name]()
                said[name] = None
            except Exception:
                said[name] = traceback.format_exc()
                break  # the ranks may be out of step
            finally:
                (folder / f"rank{rank}").write_text(json.dumps(said))
    except BaseException:
        said |= {name: traceback.format_exc() for name in names if name not in said}
        (folder / f"rank{rank}").write_text(json.dumps(said))
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
