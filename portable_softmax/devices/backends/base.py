"""The abstract class of a vendor, with defaults, and the types of its results."""

import abc
import struct
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.schema import Hardware

DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}  # of the types that kernels compute; torch's names


@dataclass(frozen=True)
class KernelResources:
    """Resources that one program of a compiled kernel uses, read from its binary or assembly. None where there are none.

    Args:
        num_warps: warps of `warp_size` threads.
        registers_per_thread: 32-bit registers; VGPRs and AGPRs as the AMD architecture allocates them.
        shared_memory_bytes: bytes per program; LDS on AMD, Unified Buffer on Ascend.
        spilled_bytes_per_thread: registers stored in memory, in bytes, as the vendor's assembler counts: every store once.
        scalar_registers: SGPRs per wavefront, AMD only.
        barriers: barrier slots of a program; None if they are not known: one for a program of several warps.
        stack_frame_bytes: local memory of a thread, for spilled registers and arrays.
        tensor_memory_columns: NVIDIA Blackwell only, per SM of a pair.
        multiprocessors: multiprocessors of a program; 2 vector cores on Ascend if it uses tl.dot, which runs on a cube core.
        compiler: compiler outside of Triton that planned shared memory, and how far it compiled.
        estimated: True if nothing was compiled.

    Raises:
        ValueError: a number is negative, or num_warps is 0.
    """

    num_warps: int | None = None
    registers_per_thread: int | None = None
    shared_memory_bytes: int = 0
    spilled_bytes_per_thread: int = 0
    scalar_registers: int | None = None
    barriers: int | None = None
    stack_frame_bytes: int | None = None
    tensor_memory_columns: int | None = None
    multiprocessors: int = 1
    compiler: str | None = None
    estimated: bool = False

    def __post_init__(self) -> None:
        least = {"num_warps": 1, "multiprocessors": 1}
        for name, value in vars(self).items():
            if isinstance(value, int) and value < least.get(name, 0):
                raise ValueError(f"{name} must be at least {least.get(name, 0)}, not {value}")

    def __str__(self) -> str:
        """Returns the numbers with their names; those that are None are left out, and a program on one multiprocessor."""
        unsaid = ("multiprocessors", 1), ("estimated", False)
        return ", ".join(f"{one[0]} {one[1]}" for one in vars(self).items() if one[1] is not None and one not in unsaid)


@dataclass(frozen=True)
class Occupancy:
    """Number of programs that one multiprocessor holds at once, and the resources that limit it.

    Args:
        programs_per_multiprocessor: the least of `limits`; 0 if the kernel cannot run at all.
        limits: programs that each resource alone would allow; a resource that sets no limit is absent.
        warps_per_multiprocessor: resident warps; None on devices without warps.
        multiprocessors: multiprocessors of one program.
    """

    programs_per_multiprocessor: int
    limits: Mapping[str, int] = field(hash=False)
    warps_per_multiprocessor: int | None = None
    multiprocessors: int = 1

    @property
    def limited_by(self) -> tuple[str, ...]:
        """Returns the names of the limits that equal the least."""
        return tuple(name for name, programs in self.limits.items() if programs == self.programs_per_multiprocessor)

    def __str__(self) -> str:
        """Returns two lines: the programs and their limits, and how many programs each resource alone would allow."""
        warps = "" if self.warps_per_multiprocessor is None else f" ({self.warps_per_multiprocessor} warps)"
        programs = f"programs per multiprocessor: {self.programs_per_multiprocessor}{warps}"
        allowed = ", ".join(f"{name} {limit}" for name, limit in self.limits.items())
        return f"{programs}, limited by {' and '.join(self.limited_by)}\nallowed by {allowed}"


class Detected(NamedTuple):
    """Facts that the runtime reports about one live device, as fields of Hardware; torch's replace those from the driver."""

    name: str | None  # the product's, from torch or the driver; None if unknown
    arch: int | str  # Triton's name of the target architecture
    driver: Mapping[str, int]
    torch: Mapping[str, int]


Count = int | None
# Names of facts in Triton's drivers from 3.2 to 3.9. Their max_num_regs, of a program or of a SIMD, is not used.
DRIVER_NAMES = {"multiprocessor_count": "multiprocessor_count", "shared_memory_per_program_max": "max_shared_mem"}
TORCH_NAMES = {"l2_cache_bytes": "L2_cache_size", "memory_bytes": "total_memory"}
NEEDED = "multiprocessor_count warp_size partitions_per_multiprocessor registers_per_multiprocessor register_granule "
NEEDED += "max_registers_per_thread max_threads_per_program max_warps_per_multiprocessor shared_memory_per_multiprocessor"


class Backend(abc.ABC):
    """A vendor. The rest of the package reaches vendors only through this class; its defaults are those of most GPUs."""

    torch_device_type: str
    driver_names: Mapping[str, str] = {**DRIVER_NAMES, "warp_size": "warpSize"}  # of facts that Triton's driver reports
    torch_names: Mapping[str, str] = TORCH_NAMES  # of facts that torch reports
    core_names: Mapping[str, int] = {}  # more names of multiprocessors there, by how many of them are counted as one
    required: tuple[str, ...] = tuple(NEEDED.split())  # fields of Hardware without which launches cannot be planned
    aligned_access = True  # a thread's widest load must start on a multiple of its size
    emulated = False  # an emulator executes the machine code of absent devices
    scattered_rows = True  # the distances between the rows of a tile may differ
    fuses = True  # a fused multiply-add rounds once, and exp2 is the exponential of the hardware
    poll = "volatile"  # how a kernel reads a word of another program: by a "volatile" load or an "atomic" operation
    log2 = ""  # inline assembly of the hardware's logarithm, for kernels that draw samples; "" for Triton's
    register = ""  # inline assembly's constraints that keep a scalar in a register; "" if kernels have no such assembly
    vector_register = ""  # the same of a register that holds 32 bits of every thread
    tool = ""  # the program that lists the vendor's devices; "" if there is none
    install = ""  # for errors: the vendor, and the line to type for its PyTorch and Triton
    modules: Mapping[str, str] = {}  # of the vendor's software that files import, and what answers for them
    setup = ""  # a hint for errors: how to see that the vendor's software works
    more_programs: str | None = None  # environment variable that lets Triton launch more than max_programs, if there is one
    elsewhere = "an environment with `pip install triton` does"  # that compiles for its devices, where this one does not

    read_loops: Callable[[Mapping[str, Any], Any], list[Loop]] = staticmethod(lambda asm, arch: [])  # of a kernel's `asm`
    offline: Callable[[], AbstractContextManager[None]] = nullcontext  # where Triton uses a vendor's compiler outside of it

    def missing(self) -> str | None:
        """Returns what compiling for an absent device requires beside Triton; None if nothing is missing."""
        return None

    def describe(self, known: Any, arch: Any, properties: Mapping[str, Any]) -> Detected:
        """Describes a device by torch's properties of it, and by the target and the properties of Triton's driver."""
        driver = {fact: properties[name] for fact, name in self.driver_names.items() if properties.get(name)}
        torch = {fact: getattr(known, name) for fact, name in self.torch_names.items() if getattr(known, name, None)}
        return Detected(known.name, arch, driver, torch)

    def compile_target(self, arch: int | str, index: int | None, hardware: Hardware) -> Any:
        """Returns Triton's `arch` of the target to compile for; `index` is None for a device that is not on this machine."""
        return arch

    def compile_options(self, num_warps: Count, max_registers: Count, hardware: Hardware) -> dict[str, Any]:
        """Translates a plan's choices into options of Triton's compiler: those that every Triton for GPUs has.

        Multiply-adds are fused, though not by default in Triton 3.10: accuracy and bits of split rows are known for these only.
        """
        return {"num_warps": num_warps or 4, "num_stages": 1, "enable_fp_fusion": True}

    def model(self, tile: tuple[int, int], size: int, operations: Collection[str], device: Any) -> KernelResources | None:
        """Estimates the resources of a tile of this package's kernels; returns None if only the compiler determines them.

        The `tile` has elements across and along its lines, of `size` bytes; `operations` are computed beside a softmax.
        """
        return None

    def resources(self, compiled: Any) -> KernelResources:
        """Reads from the compiled kernel what a program uses, the same way with and without the device.

        Of a binary in an unknown format it is what Triton's metadata has; registers are unknown.
        """
        warps, shared = compiled.metadata.num_warps, getattr(compiled.metadata, "shared", None)  # -1 or None without such
        return KernelResources(num_warps=max(1, warps), shared_memory_bytes=max(0, shared or 0))

    @abc.abstractmethod
    def limits(self, resources: KernelResources, hardware: Hardware) -> dict[str, int]:
        """Counts the programs that each resource of a multiprocessor allows, by the vendor's exact rule."""

    def occupancy(self, resources: KernelResources, hardware: Hardware) -> Occupancy:
        """Counts resident programs."""
        limits = self.limits(resources, hardware)
        warps = hardware.warp_size and resources.num_warps and min(limits.values()) * resources.num_warps
        return Occupancy(min(limits.values()), limits, warps, resources.multiprocessors)

    def loops(self, compiled: Any) -> list[Loop]:
        """Returns a kernel's machine code outside loops, then that of every loop; [] if it is not read, or reads oddly."""
        with suppress(ValueError, KeyError, struct.error):
            return self.read_loops(compiled.asm, compiled.metadata.target.arch)
        return []

    def known_fault(self, compiled: Any) -> str | None:
        """Returns the known compiler bug that this kernel shows; None if it shows none. Such a kernel is not used."""
        return None
