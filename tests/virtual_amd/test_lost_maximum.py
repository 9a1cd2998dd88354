"""`--verify` sees a kernel that loses a part of a row's maximum: each instruction of it is dropped from code that is right."""

import contextlib
import re
from types import SimpleNamespace

import pytest

from portable_softmax import Device, plan
from portable_softmax.errors import KernelError
from portable_softmax.probe import virtual
from portable_softmax.probe.schema import SoftmaxProblem
from portable_softmax.probe.virtual import verify_softmax

MAX = re.compile(r"^\tv_(?:pk_)?max(?:imum)?3?(?:_num)?_f(?:16|32|64)\w* (.+)$", re.MULTILINE)
SEEN = 0.95  # of all
N_ROWS = 256
CASES = [("amd/mi300x", 781, "float32"), ("amd/mi300x", 4096, "bfloat16"), ("amd/rx-7900-xtx", 781, "float32")]


def reductions(text):
    """Places of the instructions that take the larger of two numbers; max(x, x) only makes nan quiet."""
    for found in MAX.finditer(text):
        operands = [each.split()[0] for each in found[1].split(", ")][1:]
        if len({*operands}) > 1:
            yield found


@pytest.fixture
def verified(monkeypatch):
    """Verifies a softmax of rows in the virtual device, with a change of its kernel's text."""
    compile_kernel = virtual.compile_kernel

    def run(profile, n_cols, dtype, change):
        def changed(spec, device):
            compiled = compile_kernel(spec, device)
            return SimpleNamespace(asm={"amdgcn": change(compiled.asm["amdgcn"])}, metadata=compiled.metadata)

        monkeypatch.setattr(virtual, "compile_kernel", changed)
        device, case = Device.from_profile(profile), SoftmaxProblem(n_rows=N_ROWS, n_cols=n_cols, dtype=dtype)
        return verify_softmax(case, plan(N_ROWS, n_cols, dtype, device), device).right

    return run


@pytest.fixture
def missed(verified, record_count):
    """Drops instructions of the maximum, one at a time, and returns those whose loss is not seen, and the number of all."""

    def run(profile, n_cols, dtype, step):
        texts = []
        assert verified(profile, n_cols, dtype, lambda text: texts.append(text) or text)
        places, found = list(reductions(texts[0]))[::step], []
        for place in places:

            def dropped(text, place=place):
                return text[: place.start()] + "\ts_nop 0" + text[place.end() :]

            with contextlib.suppress(KernelError):
                if verified(profile, n_cols, dtype, dropped):
                    found.append(place[0].strip())
        record_count(f"dropped instructions of a maximum, {profile}, {n_cols} of {dtype}", len(places), len(found))
        return found, len(places)

    return run


@pytest.mark.parametrize("profile", ["amd/mi300x", pytest.param("amd/rx-7900-xtx", marks=pytest.mark.slow)])
def test_some_instructions_of_the_maximum_that_are_dropped(missed, profile):
    found, total = missed(profile, 781, "float32", step=12)
    assert total > 2
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "n_cols", "dtype"), CASES)
def test_each_instruction_of_the_maximum_that_is_dropped(missed, profile, n_cols, dtype):
    found, total = missed(profile, n_cols, dtype, step=1)
    assert len(found) <= (1 - SEEN) * total, found
