"""Architectures that no profile describes, and devices of other vendors whose Triton takes the name of a known backend."""

from itertools import product

import pytest
from offline import read_problem
from playback import fresh, play, recorded  # noqa: F401  (an autouse fixture)

from portable_softmax import KernelResources, current_device
from portable_softmax.planning import planner

OTHERS = {
    "lookalike_c550": "MetaX C550 is cuda/80 to Triton, but another vendor's: plans lean on .* of nvidia/est",
    "lookalike_k100_ai": "K100_AI is hip/gfx928 to Triton, but another vendor's: plans lean on .* of amd/est",
    "lookalike_p800": "P800 is xpu/3 to Triton, but another vendor's: plans lean on .* of intel/est",
}


@pytest.mark.parametrize(("name", "sentence"), OTHERS.items(), ids=OTHERS)
def test_a_warning_names_the_device_and_every_problem_has_a_launch_that_fits(monkeypatch, name, sentence):
    machine = recorded(name)
    play(monkeypatch, machine)
    with pytest.warns(UserWarning, match=sentence) as warned:
        other, again = current_device(), current_device()
    assert again is other
    assert len(warned) == 1
    expected = machine["expected"]
    assert (other.profile.name, other.arch, other.profile.estimated) == (expected["profile"], expected["arch"], True)
    for fact, (value, origin) in expected["facts"].items():
        assert (getattr(other.hardware, fact), other.origins[fact]) == (value, origin), fact

    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, None, 1024)

    for n_rows, n_cols, backward in product((1, 4096), (1, 33, 781, 50257, 10**6), (False, True)):
        chosen = planner.choose(read_problem(n_rows, n_cols, "bfloat16", other, "softmax", backward), other, measure)
        assert chosen.occupancy.programs_per_multiprocessor >= 1
        assert chosen.tiling.num_warps * other.hardware.warp_size <= other.hardware.max_threads_per_program
