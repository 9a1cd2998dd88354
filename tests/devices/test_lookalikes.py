"""Other vendors' devices, whose Triton and torch take the names of a backend that is known: no more is believed than is told.

Their drivers are played back from recorded/lookalike_*.json, which are written from the drivers' sources, as each says itself.
"""

import warnings
from itertools import product
from types import SimpleNamespace

import pytest
from offline import read_problem
from playback import RecordedDriver, fresh, play, recorded  # noqa: F401  (an autouse fixture)
from triton.backends.compiler import GPUTarget

from portable_probe.profiles import write_profile
from portable_softmax import Device, DeviceError, KernelResources, current_device, plan, profiles
from portable_softmax.devices import detect
from portable_softmax.devices.backends import BACKENDS
from portable_softmax.planning import planner

OTHERS = {
    "lookalike_bi_v150": r"Iluvatar BI-V150 is cuda/70 to Triton, but another vendor's \(no GPU of NVIDIA's has warps of 64\)",
    "lookalike_c550": r"MetaX C550 is cuda/80 to Triton, but another vendor's \(no GPU of NVIDIA's has warps of 64\)",
    "lookalike_k100_ai": r"K100_AI is hip/gfx928 to Triton, but another vendor's \(gfx928 is Hygon's\)",
    "lookalike_bw1000": r"BW1000 is hip/gfx936 to Triton, but another vendor's \(gfx936 is Hygon's\)",
    "lookalike_p800": r"P800 is xpu/3 to Triton, but another vendor's \(no GPU of Intel's has sub-groups of 1\)",
    "lookalike_p800_as_cuda": r"P800 is cuda/3 to Triton, but another vendor's \(no GPU of NVIDIA's has warps of 1\)",
}
LEAN = r": plans lean on the cautious estimates of \w+/estimated; `portable-softmax profiles new DIR` writes a profile"


@pytest.fixture(params=OTHERS)
def other(request, monkeypatch):
    """Each of them, as the current device."""
    play(monkeypatch, recorded(request.param))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return current_device()


@pytest.mark.parametrize(("name", "sentence"), OTHERS.items(), ids=OTHERS.keys())
def test_one_sentence_says_who_it_is_and_what_is_told_overrides_estimates(monkeypatch, name, sentence):
    machine = recorded(name)
    play(monkeypatch, machine)
    with pytest.warns(UserWarning, match=sentence + LEAN) as said:
        other, again = current_device(), current_device()
    assert again is other
    assert len(said) == 1
    expected = machine["expected"]
    assert (other.profile.name, other.arch, other.profile.estimated) == (expected["profile"], expected["arch"], True)
    for fact, (value, origin) in expected["facts"].items():
        assert (getattr(other.hardware, fact), other.origins[fact]) == (value, origin), fact


def test_it_is_compiled_by_its_triton(other):
    assert other.vendor.compile_target(other.arch, other.index, other.hardware) == other.arch
    options = other.vendor.compile_options(8, None, 64, other.hardware)
    assert options == {"num_warps": 8, "num_stages": 1, "enable_fp_fusion": True}
    assert other.vendor.torch_device_type == "cuda"


@pytest.mark.parametrize(("told", "read"), [((4, 512), (4, 512)), ((-1, -1), (1, 0)), ((2, None), (2, 0))])
def test_only_metadata_is_read_of_a_kernel(other, told, read):
    kernel = SimpleNamespace(metadata=SimpleNamespace(num_warps=told[0], shared=told[1]), asm={})
    assert other.vendor.resources(kernel) == KernelResources(read[0], None, read[1])


def test_registers_that_are_not_known_are_the_most_that_a_warp_can_be_given(other):
    hardware = other.hardware
    slice_ = hardware.registers_per_multiprocessor // hardware.partitions_per_multiprocessor // hardware.warp_size
    granules = slice_ // hardware.register_granule * hardware.register_granule
    most = min(granules, hardware.max_registers_per_thread)
    unknown, known = (other.vendor.occupancy(KernelResources(2, count), hardware) for count in (None, most))
    assert unknown.programs_per_multiprocessor == known.programs_per_multiprocessor > 0
    assert unknown.limits["registers (estimated)"] == known.limits["registers"]


def test_every_problem_has_a_launch_that_fits(other):
    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, None, 1024)

    dtypes = [name for name in other.profile.dtypes if name != "float64" or other.hardware.warp_size > 1]
    lengths = (1, 33, 781, 4096, 50257, 10**6)
    for n_rows, n_cols, dtype, backward in product((1, 4096), lengths, dtypes, (False, True)):
        chosen = planner.choose(read_problem(n_rows, n_cols, dtype, other, "softmax", backward), other, measure)
        assert chosen.occupancy.programs_per_multiprocessor >= 1
        assert chosen.tiling.num_warps * other.hardware.warp_size <= other.hardware.max_threads_per_program


def test_a_profile_of_its_own_ends_the_estimates(monkeypatch, tmp_path, other):
    write_profile(other, tmp_path)
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    detect._device.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        described = current_device()
    assert not described.profile.estimated
    assert described.hardware == other.hardware


@pytest.mark.parametrize(
    ("told", "profile", "threads"),
    [({"name": "NVIDIA A100-SXM4-80GB"}, "nvidia/estimated", 512), ({"max_threads_per_block": 384}, "nvidia/estimated", 256)],
)
def test_a_name_is_no_proof_and_threads_are_a_power_of_two(monkeypatch, told, profile, threads):
    machine = recorded("lookalike_c550")
    play(monkeypatch, machine | {"torch": [machine["torch"][0] | told]})
    with pytest.warns(UserWarning, match="another vendor's"):
        other = current_device()
    assert (other.profile.name, other.hardware.max_threads_per_program) == (profile, threads)


VENDORS_OWN = [
    *(("cuda", arch, name) for arch, name in [
        (70, "Tesla V100-SXM2-16GB"), (70, "TITAN V"), (75, "GeForce RTX 2080"), (75, "Quadro RTX 8000"),
        (80, "GRID A100X-40C"), (80, "A100-SXM4-40GB"), (87, "Orin"), (90, "Graphics Device"), (110, "Thor"), (200, None),
    ]),
    *(("hip", arch, None) for arch in ("gfx906", "gfx90a", "gfx90c", "gfx942:sramecc+:xnack-", "gfx950", "gfx1030", "gfx1250")),
]  # fmt: skip


@pytest.mark.parametrize(("backend", "arch", "name"), VENDORS_OWN)
def test_no_device_of_the_vendors_own_is_taken_for_another(monkeypatch, backend, arch, name):
    machine = recorded({"cuda": "driver_h200", "hip": "driver_mi300x"}[backend])
    machine = machine | {"target": [backend, arch, machine["target"][2]], "torch": [machine["torch"][0] | {"name": name}]}
    play(monkeypatch, machine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert current_device().vendor is BACKENDS[backend]


def test_no_profile_is_of_another_vendors():
    for profile in map(Device.from_profile, profiles()):
        assert profile.vendor.another_vendors(profile.arch, profile.hardware.warp_size) is None


def test_each_device_of_a_machine_is_told_by_itself(monkeypatch):
    machine, other = recorded("driver_mi300x"), recorded("lookalike_bw1000")
    both = {key: machine[key] + other[key] for key in ("properties", "torch")}
    play(monkeypatch, machine | both)
    own = current_device(0)
    monkeypatch.setattr(RecordedDriver, "get_current_target", lambda driver: GPUTarget(*other["target"]))
    with pytest.warns(UserWarning, match="gfx936 is Hygon's"):
        assert current_device(1).profile.estimated
    assert (own.vendor, own.profile.name) == (BACKENDS["hip"], "amd/mi300x")


def test_no_device_of_it(monkeypatch):
    play(monkeypatch, recorded("lookalike_p800") | {"available": False})
    with pytest.raises(DeviceError, match=r"xpu driver claims to be active, but torch\.xpu\.is_available\(\) is False"):
        current_device()


@pytest.mark.filterwarnings("ignore:.*another vendor's")
def test_a_plan_of_a_kernel_that_is_compiled_for_its_warps(monkeypatch):
    """Stock Triton compiles for warps of 64 as well, though nobody could run that."""
    play(monkeypatch, recorded("lookalike_c550"))
    found = plan(64, 781, "float32")
    assert (found.resources.registers_per_thread, found.occupancy.limited_by) == (None, ("registers (estimated)",))
    assert any(reason.startswith("registers are estimated") for reason in found.reasons)
