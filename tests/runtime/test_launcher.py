"""What surrounds a launch, with a device that is not there: hooks, streams, the device guard. The rest of it needs one."""

import contextlib
from types import SimpleNamespace

import pytest

from portable_softmax.runtime import compiler
from portable_softmax.runtime.launch import Call

pytestmark = pytest.mark.skipif(compiler.triton_version() < (3, 5), reason="older Tritons launch by themselves")
GRID = (5, 1, 1)


class Compiled:
    """Records what Triton's launcher is given, and what Triton launches itself."""

    function, packed_metadata = "function", "metadata"

    def __init__(self):
        self.loaded, self.ran, self.launched = 0, [], []

    def _init_handles(self):
        self.loaded += 1

    def run(self, *arguments):
        self.ran.append(arguments)

    def __getitem__(self, grid):
        return lambda *arguments: self.launched.append((grid, *arguments))


@pytest.fixture
def driver():
    """Triton's driver of a machine whose streams are numbered from 100."""
    from triton.runtime import driver

    before = driver._active
    driver.set_active(SimpleNamespace(get_current_stream=lambda index: 100 + index))
    yield driver
    driver._active = before


def test_a_launch_is_on_the_stream_of_its_device(driver):
    compiled = Compiled()
    launch = compiler.launcher(compiled, {"TILE": 8}, 3)
    launch(GRID, "y", "x", 7)
    launch(GRID, "y", "x", 9)
    assert compiled.ran == [(*GRID, 103, "function", "metadata", None, None, None, "y", "x", size, 8) for size in (7, 9)]
    assert compiled.loaded == 1


@pytest.mark.parametrize("which", ["launch_enter_hook", "launch_exit_hook"])
def test_triton_launches_while_a_hook_listens(driver, which):
    from triton import knobs

    compiled, chain = Compiled(), getattr(knobs.runtime, which)
    launch = compiler.launcher(compiled, {"TILE": 8}, 0)
    hook = print
    chain.add(hook)
    try:
        launch(GRID, "y", "x")
    finally:
        chain.remove(hook)
    assert compiled.launched == [(GRID, "y", "x", 8)]
    assert not compiled.ran
    launch(GRID, "y", "x")
    assert len(compiled.ran) == len(compiled.launched) == 1


def test_the_device_of_the_tensors_is_made_the_current_one():
    current, launched = [0], []

    @contextlib.contextmanager
    def guard(index):
        before, current[0] = current[0], index
        yield
        current[0] = before

    for index in (0, 1):
        launch = lambda *arguments: launched.append((current[0], *arguments))  # noqa: E731
        Call(launch, GRID, (7, 8), index, lambda: current[0], SimpleNamespace(device=guard))("y", "x")
    assert launched == [(0, GRID, "y", "x", 7, 8), (1, GRID, "y", "x", 7, 8)]
    assert current == [0]
