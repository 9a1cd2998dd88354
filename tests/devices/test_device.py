"""Detection: what Triton's driver and torch report, merged with the profile; and the errors where they cannot.

The drivers are played back from tests/support/recorded/*.json. Each names its origin: a machine (scripts/record.py), a
public dump, or the vendor's sources. Lookalikes are devices of other vendors whose Triton has the name of a known backend.
"""

import importlib.metadata
import sys
from itertools import product
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import triton
from machine import RECORDED, RecordedDriver, forget, play, recorded
from offline import read_problem

from portable_softmax import (
    Device,
    DeviceError,
    KernelResources,
    NoDeviceError,
    ProfileError,
    current_device,
    occupancy,
    override_aten,
    plan,
    warm_up,
)
from portable_softmax.devices import detect
from portable_softmax.devices.backends import broken_installation
from portable_softmax.planning import planner


@pytest.fixture(autouse=True)
def fresh():
    forget()
    yield
    forget()


def assert_expected(device, expected):
    assert (device.profile.name, device.arch) == (expected["profile"], expected["arch"])
    for fact, (value, origin) in expected["facts"].items():
        assert (getattr(device.hardware, fact), device.origins[fact]) == (value, origin), fact


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_machines(monkeypatch, name):
    play(monkeypatch, RECORDED[name])
    assert_expected(current_device(), RECORDED[name]["expected"])
    with pytest.raises(DeviceError, match="interpreter is required; the local device is"):
        detect.devices_of(["interpreter"])


def test_devices_of_one_machine_each_have_their_own(monkeypatch):
    machine = RECORDED["driver_h200"]
    other = machine["properties"][0] | {"multiprocessor_count": 60}  # a MIG slice, say
    play(monkeypatch, machine | {"properties": machine["properties"] + [other], "torch": machine["torch"] * 2})
    whole, slice_ = current_device(0), current_device(1)
    assert (whole.index, whole.hardware.multiprocessor_count) == (0, 132)
    assert (slice_.index, slice_.hardware.multiprocessor_count) == (1, 60)
    assert current_device() is whole
    with pytest.raises(DeviceError, match="device 2 was requested; torch has 2"):
        current_device(2)


def test_a_device_may_be_named():
    with pytest.raises(TypeError, match=r"Device.from_profile\('h200'\) returns the device of that name"):
        Device("h200")
    for answer in (
        lambda device: plan(64, 519, "float32", device),
        lambda device: occupancy(KernelResources(4, 32), device),
        lambda device: warm_up([(64, 519)], ["float32"], device=device),
    ):
        assert answer("nvidia/h200") == answer(Device.from_profile("nvidia/h200"))
        with pytest.raises(ProfileError, match=r"no profile named 'nvidia/h200x'; did you mean nvidia/h200"):
            answer("nvidia/h200x")
        with pytest.raises(TypeError, match=r"device must be a Device, a name such as 'vendor/product', or None, not dev"):
            answer(torch.device("cuda", 0))


def drivers(error, **active):
    """Triton's drivers by whether they claim the machine; every call of the active one raises `error`."""

    def prepare(monkeypatch):
        backends = {name: SimpleNamespace(driver=SimpleNamespace(is_active=lambda on=on: on)) for name, on in active.items()}
        monkeypatch.setattr(triton.backends, "backends", backends)
        target = SimpleNamespace(get_current_target=mock.Mock(side_effect=error))
        monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=target))

    return prepare


def without_a_compiler(monkeypatch):
    play(monkeypatch, RECORDED["driver_h200"])
    monkeypatch.setattr(RecordedDriver, "get_device_properties", mock.Mock(side_effect=FileNotFoundError("gcc")))


def without_cann(monkeypatch):
    """Torch dies when it is imported, as with torch_npu installed and CANN not set up."""
    monkeypatch.delitem(sys.modules, "torch")
    finder = SimpleNamespace(find_spec=mock.Mock(side_effect=RuntimeError("Failed to load the backend extension: torch_npu")))
    monkeypatch.setattr(sys, "meta_path", [finder])


HIP = next(name for name in RECORDED if RECORDED[name]["target"][0] == "hip")
CANN = OSError("ASCEND_HOME_PATH is not set, source <ascend-toolkit>/set_env.sh first")
BROKEN = {  # what is wrong with a machine, and the error
    "two drivers": (
        drivers(RuntimeError("2 active drivers"), nvidia=True, ascend=True, amd=False),
        r"(?s)Triton's nvidia and ascend drivers claim this machine: 2 active drivers\n.*uninstall all but one",
    ),
    "no CANN": (  # `bisheng` on PATH is enough for the driver to claim the machine
        drivers(CANN, ascend=True), r"(?s)ascend drivers? claim.*ASCEND_HOME_PATH is not set.*CANN's set_env\.sh",
    ),
    "active without a device": (  # a ROCm build of torch on a machine without a GPU, as Triton 3.2 sees it
        lambda monkeypatch: play(monkeypatch, RECORDED[HIP] | {"available": False}),
        r"hip driver claims to be active, but torch\.cuda\.is_available\(\) is False.*/dev/kfd",
    ),
    "no compiler": (without_a_compiler, "cannot describe device 0"),
    "torch that dies": (without_cann, r"(?s)torch is required .*: Failed to load .*: torch_npu.*BACKEND_AUTOLOAD=0"),
    "an unknown backend": (
        lambda monkeypatch: play(monkeypatch, RECORDED["driver_h200"] | {"target": ["tpu", "v6", 32]}),
        "Triton drives a 'tpu' device; this package supports cuda, hip, npu, xpu",
    ),
    **{f"no {name}": (lambda monkeypatch, name=name: monkeypatch.setitem(sys.modules, name, None), f"{words}.*triton; AMD: pip")
       for name, words in (("torch", "torch is required to find"), ("triton.runtime", "Triton is required to find"))},
}  # fmt: skip


@pytest.mark.parametrize(("prepare", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_installation_is_reported(monkeypatch, prepare, words):
    prepare(monkeypatch)
    with pytest.raises(DeviceError, match=words):
        current_device()


OF_321 = ["numpy", "triton==3.2.0; platform_machine == 'x86_64'", "Triton==3.2.0; platform_machine != 'x86_64'"]
TRITONS = [  # the installed `triton`, a vendor's package and what it requires; True if it may replace files of that `triton`
    *(("3.8.0", vendors, [], False) for vendors in ("triton-ascend", "triton-xpu", "pytorch-triton-xpu")),
    *((stock, "triton-ascend", OF_321, stock == "3.2.0") for stock in ("3.2.0", "3.2.1", "3.5.0")),
    ("3.2.0", "triton-ascend", ["triton==3.5.0; platform_machine == 'none'"], False),
    ("3.5.0+git1", "triton-ascend", ["triton (>=3.5,<3.6)", "triton; extra == 'x'"], True),
]


@pytest.mark.parametrize(("stock", "vendors", "requires", "is_right"), TRITONS)
def test_a_vendors_triton_replaces_the_one_that_it_requires(monkeypatch, stock, vendors, requires, is_right):
    def version_of(package):
        if package not in ("triton", vendors):
            raise importlib.metadata.PackageNotFoundError(package)
        return {"triton": stock, vendors: "1.2"}[package]

    monkeypatch.setattr(importlib.metadata, "version", version_of)
    monkeypatch.setattr(importlib.metadata, "requires", {vendors: requires or None}.get)
    if is_right:
        assert broken_installation() is None
        return
    with pytest.raises(DeviceError, match=rf"triton {stock} and {vendors} 1\.2 are both .*pip uninstall triton {vendors}"):
        current_device()


def test_a_machine_without_an_accelerator():
    """Code that is written for a GPU runs: nothing is warmed up or overridden, with a warning."""
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    words = r"none finds a device\. torch .* is built for .*(pip install|nvidia-smi)"
    with pytest.raises(NoDeviceError, match=words):
        current_device()
    with pytest.warns(UserWarning, match=rf"warm_up\(\) does nothing, as there is no device: .*{words}"):
        assert warm_up([(64, 519)], ["float32"], backward=True) == []
    x = torch.randn(3, 5)
    for _ in range(2):
        with pytest.warns(UserWarning, match=rf"override_aten\(\) does nothing, as there is no device: .*{words}"):
            override = override_aten()
        with override:
            assert torch.equal(torch.softmax(x, -1), x.softmax(-1))


OTHERS = {"lookalike_c550": r"MetaX C550 \(cuda/80\)", "lookalike_k100_ai": r"K100_AI \(hip/gfx928\)"}


@pytest.mark.parametrize(("name", "words"), OTHERS.items(), ids=OTHERS)
def test_devices_without_profile_cause_a_warning_and_fit(monkeypatch, name, words):
    machine = recorded("lookalike")[name]
    play(monkeypatch, machine)
    with pytest.warns(UserWarning, match=f"{words} has no profile: plans use the cautious estimates of") as warned:
        other, again = current_device(), current_device()
    assert again is other
    assert len(warned) == 1
    assert_expected(other, machine["expected"])

    def measure(problem, tiling, device):  # a binary of another format, without bytes of shared memory
        metadata = SimpleNamespace(num_warps=tiling.num_warps, shared=None)
        return device.vendor.resources(SimpleNamespace(asm={"other": b""}, metadata=metadata))

    for n_rows, n_cols, backward in product((1, 4096), (1, 781, 10**6), (False, True)):
        chosen = planner.choose_launch(read_problem(n_rows, n_cols, "bfloat16", other, "softmax", backward), other, measure)
        assert chosen.occupancy.limits["registers (estimated)"] == 4 // chosen.tiling.num_warps >= 1  # a warp on a partition
        assert chosen.tiling.num_warps * other.hardware.warp_size <= other.hardware.max_threads_per_program
        assert chosen.resources.shared_memory_bytes == 0
