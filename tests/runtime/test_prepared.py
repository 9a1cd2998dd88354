"""Surroundings of a launch, with a device that is not there: hooks, streams. The rest of it needs one."""

from types import SimpleNamespace

import pytest

from portable_softmax.runtime import compiler
from portable_softmax.runtime.prepared import prepare

pytestmark = pytest.mark.skipif(compiler.triton_version() < (3, 5), reason="older Tritons launch by themselves")
GRID = (5, 1, 1)


class Compiled:
    """Records what Triton's launcher is given, and what Triton launches itself."""

    function, packed_metadata = "function", "metadata"

    def __init__(self, *parameters):
        self.loaded, self.ran, self.launched = 0, [], []
        self.src = SimpleNamespace(fn=SimpleNamespace(arg_names=parameters))

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
    compiled = Compiled("y", "x", "TILE", "n", "absent")
    launch = compiler.launcher(compiled, {"absent": None, "TILE": 8}, 3)
    launch(GRID, "y", "x", 7)
    launch(GRID, "y", "x", 9)
    assert compiled.ran == [(*GRID, 103, "function", "metadata", None, None, None, "y", "x", 8, size, None) for size in (7, 9)]
    assert compiled.loaded == 1


def prepared(monkeypatch, parameters):
    compiled = Compiled(*parameters)
    monkeypatch.setattr("portable_softmax.runtime.prepared.compile_kernel", lambda spec, device: compiled)
    monkeypatch.setattr("portable_softmax.runtime.prepared.constexprs_of", lambda spec, device: {"TILE": 8})
    names = [name for name in parameters if name != "TILE"]
    monkeypatch.setattr("portable_softmax.runtime.prepared.signature_of", lambda spec: dict.fromkeys(names, ""))
    words = dict.fromkeys(names[3:], "")
    spec = SimpleNamespace(tensors=lambda: {"x": "", "y": ""}, numbers=tuple, words=lambda: words)
    return prepare(spec, SimpleNamespace(index=0), GRID, {"n": 7}), compiled


def test_triton_launches_while_a_hook_listens(driver, monkeypatch):
    from triton import knobs

    launch, compiled = prepared(monkeypatch, ("y", "x", "n", "TILE"))
    launch("x", "y")
    knobs.runtime.launch_enter_hook.add(print)
    try:
        launch("x", "y")
    finally:
        knobs.runtime.launch_enter_hook.remove(print)
    assert compiled.launched == [(GRID, "y", "x", 7, 8)]
    launch("x", "y")
    assert len(compiled.ran) == 2
