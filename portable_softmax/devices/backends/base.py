"""The protocol that each vendor's module fills, and the occupancy rule that SIMT vendors share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from portable_softmax.devices.schema import Hardware

DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}  # torch's names
SIMT_REQUIRED = (
    "multiprocessor_count",
    "warp_size",
    "partitions_per_multiprocessor",
    "registers_per_multiprocessor",
    "register_granule",
    "max_registers_per_thread",
    "max_threads_per_program",
    "max_warps_per_multiprocessor",
    "shared_memory_per_multiprocessor",
)

DirectLaunch = Callable[[int, Sequence[Any]], None]  # of a stream, as the vendor's runtime names it, and what else changes


@dataclass(frozen=True)
class KernelResources:
    """Resources that one program of a compiled kernel uses, read from its binary or assembly.

    Args:
        num_warps: warps of `warp_size` threads; None where programs have no warps (Ascend).
        registers_per_thread: 32-bit registers; VGPRs and AGPRs as the AMD architecture allocates them. None where there are
            none (Ascend).
        shared_memory_bytes: bytes per program; LDS on AMD, Unified Buffer on Ascend.
        spilled_bytes_per_thread: bytes of registers that live in memory instead.
        scalar_registers: SGPRs per wavefront, AMD only.
        barriers: slots that a program takes; None where the binary does not tell: one, if it has several warps.

    Raises:
        ValueError: a number is negative, or num_warps is 0.
    """

    num_warps: int | None = None
    registers_per_thread: int | None = None
    shared_memory_bytes: int = 0
    spilled_bytes_per_thread: int = 0
    scalar_registers: int | None = None
    barriers: int | None = None

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            least = 1 if name == "num_warps" else 0
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")


@dataclass(frozen=True)
class Occupancy:
    """Number of programs that one multiprocessor holds at once, and the reason why there are no more.

    Args:
        programs_per_multiprocessor: the least of `limits`; 0 when the kernel cannot run at all.
        limits: programs that each resource alone would allow; a resource that sets no limit is absent.
        warps_per_multiprocessor: resident warps; None on devices without warps.
    """

    programs_per_multiprocessor: int
    limits: Mapping[str, int] = field(hash=False)
    warps_per_multiprocessor: int | None = None

    def __str__(self) -> str:
        """Gives the number of programs, what limits it, and what each resource alone would allow, in two lines."""
        programs = "1 program" if self.programs_per_multiprocessor == 1 else f"{self.programs_per_multiprocessor} programs"
        warps = "" if self.warps_per_multiprocessor is None else f" ({self.warps_per_multiprocessor} warps)"
        allowed = ", ".join(f"{name} {programs}" for name, programs in self.limits.items())
        return f"{programs} per multiprocessor{warps}, limited by {' and '.join(self.limited_by)}\nallowed by {allowed}"

    @property
    def limited_by(self) -> tuple[str, ...]:
        """Names of the limits that equal the minimum."""
        return tuple(name for name, programs in self.limits.items() if programs == self.programs_per_multiprocessor)


@dataclass(frozen=True)
class Detected:
    """Facts that the runtime tells about one live device.

    Args:
        name: the product's name, as torch or the driver has it; None if unknown.
        arch: Triton's name of the target architecture.
        driver: fields of Hardware that Triton's driver told.
        torch: fields of Hardware that torch told; the driver's override them.
        lookalike: the backend of a device that is another vendor's than it says; None for all others.
    """

    name: str | None
    arch: int | str
    driver: Mapping[str, int] = field(hash=False)
    torch: Mapping[str, int] = field(hash=False)
    lookalike: "Backend | None" = None


class Backend(Protocol):
    """Protocol of a vendor's module. The rest of the package knows vendors only through it."""

    torch_device_type: str
    dtypes: tuple[str, ...]  # that the kernel computes there
    required: tuple[str, ...]  # fields of Hardware without which launches cannot be planned
    aligned_access: bool  # whether a thread's widest load starts on a multiple of its size
    scattered_rows: bool  # whether the rows of a tile may lie in several places: at more than one distance from each other
    poll: str  # how a kernel reads a word that another program writes: by a "volatile" load or an "atomic" operation
    setup: str  # how to see that the vendor's software works, for errors

    def another_vendors(self, arch: Any, warp_size: int) -> str | None:
        """Says what shows that a device whose Triton names this backend is another vendor's; None if nothing does.

        Args:
            arch, warp_size: of Triton's target.
        """

    def describe(self, index: int, arch: int | str, properties: Mapping[str, Any]) -> Detected:
        """Describes the device of that index; `arch` and `properties` come from Triton's driver."""

    def compile_target(self, arch: int | str, index: int | None, hardware: Hardware) -> Any:
        """Returns Triton's `arch` of the target to compile for; `index` is None for a device that is not here."""

    def compile_options(
        self, num_warps: int | None, num_stages: int | None, max_registers: int | None, hardware: Hardware
    ) -> dict[str, Any]:
        """Translates a plan's choices into options of Triton's compiler."""

    def model(
        self, n_lines: int, length: int, in_bytes: tuple[int, ...], out_bytes: int, hardware: Hardware
    ) -> KernelResources | None:
        """Estimates what a [n_lines, length] tile will use; returns None where only the compiler can tell.

        Args:
            n_lines, length: elements of the tile, across and along its lines.
            in_bytes: bytes of an element of each input.
            out_bytes: bytes of an element of the output.
            hardware: facts of the device.
        """

    def resources(self, compiled: Any) -> KernelResources:
        """Reads what a program uses from the compiled kernel itself, the same way offline and live."""

    def occupancy(self, resources: KernelResources, hardware: Hardware) -> Occupancy:
        """Counts resident programs by the vendor's exact rule."""

    def known_fault(self, compiled: Any) -> str | None:
        """Says what the vendor's compiler is known to get wrong in such a kernel, which is then not used; None if nothing."""

    def direct_launch(
        self, compiled: Any, kinds: Sequence[str], grid: tuple[int, int, int], sizes: Sequence[int]
    ) -> DirectLaunch | None:
        """Prepares a launch that is quicker than Triton's; returns None where there is none.

        Args:
            compiled: Triton's CompiledKernel, loaded on the current device.
            kinds: Triton's types of its run-time parameters, in order: operands, i32 and i64, and what a launch of shared rows
                has of its own, a pointer and an i64.
            grid: numbers of programs.
            sizes: values of the parameters between the operands and those of the launch.

        Returns:
            launch(stream, operands), with the launch's own words and number after them where rows are shared.
        """


def nobody_elses(arch: Any, warp_size: int) -> None:
    """Returns None: no other vendor's Triton is known to take the backend's name; see Backend.another_vendors."""


def named_target(arch: int | str, index: int | None, hardware: Hardware) -> int | str:
    """Returns the architecture's name, which is all that Triton needs; see Backend.compile_target."""
    return arch


def no_known_fault(compiled: Any) -> None:
    """Returns None: the vendor's compiler is not known to get anything wrong; see Backend.known_fault."""


def named_options(num_warps: int | None, num_stages: int | None) -> dict[str, Any]:
    """Returns the options that every Triton for GPUs has.

    Products and sums are fused because it is said here: Triton 3.10 fuses none by default, and what is known of the kernels'
    accuracy, and of bits that programs share, is known of fused ones.
    """
    return {"num_warps": num_warps or 4, "num_stages": num_stages or 1, "enable_fp_fusion": True}


def by_triton_only(compiled: Any, kinds: Sequence[str], grid: tuple[int, int, int], sizes: Sequence[int]) -> None:
    """Returns None: kernels are launched by Triton; see Backend.direct_launch."""


def round_up(value: int, multiple: int) -> int:
    """Returns the least multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def simt_limits(resources: KernelResources, hardware: Hardware) -> dict[str, int]:
    """Counts programs per multiprocessor by each resource that vendors of GPUs count alike.

    Registers are allocated per warp in granules, from the slice of one partition (SM sub-partition, SIMD): whole warps
    must fit a slice, so the division comes before the multiplication. Sources: NVIDIA's cuda_occupancy.h
    (cudaOccMaxBlocksPerSMRegsLimit), LLVM's AMDGPUBaseInfo.cpp (getNumWavesPerEUWithNumVGPRs).

    Raises:
        ValueError: the kernel has no num_warps, or the device no warp_size or partitions.
    """
    warps = resources.num_warps
    partitions, warp_size = hardware.partitions_per_multiprocessor, hardware.warp_size
    if warps is None or warp_size is None or partitions is None:
        raise ValueError("occupancy needs num_warps of the kernel, warp_size and partitions_per_multiprocessor of the device")
    limits = {}
    if (threads := hardware.max_threads_per_program) and warps * warp_size > threads:
        limits["threads per program"] = 0
    if hardware.max_warps_per_multiprocessor:
        limits["warps"] = hardware.max_warps_per_multiprocessor // warps
    if hardware.max_programs_per_multiprocessor:
        limits["programs"] = hardware.max_programs_per_multiprocessor
    barriers = int(warps > 1) if resources.barriers is None else resources.barriers
    if hardware.barriers_per_multiprocessor and barriers:
        limits["barriers"] = hardware.barriers_per_multiprocessor // barriers
    if resources.registers_per_thread and hardware.registers_per_multiprocessor:
        slice_per_thread = hardware.registers_per_multiprocessor // partitions // warp_size
        granules = round_up(resources.registers_per_thread, hardware.register_granule or 1)
        addressable = resources.registers_per_thread <= (hardware.max_registers_per_thread or slice_per_thread)
        limits["registers"] = slice_per_thread // granules * partitions // warps if addressable else 0
    return limits | shared_memory_limit(resources, hardware)


def cautious_limits(resources: KernelResources, hardware: Hardware) -> dict[str, int]:
    """Counts like `simt_limits`; a kernel whose registers are not known is taken to need the most that a warp can be given."""
    if resources.registers_per_thread is not None:
        return simt_limits(resources, hardware)
    granule = hardware.register_granule or 1
    lanes = (hardware.partitions_per_multiprocessor or 1) * (hardware.warp_size or 1)
    given = (hardware.registers_per_multiprocessor or 0) // lanes // granule * granule
    most = min(given, hardware.max_registers_per_thread or given)
    limits = simt_limits(replace(resources, registers_per_thread=most), hardware)
    limits["registers (estimated)"] = limits.pop("registers")
    return limits


def shared_memory_limit(resources: KernelResources, hardware: Hardware) -> dict[str, int]:
    """Counts programs per multiprocessor by shared memory, with the largest carve-out where that can be chosen."""
    used = resources.shared_memory_bytes
    if hardware.shared_memory_per_program_max and used > hardware.shared_memory_per_program_max:
        return {"shared memory": 0}
    taken = round_up(used + (hardware.shared_memory_reserved_per_program or 0), hardware.shared_memory_granule or 1)
    if taken and hardware.shared_memory_sizes:
        taken = next((size for size in hardware.shared_memory_sizes if size >= taken), taken)
    if taken and hardware.shared_memory_per_multiprocessor:
        return {"shared memory": hardware.shared_memory_per_multiprocessor // taken}
    return {}


def occupancy_of(limits: dict[str, int], num_warps: int | None) -> Occupancy:
    """Makes an Occupancy of the programs that each resource alone would allow."""
    programs = min(limits.values())
    return Occupancy(programs, limits, None if num_warps is None else programs * num_warps)
