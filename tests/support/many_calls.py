"""Runs random calls (random_calls.py) in several processes, and some of them also as the first call of a process.

python tests/support/many_calls.py 5000 --device cuda --processes 16 --fresh 400
"""

import argparse
import hashlib
import multiprocessing
import random
import sys
import time

import torch
from random_calls import Calls

from portable_softmax.operators import launch


def walk(seed, device, first, count, deadline):
    """Makes calls of a sequence; returns (failures, how many launched what an earlier one bound, the bits of all results)."""
    torch.set_num_threads(1)
    calls, hits, bits = Calls(seed, device), 0, []
    for at in range(first, first + count):
        if time.time() > deadline:
            break
        known = set(launch.calls)
        calls.run(1, at)
        hits += bool(calls.launched) and known.issuperset(launch.calls)
        results = [y if y is None else y.cpu().nan_to_num(7e37).contiguous() for y in calls.results]
        bits.append([y if y is None else hashlib.sha1(y.view(torch.uint8).numpy()).hexdigest() for y in results])
    return [f"seed {seed}, {text}" for text in calls.failures], hits, bits


def main():
    """Prints calls that are wrong, of several sequences, and of some whether a first call of a process has other bits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--fresh", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e6, help="after which no call is begun")
    options = parser.parse_args()
    deadline, seeds = time.time() + options.seconds, range(options.seed, options.seed + options.processes)
    # A process for each task: none has made another call. Forks, which import nothing, of a process that has no device.
    with multiprocessing.get_context("fork").Pool(options.processes, maxtasksperchild=1) as pool:
        share = -(-options.count // options.processes)
        tasks = [(seed, options.device, 0, share, deadline - options.seconds / 2 * bool(options.fresh)) for seed in seeds]
        walks = pool.starmap_async(walk, tasks, 1).get(options.seconds + 60)
        bits = {(seed, at): of for seed, (_, _, digests) in zip(seeds, walks, strict=True) for at, of in enumerate(digests)}
        chosen = random.Random(options.seed).sample(sorted(bits), min(options.fresh, len(bits)))
        tasks = [(seed, options.device, at, 1, deadline) for seed, at in chosen]
        alone = pool.starmap_async(walk, tasks, 1).get(options.seconds + 60)
    failures = [text for failed, _, _ in walks for text in failed]
    print(*failures[:20], f"{len(bits)} calls, {len(failures)} wrong, {sum(hits for _, hits, _ in walks)} hits", sep="\n")
    compared = [(call, digests) for call, (_, _, digests) in zip(chosen, alone, strict=True) if digests]
    other = [call for call, digests in compared if digests != [bits[call]]]
    print(f"{len(compared)} of them beside a first call of a process: {len(other)} with other bits {other[:10]}")
    sys.exit(bool(failures or other))


if __name__ == "__main__":
    main()
