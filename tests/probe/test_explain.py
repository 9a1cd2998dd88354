"""The next step is the least that raises the number of programs, and the textbook's number is told apart from the right one."""

import json

import pytest

from portable_softmax import Device, KernelResources, occupancy
from portable_softmax.probe.__main__ import main
from portable_softmax.probe.explain import against_textbook, explain
from portable_softmax.probe.text import compared, explained


def lines(profile, *resources, **more):
    return list(explained(explain(KernelResources(*resources, **more), Device.from_profile(profile))))


def programs(profile, *resources):
    return occupancy(KernelResources(*resources), Device.from_profile(profile)).programs_per_multiprocessor


def test_each_limit_has_its_own_count_and_what_binds_is_marked():
    found = lines("nvidia/h200", 4, 100, 40000)
    assert found[:4] == [
        "warps                   16",
        "programs                32",
        "registers                4   binds",
        "shared memory            5",
    ]


@pytest.mark.parametrize(
    ("profile", "resources", "step"),
    [
        ("amd/mi100", (4, 66, 16), "4 programs instead of 3 with at most 64 registers per thread (66 now)"),
        ("nvidia/h200", (4, 100, 40000), "5 programs instead of 4 with at most 96 registers per thread (100 now)"),
        ("nvidia/h200", (4, 32, 40000), "6 programs instead of 5 with at most 37888 bytes of shared memory (40000 now)"),
        ("nvidia/h200", (4, 24, 4112), "already at the hardware limit (warps)"),
        ("amd/mi300x", (4, 40, 65536), "2 programs instead of 1 with at most 32768 bytes of shared memory (65536 now)"),
        ("ascend/910b3", (None, None, 200_000), "does not fit: a program needs 200000 bytes of Unified Buffer, and 196608 fit"),
        (
            "nvidia/h200",
            (4, 100, 50000),
            "5 programs instead of 4 with at most 96 registers per thread (100 now) "
            "and at most 45568 bytes of shared memory (50000 now)",
        ),
        (
            "intel/max-1550",
            (8, None, 0),
            "unknown: nothing here tells the registers (`ocloc` on PATH does); all else allows 8",
        ),
    ],
)
def test_the_next_step(profile, resources, step):
    assert lines(profile, *resources)[-1] == step


def test_the_next_step_of_tensor_memory_and_of_a_frame_that_is_no_spill():
    b200 = Device.from_profile("nvidia/b200")
    assert explain(KernelResources(8, 4, 98320, tensor_memory_columns=576), b200).next_step.text == (
        "does not fit: a program needs 576 columns of tensor memory, and 512 fit"
    )
    sine = explain(KernelResources(4, 22, stack_frame_bytes=32), b200).next_step.text
    assert sine == "already at the hardware limit (warps)"


def test_the_next_step_is_the_least_that_helps():
    for registers in range(33, 256):
        step = lines("nvidia/h200", 4, registers, 16)[-1]
        most = int(step.split(" at most ")[1].split()[0])
        here = programs("nvidia/h200", 4, registers, 16)
        assert programs("nvidia/h200", 4, most, 16) > here == programs("nvidia/h200", 4, most + 1, 16)


@pytest.mark.parametrize(
    ("profile", "resources", "words"),
    [
        ("amd/mi100", (4, 66, 16), "7 instead of 3: it doubles the register file"),
        ("amd/mi355x", (8, 256, 32), "0 instead of 1: 0 programs would launch nothing"),
        ("amd/rx-7900-xtx", (16, 118, 64), "1 instead of 3: it believes 65536 registers, and there are 196608"),
        ("amd/mi100", (2, 20, 16), "20 instead of 16: it forgets the 16 barrier slots"),
        ("nvidia/h100-sxm", (4, 24, 4112), "21 instead of 16: it forgets that only 64 warps are resident"),
        ("nvidia/rtx-3090", (1, 16, 1040), "97 instead of 16: it forgets that only 16 programs are resident"),
        ("nvidia/a100-40gb", (4, 33, 1040), "15 instead of 12: registers are given in granules of 8 per thread"),
        (
            "nvidia/a100-40gb",
            (4, 32, 12304),
            "13 instead of 12: it takes the largest program's share for the whole",
        ),
        ("nvidia/a100-40gb", (4, 32, 0), "no number instead of 16: it divides by the registers"),
        ("nvidia/h200", (8, 64, 16), "4 too, for this kernel"),
    ],
)
def test_the_textbook(profile, resources, words):
    assert words in compared(against_textbook(KernelResources(*resources), Device.from_profile(profile)))


def test_the_probe_shows_them(capsys):
    assert main(["--profile", "amd/mi100", "--explain", "--textbook"]) == 0
    text = capsys.readouterr().out
    assert "limits    warps" in text
    assert "textbook  " in text


def test_they_are_data_in_json(capsys):
    softmax = ["--shapes", "4096x4096", "--dtype", "float32"]
    assert main(["--profile", "amd/mi100", *softmax, "--explain", "--textbook", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    here = report["plan"]["occupancy"]["programs_per_multiprocessor"]
    assert report["explain"]["limits"] == report["plan"]["occupancy"]["limits"]
    assert report["explain"]["binds"] == ["registers"]
    step = report["explain"]["next_step"]
    assert step["fewer"].keys() == {"registers_per_thread"}
    assert step["programs"] > step["instead_of"] == here
    assert report["textbook"]["exact"] == here < report["textbook"]["programs"]


def test_devices_side_by_side(capsys):
    assert main(["--compare", "amd/mi300x", "nvidia/h200", "ascend/910b3", "--explain", "--textbook"]) == 0
    rows = {line.split("  ")[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert rows["multiprocessor_count"][1:] == ["304", "132", "40"]
    assert rows["warp_size"][1:] == ["64", "32", "-"]
    assert any(line.startswith("nvidia/h200, 4096 x 4096 float32: the textbook says") for line in rows)


def test_a_kernel_that_spills_is_told_so_and_gets_no_other_advice():
    found = explain(KernelResources(4, 255, 11008, spilled_bytes_per_thread=1368), Device.from_profile("nvidia/h200")).next_step
    assert found.text.startswith("spills 1368 bytes per thread: it needs more registers than a thread has here; smaller tiles")
    assert (found.fewer, found.programs) == ({}, found.instead_of)


def test_a_picture_of_several_devices(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("portable_softmax.probe.plot.LENGTHS", [33, 781, 4096])
    picture = tmp_path / "programs.png"
    assert main(["--compare", "nvidia/h200", "ascend/910b3", "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    assert main(["--profile", "nvidia/h200", "--plot", str(tmp_path / "no.png")]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err
