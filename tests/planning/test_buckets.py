"""One choice serves a bucket of rows: the kernel, the tiling and the way of reading are those of every number in it."""

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offline import choose, light
from random_plans import random_problems

from portable_softmax import Device
from portable_softmax.planning.candidates import readings
from portable_softmax.planning.operands import bucket_of, contiguous_problem, representative
from portable_softmax.planning.planner import choose_launch, ranked
from portable_softmax.planning.problem import LogProbs, Scores
from portable_softmax.runtime import plans
from portable_softmax.runtime.kernel import kernels_of

H200 = Device.from_profile("nvidia/h200")


@given(st.integers(2, 2**40))
def test_a_number_stands_for_those_of_its_half_of_an_octave(number):
    least = representative(number)
    assert representative(least) == least <= number < 1.5 * least + 1
    octave = 1 << number.bit_length() - 1
    same = {representative(one) for one in (octave, octave + octave // 2 - 1, octave + octave // 2, 2 * octave - 1)}
    assert len(same) <= 2
    assert least in same


@pytest.mark.parametrize("product", ["nvidia/h200", "amd/mi300x", "ascend/910b3"])
def test_kernels_of_a_bucket_are_those_of_its_problems(product):
    """What is compiled, and how rows may be read, follow from the bucket: layouts, masks and strides of all kinds."""
    device, seen = Device.from_profile(product), 0
    for problem in itertools.islice(random_problems(device, seed=9), 60):
        for launch in ranked(bucket_of(problem), device)[:3]:
            reading = launch.problem
            own = replace(problem, vector=reading.vector, whole_vectors=reading.whole_vectors, scattered=reading.scattered)
            assert kernels_of(reading, launch.tiling, device) == kernels_of(own, launch.tiling, device)
            seen += 1
        ways = [
            [(one.vector, one.whole_vectors, one.scattered) for one in readings(some, device)]
            for some in (problem, bucket_of(problem))
        ]
        assert ways[0] == ways[1]
    assert seen > 60


@pytest.mark.parametrize("n_cols", [1, 501, 46507])
@pytest.mark.parametrize("kind", [{}, {"form": "token_log_probs"}, {"scores": Scores(scale="rows")}, {"inner": 512}], ids=str)
def test_batch_invariance_has_one_bucket(kind, n_cols):
    """Kernels of log-probabilities skip rows from 2,048 on, and numbers of rows are read by matrix."""
    problems = [contiguous_problem(512 * rows, n_cols, "float32", batch_invariant=True) for rows in (1, 7, 300, 3000, 10**6)]
    picks = LogProbs() if kind.pop("form", None) else None
    problems = [replace(problem, log_probs=picks, **kind) for problem in problems]
    assert len(set(map(bucket_of, problems))) == 1
    launches = [choose_launch(bucket_of(problem), H200, light).resized(problem) for problem in problems]
    assert len({launch.tiling._replace(walk=True) for launch in launches}) == 1


@pytest.mark.parametrize("n_cols", [1000, 12345, 50257])
def test_batch_invariant_samples_have_the_launch_of_log_probabilities(n_cols):
    """Sums are added up in the same order then, whatever else a sample does."""
    problem = contiguous_problem(64, n_cols, "bfloat16", batch_invariant=True)
    kinds = LogProbs(), LogProbs(sample=True), LogProbs(sample=True, seed="rows", min_p="number")
    launches = [ranked(bucket_of(replace(problem, form="log_softmax", log_probs=kind)), H200)[0] for kind in kinds]
    assert len({launch.tiling for launch in launches}) == 1


def test_a_known_bucket_plans_and_compiles_nothing(monkeypatch):
    """Counts choices and compilations over 1,000 numbers of rows, of which 20 have met all buckets."""
    compiled = []
    monkeypatch.setattr(plans, "_compile", lambda *candidate: compiled.append(candidate) or light(*candidate))
    monkeypatch.setattr(plans, "_choices", {})
    chance, at = random.Random(3), 2**10
    met = [at << octave | half * (at << octave) // 2 for octave in range(10) for half in (0, 1)]
    launches = [plans.plan_problem(contiguous_problem(rows, 4096, "bfloat16"), H200) for rows in met]
    before, made = len(compiled), len(plans._choices)
    for rows in (chance.randrange(at, at << 10) for _ in range(1000)):
        launch = plans.plan_problem(contiguous_problem(rows, 4096, "bfloat16"), H200)
        assert launch.problem.n_rows == rows
        assert launch.num_programs % launch.tiling.splits == 0
        assert any(launch.tiling._replace(walk=False) == one.tiling._replace(walk=False) for one in launches)
    assert (len(compiled), len(plans._choices)) == (before, made)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 2**14), st.sampled_from([781, 4096, 32000, 131072]), st.sampled_from(["nvidia/h200", "amd/mi300x"]))
def test_split_rows_are_resident_for_every_number(rows, n_cols, product):
    device = Device.from_profile(product)
    problem = contiguous_problem(rows, n_cols, "bfloat16")
    launch = choose_launch(bucket_of(problem), device, light).resized(problem)
    assert launch.num_programs >= launch.tiling.splits
    assert not launch.tiling.is_split or device.resident(launch.occupancy) >= launch.tiling.splits
    assert launch.us <= 1.15 * choose(problem, device, light).us
