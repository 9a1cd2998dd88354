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
        self.loaded, self.launchers, self.ran, self.launched = 0, 0, [], []
        self.src = SimpleNamespace(fn=SimpleNamespace(arg_names=parameters))

    def _init_handles(self):
        from triton.runtime import driver

        self.loaded += 1
        self._run = driver.active.launcher_cls(self, "metadata")

    @property
    def run(self):
        return self._run

    def __getitem__(self, grid):
        return lambda *arguments: self.launched.append((grid, *arguments))


def launcher(compiled, metadata):
    """Triton's launcher, which takes a while to be built."""
    assert metadata == "metadata"
    compiled.launchers += 1
    return lambda *arguments: compiled.ran.append(arguments)


@pytest.fixture
def driver():
    """Triton's driver of a machine whose streams are numbered from 100."""
    from triton.runtime import driver

    before = driver._active
    driver.set_active(SimpleNamespace(get_current_stream=lambda index: 100 + index, launcher_cls=launcher))
    yield driver
    driver._active = before


def test_a_launch_is_on_the_stream_of_its_device(driver):
    compiled = Compiled("y", "x", "TILE", "n", "absent")
    launch = compiler.launcher(compiled, {"absent": None, "TILE": 8}, 3)
    launch(GRID, "y", "x", 7)
    launch(GRID, "y", "x", 9)
    assert compiled.ran == [(*GRID, 103, "function", "metadata", None, None, None, "y", "x", 8, size, None) for size in (7, 9)]
    assert compiled.loaded == compiled.launchers == 1
    assert driver.active.launcher_cls is launcher


class Vendor:
    """Launches by itself, or not, and records what it is asked for."""

    def __init__(self, direct):
        self.direct, self.asked = direct, []

    def direct_launch(self, compiled, kinds, grid, sizes):
        self.asked.append((compiled.loaded, kinds[:2], grid, sizes))
        return self.direct


def prepared(monkeypatch, direct, index=0, parameters=("y", "x", "n", "TILE")):
    compiled, vendor = Compiled(*parameters), Vendor(direct)
    monkeypatch.setattr("portable_softmax.runtime.prepared.compile_kernel", lambda spec, device: compiled)
    monkeypatch.setattr("portable_softmax.runtime.prepared.constexprs_of", lambda spec, device: {"TILE": 8})
    spec = SimpleNamespace(signature=lambda: {"y": "*fp32", "x": "*fp32", "n": "i64"})
    spec.backward, device = False, SimpleNamespace(vendor=vendor, index=index)
    return prepare(spec, device, GRID, (7,)), compiled, vendor


def test_the_vendors_own_launch_is_prepared_once_and_gets_the_stream(driver, monkeypatch):
    launched = []
    launch, compiled, vendor = prepared(monkeypatch, lambda *given: launched.append(given))
    assert not compiled.loaded  # the device may be another one's yet
    for _ in range(3):
        launch("y", "x")
    assert launched == [(100, ("y", "x"))] * 3
    assert vendor.asked == [(1, ("*fp32", "*fp32"), GRID, (7,))]
    assert not compiled.launchers


def test_triton_launches_where_the_vendor_has_no_way_of_its_own(driver, monkeypatch):
    launch, compiled, _ = prepared(monkeypatch, None, parameters=("y", "x", "n", "words", "launch", "TILE"))
    launch("y", "x", "words", 5)
    assert compiled.ran == [(*GRID, 100, "function", "metadata", None, None, None, "y", "x", 7, "words", 5, 8)]


def test_triton_launches_while_a_hook_listens_and_the_vendor_after(driver, monkeypatch):
    from triton import knobs

    launched = []
    launch, compiled, _ = prepared(monkeypatch, lambda *given: launched.append(given))
    launch("y", "x")
    knobs.runtime.launch_enter_hook.add(print)
    try:
        launch("y", "x")
    finally:
        knobs.runtime.launch_enter_hook.remove(print)
    assert compiled.launched == [(GRID, "y", "x", 7, 8)]
    launch("y", "x")
    assert launched == [(100, ("y", "x"))] * 2
