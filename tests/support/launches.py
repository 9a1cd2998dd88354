"""Real launches, `kernel[grid](...)`, under a driver that launches nothing: what Triton compiles for them is the truth."""

import contextlib
from types import SimpleNamespace
from unittest import mock

import triton

from portable_softmax.runtime.compiler import target_of, triton_version


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
    found, compiler = [], triton.compiler.compile
    tuned = mock.patch.object(kernel, "configs", [kernel.configs[config]]) if config is not None else contextlib.nullcontext()

    def watched(*words, **named):
        found.append(compiler(*words, **named))
        return found[-1]

    forget(jit)
    with driving(device), mock.patch.object(triton.compiler, "compile", watched), tuned:
        try:
            kernel[(4,)](*arguments, **options)
        except Exception as error:
            return str(error)
        finally:
            forget(jit)
    for each in found:
        each.module = None  # which Triton would unload, by a driver that is not there
    return found


def forget(jit):
    (jit.device_caches if hasattr(jit, "device_caches") else jit.cache).clear()
    if hasattr(jit, "binder"):
        jit.binder = None
