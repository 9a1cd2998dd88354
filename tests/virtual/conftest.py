"""Makes this process's machine a virtual one.

Only in the environment that scripts/virtual_npu.sh sets up: elsewhere there is no triton-ascend, or a real device, and
nothing here is collected.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

SET_UP = Path(sys.prefix, "mlir").is_dir() and importlib.util.find_spec("triton.backends.ascend") is not None
if not SET_UP:
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="session", autouse=True)
def machine(tmp_path_factory):
    """The machine, installed. Triton starts with an empty cache, so every run lowers every kernel anew."""
    from virtual import driver
    from virtual.machine import MACHINE

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        driver.install()
        with MACHINE.installed(patch):
            yield MACHINE
