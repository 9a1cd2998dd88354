"""Files of other people's kernels: they take no module's name, nor sys.path, and find the modules beside them."""

import importlib
import sys
from pathlib import Path

import pytest

from portable_probe.loading import load_kernel
from portable_softmax import inspect_kernel

EXAMPLES = Path(__file__).parents[1] / "support" / "example_kernels.py"
KERNEL_FILE = """
import torch
import triton
import triton.language as tl

FACTOR: tl.constexpr = tl.constexpr(3)

@triton.jit
def scaled(x):
    return x * FACTOR

@triton.jit
def scale(x_ptr, BLOCK: tl.constexpr):
    place = x_ptr + tl.arange(0, BLOCK)
    tl.store(place, scaled(tl.load(place)))

@triton.jit
def clear(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)
"""


@pytest.mark.parametrize(
    ("where", "complaint"),
    [("nowhere.py:add", "is no file"), (f"{EXAMPLES}:sub_kernel", "no @triton.jit function 'sub_kernel'; it has add_kernel")],
    ids=["no file", "no function"],
)
def test_a_kernel_that_is_not_there(where, complaint):
    with pytest.raises(ValueError, match=complaint):
        load_kernel(where)


@pytest.mark.parametrize("name", ["json", "numpy"])
def test_a_file_with_the_name_of_a_module_replaces_none(tmp_path, name):
    file, real = tmp_path / f"{name}.py", importlib.import_module(name)
    file.write_text(KERNEL_FILE)
    for kernel in ("scale", "clear"):
        found = load_kernel(f"{file}:{kernel}").kernel
        assert inspect_kernel(found, {"x_ptr": "*fp32"}, {"BLOCK": 64}, num_warps=1, device="amd/mi300x")[0].num_warps == 1
    assert sys.modules[name] is real


def test_modules_beside_a_file_are_found_and_its_folder_comes_last(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(f"import sys\nsys.path.insert(0, 'lib')\nimport neighbour\n{KERNEL_FILE}")
    (tmp_path / "neighbour.py").write_text("")
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(before))
    load_kernel(f"{tmp_path}/mine.py:clear")
    assert sys.path == ["lib", *before, str(tmp_path)]
    assert sys.modules.pop("neighbour").__file__ == str(tmp_path / "neighbour.py")
