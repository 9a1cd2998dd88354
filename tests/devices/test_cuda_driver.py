"""NVIDIA's driver, for which a library stands in, is told all of a launch. On a GPU every test of a kernel launches so."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from portable_softmax import DeviceError
from portable_softmax.devices.backends import cuda_driver
from portable_softmax.devices.backends.cuda_driver import INVALID_CONTEXT, LaunchConfig

KINDS = ("*fp32:16", "*fp32:16", "i64", "i32", "i64")
SIZES = (-5, 7, 1 << 40)
WORDS = ("*i64:16", "i64")
SCRATCH = (8, 8)  # what Triton 3.6 appends
POINTER = ctypes.POINTER(ctypes.c_void_p)


class Driver:
    """Functions of libcuda.so.1, which record what they are given."""

    def __init__(self, parameters, errors=(), nested=None):
        self.parameters, self.errors, self.nested, self.launches, self.contexts = parameters, [*errors], nested, [], []
        self.cuLaunchKernelEx = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(LaunchConfig), ctypes.c_void_p, POINTER, POINTER)(
            self.launch
        )

    def launch(self, config, function, parameters, extra):
        if self.nested:
            self.nested.pop()()
        config = config.contents
        grid, block = (config.grid_x, config.grid_y, config.grid_z), (config.block_x, config.block_y, config.block_z)
        read = {4: ctypes.c_int32, 8: ctypes.c_int64}
        arguments = [read[size].from_address(parameters[at]).value for at, size in enumerate(self.parameters)]
        self.launches.append((grid, block, config.shared_bytes, config.stream, config.n_attributes, function, arguments))
        return self.errors.pop(0) if self.errors else 0

    def cuFuncGetParamInfo(self, function, index, offset, size):
        if index.value >= len(self.parameters):
            return 1
        size._obj.value = self.parameters[index.value]
        return 0

    def cuDeviceGet(self, device, index):
        device._obj.value = 100 + index
        return 0

    def cuDevicePrimaryCtxRetain(self, context, device):
        context._obj.value = 1000 + device.value
        return 0

    def cuCtxSetCurrent(self, context):
        self.contexts.append(context.value)
        return 0

    def cuGetErrorString(self, error, words):
        words._obj.value = b"too many resources"
        return 0


@pytest.fixture
def tensors():
    return [torch.empty(4) for _ in range(3)]


def prepared(monkeypatch, driver, kinds=KINDS, **metadata):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    told = SimpleNamespace(num_ctas=1, num_warps=4, shared=48, launch_pdl=False, global_scratch_size=0)
    vars(told).update(metadata)
    return cuda_driver.direct_launch(SimpleNamespace(metadata=told, function=0xF0), kinds, (5, 1, 1), SIZES)


@pytest.mark.parametrize("scratch", [(), SCRATCH], ids=["no scratch", "scratch"])
def test_the_driver_gets_the_arguments(monkeypatch, tensors, scratch):
    driver = Driver((8, 8, 8, 4, 8, *scratch))
    launch = prepared(monkeypatch, driver)
    for stream, (y, x) in ((77, tensors[:2]), (0, tensors[1:])):
        launch(stream, (y, x))
        expected = [y.data_ptr(), x.data_ptr(), *SIZES, *(0 for _ in scratch)]
        assert driver.launches.pop() == ((5, 1, 1), (128, 1, 1), 48, stream or None, 0, 0xF0, expected)


def test_the_words_and_the_number_of_a_launch_come_last(monkeypatch, tensors):
    driver = Driver((8, 8, 8, 4, 8, 8, 8, *SCRATCH))
    y, x, words = tensors
    prepared(monkeypatch, driver, KINDS + WORDS)(77, (y, x, words, -(2**63) + 1))
    assert driver.launches.pop()[-1] == [y.data_ptr(), x.data_ptr(), *SIZES, words.data_ptr(), -(2**63) + 1, 0, 0]


def test_launches_at_once_do_not_share_memory(monkeypatch, tensors):
    """A thread that launches while another does: here, inside of the other's call."""
    y, x, z = tensors
    driver = Driver((8, 8, 8, 4, 8))
    launch = prepared(monkeypatch, driver)
    driver.nested = [lambda: None, lambda: launch(2, (z, x))]
    launch(1, (y, x))
    assert [(each[3], each[-1][:2]) for each in driver.launches] == [
        (2, [z.data_ptr(), x.data_ptr()]),
        (1, [y.data_ptr(), x.data_ptr()]),
    ]


def test_a_thread_that_has_not_used_the_device_gets_its_context(monkeypatch, tensors):
    driver = Driver((8, 8, 8, 4, 8), errors=[INVALID_CONTEXT])
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    prepared(monkeypatch, driver)(77, tensors[:2])
    assert len(driver.launches) == 2
    assert driver.contexts == [1103]


@pytest.mark.parametrize("errors", [[701], [INVALID_CONTEXT, INVALID_CONTEXT]])
def test_a_refusal_is_an_error_in_the_drivers_words(monkeypatch, tensors, errors):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    launch = prepared(monkeypatch, Driver((8, 8, 8, 4, 8), errors))
    with pytest.raises(DeviceError, match=rf"refused a launch: too many resources \({errors[-1]}\)"):
        launch(77, tensors[:2])
    launch(77, tensors[:2])


@pytest.mark.parametrize(
    ("parameters", "metadata"),
    [
        ((), {}),  # the driver cannot tell
        ((8, 8, 8, 8, 8), {}),
        ((8, 8, 8, 4), {}),
        ((8, 8, 8, 4, 8, 64), {}),
        ((8, 8, 8, 4, 8), {"num_ctas": 2}),
        ((8, 8, 8, 4, 8), {"launch_pdl": True}),
        ((8, 8, 8, 4, 8), {"global_scratch_size": 128}),
    ],
)
def test_a_kernel_that_needs_more_than_arguments_is_left_to_triton(monkeypatch, parameters, metadata):
    assert prepared(monkeypatch, Driver(parameters), **metadata) is None


def test_without_the_library_kernels_are_left_to_triton(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    compiled = SimpleNamespace(metadata=SimpleNamespace(num_ctas=1, num_warps=4, shared=0), function=1)
    assert cuda_driver.direct_launch(compiled, KINDS, (5, 1, 1), SIZES) is None
