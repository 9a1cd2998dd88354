"""Cases that are asked about, a device and a softmax or kernel each, and the report of one."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.detect import current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, PortableSoftmaxError
from portable_softmax.probe.explain import against_textbook, explain, next_step
from portable_softmax.probe.inspection import compile_any, dump
from portable_softmax.probe.loading import load_kernel
from portable_softmax.probe.report import Case, counted, describe, launch_of
from portable_softmax.probe.schema import KernelUse, Report, SoftmaxProblem, Verified
from portable_softmax.runtime.plans import plan
from portable_softmax.runtime.specialization import KernelSpec, compile_kernel

BROKEN = PortableSoftmaxError, OSError, TypeError, ValueError, ImportError


@dataclass(frozen=True)
class Wanted:
    """Additions to a report.

    Args:
        explain, textbook, verify, case: as the options of these names.
        dump: stages to write, comma-separated; None for none.
        out: folder for them.
    """

    explain: bool = False
    textbook: bool = False
    verify: bool = False
    case: str | None = None
    dump: str | None = None
    out: Path = Path()


def reports_of(asked: list[tuple[Device, Case, Wanted]]) -> list[Report]:
    """Returns a report of each case. One of several that fails says why, in `error` and `message`, and leaves the others.

    Raises:
        PortableSoftmaxError, OSError, TypeError, ValueError, ImportError: the only case fails, or a kernel cannot be loaded.
    """
    kernels = {name: load_kernel(name) for name in {case.name for _, case, _ in asked if isinstance(case, KernelUse)}}
    if len(asked) == 1:
        return [_report(*asked[0], kernels)]
    return [_report_or_error(*each, kernels) for each in asked]


def again(report: Report) -> tuple[Device, Case, Wanted]:
    """Returns the case of an earlier report, to be asked once more.

    Raises:
        DeviceError: the device was here, and is missing or another one now.
        ProfileError: its profile is gone.
    """
    told = report.device
    device = current_device(told.index) if told.here else Device.from_profile(told.profile)
    if device.profile.name != told.profile:
        raise DeviceError(f"the earlier report is of {told.name}; this is {device.name}")
    case = report.problem or report.kernel
    assert case, "load() takes no such report"
    if isinstance(case, KernelUse):
        case = msgspec.structs.replace(case, resources=msgspec.UNSET, occupancy=msgspec.UNSET)
    return device, case, Wanted(verify=bool(report.verify) and isinstance(case, SoftmaxProblem))


def words_of(case: Case) -> str:
    """Names a case in a table."""
    return case.name if isinstance(case, KernelUse) else f"{case.n_rows} x {case.n_cols} {case.dtype}"


def _report_or_error(device: Device, case: Case, wanted: Wanted, kernels: Mapping[str, Any]) -> Report:
    try:
        return _report(device, case, wanted, kernels)
    except BROKEN as error:
        return msgspec.structs.replace(describe(device, case), error=type(error).__name__, message=str(error))


def _report(device: Device, case: Case, wanted: Wanted, kernels: Mapping[str, Any]) -> Report:
    found, resources, compiled = (
        _kernel(device, case, kernels[case.name]) if isinstance(case, KernelUse) else _softmax(device, case, bool(wanted.dump))
    )
    added: dict[str, Any] = {}
    if wanted.dump:
        added["dump"] = [str(path) for path in dump(compiled, wanted.dump, wanted.out)]
    if wanted.verify:
        added["verify"] = _verified(device, case, compiled, wanted)
    if wanted.explain:
        added["explain"] = explain(resources, device)
    if wanted.textbook:
        added["textbook"] = against_textbook(resources, device)
    fits = device.vendor.occupancy(resources, device.hardware)
    if not fits.programs_per_multiprocessor:
        added |= {"error": "PlanError", "message": next_step(resources, device, fits).text}
    return msgspec.structs.replace(found, **added)


def _kernel(device: Device, case: KernelUse, kernel: Any) -> tuple[Report, KernelResources, Any]:
    compiled = compile_any(kernel, case.signature, case.constexprs, case.num_warps, case.num_stages, device, case.config)
    resources = device.vendor.resources(compiled)
    fits = counted(device.vendor.occupancy(resources, device.hardware))
    return describe(device, msgspec.structs.replace(case, resources=resources, occupancy=fits)), resources, compiled


def _softmax(device: Device, case: SoftmaxProblem, with_kernel: bool) -> tuple[Report, KernelResources, Any]:
    found = plan(case.n_rows, case.n_cols, case.dtype, device)
    report = msgspec.structs.replace(describe(device, case), plan=launch_of(found))
    compiled = compile_kernel(KernelSpec.of(found.problem, found.tiling), device) if with_kernel else None
    return report, found.resources, compiled


def _verified(device: Device, case: Case, compiled: Any, wanted: Wanted) -> Verified:
    """Runs the kernel on the device, or if that is not here in the virtual one of its vendor."""
    if isinstance(case, KernelUse) or (device.index is None and not interpreting()):
        from portable_softmax.probe import virtual

        if isinstance(case, KernelUse):
            return virtual.verify_case(compiled, virtual.load_case(case.name, wanted.case or ""))
        return virtual.verify_softmax(case.n_rows, case.n_cols, case.dtype, device)
    from portable_softmax.probe.verify import verify

    outcome = verify(case.n_rows, case.n_cols, case.dtype, device)
    return Verified(**dataclasses.asdict(outcome), right=outcome.right)
