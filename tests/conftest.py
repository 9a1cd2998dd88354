"""The project's fixtures, and --device, which is --on of the package's own plugin (portable_probe/testing) for a backend."""

import dataclasses
import functools
import gc
import os

import pytest

from portable_softmax.errors import TargetError
from portable_softmax.runtime.compile import triton_version

ALL_TARGETS = 3, 8  # the release of scripts/environment.sh

os.environ.pop("PORTABLE_SOFTMAX_PROFILES", None)  # the tests are of the shipped profiles, and of those that they write
os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest's processes share the cores; torch's threads would wait for each other


def pytest_addoption(parser):
    from portable_softmax.devices.backends import BACKENDS

    parser.addoption("--device", dest="portable_device", choices=("auto", *BACKENDS), default="auto", help="what runs kernels")


def pytest_collection_finish():
    """Leaves what is imported by now to no collection of garbage, and collects seldom: 7% of a session's time."""
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call():
    """Skips a test of a device for which another release of Triton is required; ALL_TARGETS compiles for every device."""
    try:
        return (yield)
    except TargetError as error:
        if "install Triton" in str(error) and triton_version() != ALL_TARGETS:
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="session")
def device(portable_torch_device, portable_device):
    """The Device that kernels run on."""
    return portable_device


@pytest.fixture(scope="session")
def where(portable_torch_device):
    """The torch.device of tensors for the kernel."""
    return portable_torch_device


@pytest.fixture(scope="session", autouse=True)
def without_needless_work():
    """Makes Triton's interpreter two to three times as fast.

    It computes all integers in 64 bits too, for a check that it leaves out where it does not debug, makes a table of types for
    each operation, describes the shape of each result anew, and patches Triton's language in each call of a function.
    """
    from portable_softmax.devices.detect import interpreting

    if not interpreting():
        return
    import triton.language as tl
    from triton.runtime import interpreter

    builder, described, shapes = interpreter.interpreter_builder, tl.tensor.__init__, {}
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    of_element = functools.cache(interpreter._get_np_dtype)

    def dtype_of(kind):
        element = kind.element_ty if isinstance(kind, tl.block_type) else kind
        return interpreter.np.dtype("uint64") if isinstance(element, tl.pointer_type) else of_element(element)

    def describe(self, handle, type):
        shape = (*type.shape,) if type.is_block() else ()
        if shape in shapes:
            self.handle, self.type, self.dtype = handle, type, type.scalar
            self.shape, self.numel = shapes[shape]
        else:
            described(self, handle, type)
            shapes[shape] = self.shape, self.numel

    patched = set()

    def call(function, *arguments, **named):
        """Calls a device function; a launch patches what kernels name, but not what Triton's own functions do."""
        if (module := function.fn.__module__).startswith("triton.") and module not in patched:
            patched.add(module)
            interpreter._patch_lang(function.fn)
        return function.rewrite()(*arguments, **named)

    interpreter._get_np_dtype, tl.tensor.__init__, interpreter.InterpretedFunction.__call__ = dtype_of, describe, call
