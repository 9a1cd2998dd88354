"""A sharded softmax, with ranks as processes, over Gloo: support/sharded_cases.py has the cases, ranks.py starts them."""

import pytest
import torch
from ranks import run_cases
from sharded_cases import CASES, FAULTS
from sweep import mostly_slow

pytestmark = pytest.mark.xdist_group("ranks")  # one process starts the ranks of all cases
ALL = [(world, name) for world in (2, 3, 4) for name in CASES[world]]
ONE = {name: world for world in (2, 4, 3) for name in CASES[world]}  # number of ranks of the default run, 3 where it may be
INTERPRETED = "forms_and_their_gradients", "masked_shards_and_special_values", "every_dim", "dtensors", "log_probs_of_tokens"


def assert_passed(failures):
    assert failures is None, "\n".join(f"rank {rank}: {said}" for rank, said in failures.items())


@pytest.fixture(scope="module")
def by_torch(request):
    """The outcomes of all cases that this run has chosen, by one process."""
    asked = (getattr(item, "callspec", None) for item in request.session.items if item.module is request.module)
    chosen = [
        f"{each.params['world']}:{each.params['name']}" for each in asked if each and {"world", "name"} <= each.params.keys()
    ]
    return run_cases("--worlds", 2, 3, 4, "--cases", *chosen, "none", "--faults", *FAULTS)


@pytest.mark.parametrize(("world", "name"), mostly_slow(ALL, lambda world, name: ONE[name] == world))
def test_ranks_agree_with_float64(by_torch, world, name):
    assert_passed(by_torch[str(world)][name])


def test_an_error_in_a_case_is_seen(by_torch):
    found = by_torch["a_case_that_is_wrong"]
    assert set(found) == {"0", "2"}  # the other one's shard is empty
    assert all("an error of" in said for said in found.values())


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("a_rank_that_dies", "RuntimeError"),
        ("a_rank_that_never_comes", "Timed out waiting"),
        ("shapes_that_differ_while_debugging", "ValueError: ranks of one group differ"),
        ("types_that_differ_while_debugging", "of torch.float64"),
        ("log_probs_that_differ_while_debugging", "given.rank=True"),
        ("shapes_that_differ", ""),  # in Gloo's words, which ends the first rank's process
    ],
)
def test_a_fault_is_an_error_in_bounded_time(by_torch, fault, error):
    found = by_torch[fault]
    assert set(found) == {"0", "1", "2"}
    assert error in found["1"]
    assert not any("hung" in said for said in found.values())


@pytest.fixture(scope="module")
def by_kernel(request):
    chosen = {
        item.callspec.params["name"] for item in request.session.items if "by_kernel" in getattr(item, "fixturenames", ())
    }
    return run_cases("--worlds", 2, "--cases", *chosen, interpreted=True)


@pytest.mark.kernel
@pytest.mark.parametrize("name", mostly_slow(INTERPRETED, lambda name: name in INTERPRETED[:2]))
def test_kernels_agree_with_float64(device, by_kernel, name):
    if device.backend != "interpreter":
        pytest.skip("the ranks run in Triton's interpreter")
    assert_passed(by_kernel["2"][name])


@pytest.mark.kernel
@pytest.mark.accelerator
@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_agree_on_devices_of_their_own(device, world):
    if device.backend != "cuda" or torch.cuda.device_count() < world:
        pytest.skip(f"needs {world} devices")
    found = run_cases("--worlds", world, "--backend", "nccl")[str(world)]
    for failures in found.values():
        assert_passed(failures)
