"""The probe compiles what `kernel[grid](...)` compiles: the same hash of source, types, constants, options and target."""

import contextlib
import importlib
import sys
from functools import partial
from types import SimpleNamespace
from unittest import mock

import example_kernels
import pytest
import torch
import triton
from sweep import in_turn
from triton.runtime.jit import KernelInterface

from portable_softmax import CompileError, Device, current_device, fits, inspect_kernel, launcher
from portable_softmax.row_kernels.decorators import configurations, jit_function
from portable_softmax.runtime.absent import absent
from portable_softmax.runtime.compile import check_target, target_of, triton_version


class LaunchesNothing:
    def __init__(self, target):
        loaded = (object(), 0, 0, 0, 1024)[: 5 if triton_version() >= (3, 4) else 4]
        self.get_current_target = lambda: target
        self.get_current_device = lambda: 0
        self.get_current_stream = lambda device=None: 0
        self.launcher_cls = lambda source, metadata: lambda *words, **named: None
        self.get_benchmarker = lambda: lambda call, quantiles=None: (call(), [1.0, 1.0, 1.0])[1]
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": 2**30},
            load_binary=lambda *words: loaded,
            unload_module=lambda module: None,
        )


@contextlib.contextmanager
def driving(device):
    """Triton drives a device that launches nothing."""
    from triton.runtime import driver

    before = dict(vars(driver))
    driver.set_active(LaunchesNothing(target_of(device)))
    try:
        yield
    finally:
        vars(driver).update(before)


def compiled_by_a_launch(kernel, jit, device, arguments, options, config=None):
    """The kernels that Triton compiles for a launch, or the text of its error."""
    kernels, compiler = [], triton.compiler.compile
    tuned = mock.patch.object(kernel, "configs", [kernel.configs[config]]) if config is not None else contextlib.nullcontext()

    def watched(*words, **named):
        kernels.append(compiler(*words, **named))
        return kernels[-1]

    forget(jit)
    with driving(device), mock.patch.object(triton.compiler, "compile", watched), tuned:
        try:
            kernel[(4,)](*arguments, **options)
        except Exception as error:
            return str(error)
        finally:
            forget(jit)
    for kernel in kernels:
        kernel.module = None  # which Triton would unload, by a driver that is not there
    return kernels


def forget(jit):
    (jit.device_caches if hasattr(jit, "device_caches") else jit.cache).clear()
    if hasattr(jit, "binder"):
        jit.binder = None


DEVICES = ("nvidia/h200", "nvidia/a100-80gb-sxm", "amd/mi300x", "amd/rx-7900-xtx")
MATRICES = {**dict.fromkeys("abc", "f16[512,512]"), "M": 512, "N": 512, "K": 512}
MATRICES |= {"sam": 512, "sak": 1, "sbk": 512, "sbn": 1, "scm": 512, "scn": 1}
TILE = {"BM": 64, "BN": 64, "BK": 64}
NORM = {"x": "f16[8,781]", "y": "f16[8,781]", "w": "f16[781]", "b": "f16[781]", "stride": 781, "cols": 781, "eps": 1e-5}
HEADS = {**dict.fromkeys(("q", "k", "v", "out"), "f16[1024,64]"), "scale": 0.125, "length": 1024, "stride": 64}
VECTORS = dict.fromkeys("xyz", "f32[4096]")
READ = dict.fromkeys("xy", "f32[4096]") | {"device": 7, "n": 4096}
CASES = {
    "matmul": ("matmul", MATRICES | TILE, {}, None),
    "attention": ("attention", HEADS, {"num_warps": 8}, None),
    "heuristics": ("layernorm", NORM, {}, None),
    "heuristics over a configuration": ("tuned_layernorm", NORM, {}, 0),
    "n is 1": ("add", VECTORS | {"n": 1}, {}, None),
    "n is 4096": ("add", VECTORS | {"n": 4096}, {}, None),
    "n is not specialised": ("add_any", VECTORS | {"n": 1}, {}, None),
    "options that it reads": ("reading", READ, {"num_warps": 8, "num_stages": 2}, None),
    "registers that it reads": ("reading", READ, {"num_warps": 2, "maxnreg": 64}, None),
    "tuned": ("tuned", MATRICES, {}, 0),
    "tuned, with registers": ("tuned", MATRICES, {}, 1),
    "tuned, with waves": ("tuned", MATRICES, {}, 2),
}


@pytest.fixture(scope="module")
def kernels():
    """The module of kernels; @triton.autotune of Triton 3.2 and 3.3 reads the driver when it decorates."""
    with absent(Device.from_profile("nvidia/h200")):
        return importlib.import_module("launched_kernels")


def on(where, values):
    """The arguments as tensors and numbers."""
    sizes = {name: [int(size) for size in text[4:-1].split(",")] for name, text in values.items() if isinstance(text, str)}
    types = {"f16": torch.float16, "f32": torch.float32}

    def made(name, value):
        return torch.empty(sizes[name], dtype=types[value[:3]], device=where) if name in sizes else value

    return [made(name, value) for name, value in values.items()]


@pytest.mark.parametrize(("case", "profile"), in_turn(CASES, DEVICES))
def test_it_is_what_a_launch_compiles(kernels, profile, case):
    device = Device.from_profile(profile)
    check_target(device)
    name, values, options, config = CASES[case]
    kernel, jit = getattr(kernels, name), jit_function(getattr(kernels, name))
    truth = compiled_by_a_launch(kernel, jit, device, on("cpu", values), options, config)
    if isinstance(truth, str):  # registers or waves of another vendor's configuration
        assert config in (1, 2)
        with pytest.raises(CompileError) as caught:
            inspect_kernel(kernel, values, config=config, device=device, **options)
        assert truth in str(caught.value)
        return
    inspected = inspect_kernel(kernel, values, config=config, device=device, **options)
    assert [compiled.hash for compiled in truth] == [inspected.launch.compiled.hash]
    assert device.vendor.resources(truth[0]) == inspected.resources
    by_position = inspect_kernel(kernel, on("meta", values), config=config, device=device, **options)
    assert by_position.launch.compiled.hash == truth[0].hash


@pytest.mark.parametrize("device", ["nvidia/h200", "amd/mi300x"])
def test_warps_that_a_kernel_reads(kernels, device):
    """Triton takes them for its own option too, unless they are passed by position."""
    named = READ | {"num_warps": 8}
    used = [inspect_kernel(kernels.reading, arguments, device=device).resources for arguments in (named, [*named.values()])]
    run = partial(launcher(kernels.reading, cols="n", block="BLOCK", grid=(4,)).plan, device=device)
    used += [run(*READ.values(), num_warps=8).resources, run(*named.values()).resources]
    assert [one.num_warps for one in used] == [8, 4, 8, 8]
    configs = [triton.Config({}, num_warps=64), triton.Config({}, num_warps=8)]
    assert fits(configs, READ, kernel=kernels.reading, device=device) == configs[1:]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (VECTORS, {"config": 0}, ValueError, "the kernel has no configurations of @triton.autotune; leave config=0 out"),
        ({}, {}, TypeError, "add: missing 4 required positional arguments: 'x', 'y', 'z', and 'n'"),
        ([1, 2, 3, 4, [5]], {}, TypeError, "BLOCK of add is a constexpr, which Triton hashes: unhashable type"),
        ({"more": 1}, {}, TypeError, "add has no parameter more; it has x, y, z, n, BLOCK"),
        (VECTORS | {"n": 1}, {"num_warp": 4}, CompileError, "num_warp"),
        (VECTORS | {"x": f"f32[{10**11},{10**11}]"}, {}, ValueError, "is not a valid tensor: .* use a smaller shape"),
        (VECTORS | {"n": "i8"}, {}, ValueError, "types of numbers are i32, i64, u64, fp32, i1, u1; tuples"),
        ([1, 2, 3, 4, 5, 6], {}, TypeError, "too many positional arguments"),
        (VECTORS | {"x": "tensordesc<fp16[16, 32],__import__('os')>"}, {}, ValueError, "an argument is a tensor such as"),
    ],
)
def test_what_cannot_be_launched_leaves_triton_as_it_was(kernels, arguments, options, error, words):
    from triton.runtime import driver

    before, hooks = dict(vars(driver)), list(kernels.add.pre_run_hooks)
    with pytest.raises(error, match=words):
        inspect_kernel(kernels.add, arguments, device="nvidia/h200", **options)
    assert (dict(vars(driver)), kernels.add.pre_run_hooks) == (before, hooks)


@pytest.mark.accelerator
@pytest.mark.parametrize("case", ["matmul", "attention", "heuristics", "n is 1", "tuned"])
def test_it_is_what_the_device_launches(portable_device, portable_torch_device, case):
    """On the device that is here, with its own driver."""
    kernels = importlib.import_module("launched_kernels")
    name, values, options, config = CASES[case]
    kernel = getattr(kernels, name)
    values = dict(zip(values, on(portable_torch_device, values), strict=True))
    inspected = inspect_kernel(kernel, values, config=config, device=current_device(), **options)
    if config is not None:
        kernel.configs = [kernel.configs[config]]
    launched = kernel[(4,)](*values.values(), **options)
    assert launched.hash == inspected.launch.compiled.hash
    assert launched.n_regs == inspected.resources.registers_per_thread or portable_device.backend != "cuda"
    assert launched.metadata.shared == inspected.resources.shared_memory_bytes
    sys.modules.pop("launched_kernels")


class Library(KernelInterface):
    """A wrapper as libraries have them, with a `run` of its own that knows nothing of compiling alone."""

    def __init__(self, fn, configs=()):
        self.fn, self.arg_names = fn, fn.arg_names
        if configs:
            self.configs = configs

    def run(self, *args, **kwargs):
        raise AssertionError("a library's own run is not called")


ONCE, TWO = example_kernels.tuned_once, example_kernels.TWO
WRAPPED = [Library(ONCE), Library(example_kernels.add_kernel, TWO), Library(example_kernels.by_arguments)]


@pytest.mark.parametrize(
    ("kernel", "device"), in_turn([*WRAPPED, torch.library.wrap_triton(ONCE)], ["nvidia/t4", "amd/mi300x"])
)
def test_a_librarys_wrapper_is_read_and_not_run(kernel, device):
    types = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n_elements": 4096}
    used, _, launch = inspect_kernel(kernel, types, config=1 if len(configurations(kernel)) > 1 else None, device=device)
    block, options = launch.constants["BLOCK_SIZE"], {"num_stages": launch.options["num_stages"], "num_warps": used.num_warps}
    plain = inspect_kernel(example_kernels.add_kernel, types, {"BLOCK_SIZE": block}, device=device, **options)
    assert launch.compiled.hash == plain.launch.compiled.hash
