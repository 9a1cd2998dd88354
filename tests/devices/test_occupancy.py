"""Programs per multiprocessor and grids that a device takes, by each vendor's rule and as drivers counted them."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from portable_softmax import Device, KernelResources, occupancy


def simt(num_warps, registers, shared=0, **more):
    return {"num_warps": num_warps, "registers_per_thread": registers, "shared_memory_bytes": shared, **more}


@pytest.mark.parametrize(
    ("profile", "resources", "programs", "limit"),
    [
        ("amd/mi100", simt(4, 66, 16, scalar_registers=40), 3, "registers"),  # tutorial: 7, as if AGPRs shared a file
        ("amd/rx-7900-xtx", simt(16, 118, 64), 3, "registers"),  # tutorial: 1; programs per WGP
        ("nvidia/h100-sxm", simt(4, 24, 4112), 16, "warps"),  # tutorial: 21, it forgets the resident warps
        ("nvidia/a100-40gb", simt(4, 33, 1040), 12, "registers"),  # tutorial: 15, it forgets the granule
        ("nvidia/a100-40gb", simt(4, 32, 12304), 12, "shared memory"),  # tutorial: 13, it forgets the reserved KiB
        ("amd/mi300x", simt(4, 233, 16), 2, "registers"),  # tutorial on new ROCm: 4
        ("amd/mi355x", simt(8, 256, 32), 1, "registers"),  # tutorial: 0, so nothing would run
        ("amd/mi100", simt(2, 20, 16), 16, "barriers"),
        ("amd/mi300x", simt(4, 40, 16, scalar_registers=102), 6, "scalar registers"),  # of 800, 16 for the trap handler
        ("amd/mi300x", simt(4, 40, 16, scalar_registers=92), 7, "scalar registers"),
        ("amd/mi300x", simt(4, 40, 40000), 1, "shared memory"),
        ("nvidia/b200", simt(4, 40, tensor_memory_columns=128), 4, "tensor memory"),  # of 512 columns
        ("nvidia/b200", simt(4, 40, tensor_memory_columns=129), 2, "tensor memory"),  # 256 are taken
        ("nvidia/b200", simt(4, 40, tensor_memory_columns=513), 0, "tensor memory"),
        ("nvidia/h100-sxm", simt(32, 255), 0, "registers"),  # 8 warps of 255 registers fill the file
        ("nvidia/h100-sxm", simt(4, 256), 0, "registers"),  # no instruction can name that many
        ("nvidia/h100-sxm", simt(4, 32, 232449), 0, "shared memory"),
        ("nvidia/h100-sxm", simt(33, 16), 0, "threads per program"),
        ("ascend/910b3", {"shared_memory_bytes": 1000}, 1, "programs"),
        ("ascend/910b3", {"shared_memory_bytes": 192 * 1024}, 1, "programs"),
        ("ascend/910b3", {"shared_memory_bytes": 192 * 1024 + 1}, 0, "unified buffer"),
    ],
)  # fmt: skip
def test_the_vendors_numbers(profile, resources, programs, limit):
    result = occupancy(KernelResources(**resources), Device.from_profile(profile))
    assert result.programs_per_multiprocessor == programs
    assert result.limited_by == (limit,) or (programs == 0 and limit in result.limited_by)


@pytest.mark.parametrize("wrong", [{"num_warps": 0}, {"registers_per_thread": -1}, {"shared_memory_bytes": -16}])
def test_impossible_resources(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least"):
        KernelResources(**wrong)


@pytest.mark.parametrize(
    ("profile", "grid", "launch", "refused"),
    [
        ("nvidia/h200", (2**31 - 1, 65535, 65535), {}, None),
        ("nvidia/h200", (2**31, 1, 1), {}, "2,147,483,648 programs along x, and nvidia/h200 launches at most 2,147,483,647"),
        ("nvidia/h200", (1, 65536, 1), {}, "65,536 programs along y, and nvidia/h200 launches at most 65,535"),
        ("nvidia/h200", (2**30 - 1, 1, 1), {"num_ctas": 2}, None),
        ("nvidia/h200", (2**30, 1, 1), {"num_ctas": 2}, "2,147,483,648 blocks, 2 for each program, along x"),
        ("amd/mi300x", (2**24 - 1, 1, 1), {"num_warps": 4}, None),
        ("amd/mi300x", (2**24, 1, 1), {"num_warps": 4}, "4,294,967,296 threads, and amd/mi300x launches at most 4,294,967,295"),
        ("amd/rx-7900-xtx", (2**24, 1, 1), {"num_warps": 4}, None),  # warps of 32 threads
        ("ascend/910b3", (257, 255, 1), {}, None),
        ("ascend/910b3", (256, 256, 1), {}, "65,536 programs, .* or set TRITON_ALL_BLOCKS_PARALLEL=1$"),
        ("intel/max-1550", (2**25, 1, 1), {"num_warps": 4}, "4,294,967,296 threads"),
        ("nvidia/h200", (0, 1, 1), {}, None),  # Triton launches nothing
    ],
)
def test_the_vendors_limits(profile, grid, launch, refused):
    device = Device.from_profile(profile)
    reason = device.refused_grid(grid, **launch)
    assert (reason is None) == (refused is None)
    if refused:
        assert re.search(refused, reason), reason
        assert any(source.title in reason for source in device.profile.origins.values())


def test_ascends_unified_buffer_and_cores():
    device = Device.from_profile("ascend/910b3")
    for printed, size in (({"required_ub_bits": 4096}, 512), ({"required_ub_bits": None}, 0), ({}, 0)):
        compiled = SimpleNamespace(asm={}, metadata=SimpleNamespace(**printed))
        assert device.vendor.resources(compiled) == KernelResources(shared_memory_bytes=size)
    assert [device.resident(occupancy(KernelResources(multiprocessors=count), device)) for count in (1, 2)] == [40, 20]


RECORDED = sorted((Path(__file__).parents[1] / "support" / "recorded").glob("occupancy_*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_as_many_programs_are_resident_as_the_driver_counts(path):
    record = json.loads(path.read_text())
    device, cells = Device.from_profile(record["profile"]), record["cells"]
    ours = [occupancy(KernelResources(**cell["resources"]), device).programs_per_multiprocessor for cell in cells]
    assert len(cells) >= 300
    assert ours == [cell["driver"]["programs"] for cell in cells]
