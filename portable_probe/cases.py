"""From a case to its report: plans or compiles it, counts the programs that fit, and verifies the result if requested."""

import contextlib
import functools
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from portable_probe.explain import next_step
from portable_probe.loading import KernelFile, load_kernel
from portable_probe.report import Case, KernelCall, Report, Scalar, Verified, describe
from portable_probe.text import in_units, many
from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.detect import how_to_install
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, GridError, PlanError, PortableSoftmaxError
from portable_softmax.planning.cost import GB_PER_S, Terms
from portable_softmax.row_kernels.addresses import warnings_of
from portable_softmax.row_kernels.arguments import read_arguments, value_of
from portable_softmax.row_kernels.compiling import reason_in
from portable_softmax.row_kernels.decorators import constexprs_of, jit_function
from portable_softmax.row_kernels.inspection import Launched, inspect_kernel
from portable_softmax.runtime.plans import plan

BROKEN = PortableSoftmaxError, OSError, TypeError, ValueError, ImportError
ATTRIBUTES = {"tt.divisibility": "multiple of {}", "tt.pointer_range": "pointer range {} bits"}
EXAMPLE = "--args 'x=f16[4096,4096] n=4096 BLOCK=64 num_warps=8 maxnreg=64'"
WHAT_TO_PASS = "; pass --args 'NAME=VALUE ...': f16[4096,4096] is a tensor, 4096 and 1e-6 are numbers, options may follow"
Text = dict[str, Sequence[str]]  # lines by title
LONGEST = 120  # limit of seconds of a compilation for an absent device
SHOWN = ("num_warps", "num_stages", "num_ctas")  # options that are always shown


def report_of(device: Device, case: Case, verify: bool = False) -> Report:
    """Returns the report of a case, run and compared if `verify`; what fails is its `error`, but a file that does not load."""
    file = load_kernel(case.name, device) if isinstance(case, KernelCall) else None
    try:
        answers = _kernel(device, case, file, verify) if file else _softmax(device, case, verify)
    except BROKEN as error:
        hint = how_to_install(error)
        if isinstance(error, TypeError) and " missing " in str(error):
            hint = WHAT_TO_PASS
        answers = {"error": type(error).__name__, "message": f"{error}{hint}"}
    if (verified := answers.get("verify")) and not verified.right:
        answers |= {"error": "WrongResult", "message": "the result differs from float64 by more than the tolerance"}
    return msgspec.structs.replace(describe(device, case), **answers)


class _Child:
    """A report from another process: a compiler may print intermediate code, abort, or not terminate."""

    def __init__(self, device: Device, case: Case, printed: Any) -> None:
        self.about, self.printed, forking = (device, case), printed, multiprocessing.get_context("fork")
        self.receiver, answer = forking.Pipe(duplex=False)
        self.process = forking.Process(target=self._answer, args=(answer,), daemon=True)
        self.process.start()
        answer.close()

    def _answer(self, answer: Any) -> None:
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_CPU, (2 * LONGEST, 2 * LONGEST))  # of the compiler's own processes too
        os.dup2(self.printed.fileno(), 2)
        sys.stderr = self.printed
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)  # OpenMP's threads remain in the parent
        try:
            result: Any = report_of(*self.about)
        except Exception as error:
            result = error
        self.printed.flush()
        answer.send(result)

    def report(self) -> Report:
        """Waits for the report, and prints what the compiler printed unless there is an error."""
        report: Any = f"not compiled within {LONGEST} s; use smaller tiles"
        try:
            if self.receiver.poll(LONGEST):
                report = self.receiver.recv()
        except EOFError:
            report = "the compiler ended the process"
        finally:
            self.process.join(1)
            self.process.kill()
            self.process.join()
        self.printed.seek(0)
        text = self.printed.read()
        if isinstance(report, Exception):
            raise report
        if isinstance(report, str):
            message = "; ".join(filter(None, (report, reason_in(text))))
            return msgspec.structs.replace(describe(*self.about), error=CompileError.__name__, message=message)
        answered: Report = report
        if answered.error == CompileError.__name__ and (why := reason_in(text)) not in str(answered.message):  # MLIR prints it
            answered = msgspec.structs.replace(answered, message=f"{answered.message}: {why}")
        print("" if answered.error else text, end="", file=sys.stderr)
        return answered


def bounded_reports(requests: Sequence[tuple[Device, Case]]) -> list[Report]:
    """Returns the reports of cases; those of absent devices from other processes, side by side, each within LONGEST seconds."""
    started, reports = list[Callable[[], Report]](), list[Report]()
    with contextlib.ExitStack() as files:
        for device, case in requests:
            if len(started) - len(reports) >= (os.cpu_count() or 1):
                reports.append(started[len(reports)]())
            if device.detected is not None or not hasattr(os, "fork"):
                started.append(functools.partial(report_of, device, case))
                continue
            printed = files.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            started.append(_Child(device, case, printed).report)
        return reports + [report() for report in started[len(reports) :]]


def _softmax(device: Device, case: Any, verify: bool) -> dict[str, Any]:
    planned = plan(case.n_rows, case.n_cols, case.dtype, device, backward=case.backward)
    bandwidth, resident = device.hardware.memory_bandwidth_gb_per_s, device.resident(planned.occupancy)
    time = [expected(planned.terms, device)] if planned.terms else []
    if bandwidth and resident:
        moved = planned.work.turns * planned.work.row
        least = in_units(moved / (GB_PER_S * bandwidth) / 1e6, "s")
        time.append(f"{least} at least, for {in_units(moved, 'B')} at the data sheet's bandwidth")
    launch: dict[str, Scalar] = {"tiling": str(planned.tiling), "num_programs": planned.num_programs}
    text: Text = {"plan": [f"{planned.tiling}, num_programs {planned.num_programs}"]}
    warned = list(planned.warnings)
    if planned.resources.estimated:
        warned.append(f"an estimate, not compiled: {device.vendor.missing() or 'Triton interprets'}")
    answers = _answers(device, planned.resources, launch, text, {"time": time, "warning": warned, "why": planned.reasons})
    if planned.terms:
        answers["numbers"]["expected_us"] = planned.terms.total
    if verify:
        from portable_probe.verify import verify_softmax  # needs torch

        answers["verify"] = verify_softmax(case, planned, device)
    return answers


def _answers(device: Device, used: KernelResources, launch: dict[str, Scalar], text: Text, more: Text) -> dict[str, Any]:
    """Returns the fields of a report that follow from the resources of a program."""
    fits, step = device.vendor.occupancy(used, device.hardware), next_step(used, device)
    resident, warps, most = device.resident(fits), fits.warps_per_multiprocessor, device.hardware.max_warps_per_multiprocessor
    share = f", {warps} of {most} warps ({warps / most:.0%})" if warps is not None and most else ""
    where = f"{many(fits.programs_per_multiprocessor, 'program')} per {device.profile.multiprocessor}{share}"
    text |= {"occupancy": [f"{where}, limited by {' and '.join(fits.limited_by)}; {resident} on the device"]}
    text |= {"uses": [str(used)], **more}
    text["limits"] = [f"{name:20}{n:>6}{'   binds' if name in fits.limited_by else ''}" for name, n in fits.limits.items()]
    numbers = {**vars(used), "programs_per_multiprocessor": fits.programs_per_multiprocessor, "resident_programs": resident}
    answers = {"launch": launch, "limited_by": fits.limited_by, "numbers": numbers | {"warps_per_multiprocessor": warps}}
    if not fits.programs_per_multiprocessor:
        return {**answers, "text": text, "error": PlanError.__name__, "message": step}
    return {**answers, "text": {**text, "next step": [step]}}


def expected(terms: Terms, device: Device) -> str:
    """Returns the estimated time of a launch, and the terms of its cost, in words."""
    cost, us, sure = device.profile.launch.cost, terms.total, "not calibrated for this device"
    listed = sorted(terms._asdict().items(), key=lambda term: -term[1])
    parts = ", ".join(f"{name} {in_units(value / 1e6, 's')}" for name, value in listed if value >= us / 100)
    if cost and cost.error_90:
        low, high = (in_units(us * (1 + error) / 1e6, "s") for error in (-cost.error_90, cost.error_90))
        sure = f"{low} to {high} in 9 of 10 cases"
    return f"{in_units(us / 1e6, 's')} expected ({sure}): {parts}"


def _kernel(device: Device, case: Any, file: KernelFile, verify: bool) -> dict[str, Any]:
    jit, known = jit_function(file.kernel), load_case(file, case)
    if known and verify and device.backend == "interpreter":
        return {"verify": _run(device, case, file, known, None)}
    arguments, options = call_values(jit, case, known)
    used, _, launch = inspect_kernel(file.kernel, arguments, config=case.config, device=device, **options)
    grid = known and known.grid_for(launch.constants)
    launch = launch._replace(origins=launch.origins | dict.fromkeys(case.suggested, "suggested"))
    values, _ = read_arguments(file.kernel, arguments)
    more: Text = {"warning": list(warnings_of(launch.compiled, jit, values, grid))}
    shown = {name: launch.options[name] for name in SHOWN[:2] if name in launch.options}
    answers = _answers(device, used, shown, _launch_text(launch, jit, grid), more)
    if grid and (refused := device.refused_grid(grid, used.num_warps, launch.options.get("num_ctas") or 1)):
        answers |= {"error": GridError.__name__, "message": refused}
    elif known and verify and "error" not in answers:
        answers["verify"] = _run(device, case, file, known, launch)
    return answers


def call_values(jit: Any, case: KernelCall, known: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arguments and the options of a call by name: of its KernelCase, of the command line, suggested."""
    words = {name: text if name in jit.arg_names else value_of(text) for name, text in case.arguments.items()}
    values = {**(known.arguments if known else {}), **words, **case.suggested}
    arguments = {name: value for name, value in values.items() if name in jit.arg_names}
    return arguments, {name: value for name, value in values.items() if name not in arguments}


def _launch_text(launch: Launched, jit: Any, grid: tuple[int, ...] | None) -> Text:
    """Returns options, constants, the grid and arguments as text; options that are rarely set only if they are set."""
    origins, constexprs = launch.origins, constexprs_of(jit)
    options = {name: value for name, value in launch.options.items() if name in SHOWN or name in origins}
    by = dict.fromkeys(launch.constants.keys() - set(constexprs), "specialized, by the argument")
    text: Text = {}
    for title, group in (("launch", options), ("constants", launch.constants)):
        words = (f"{name}={value} ({by.get(name) or origins.get(name, 'default')})" for name, value in group.items())
        text[title] = ["  ".join(words)]
    kinds: dict[str, list[str]] = {}
    for name, (kind, attributes) in launch.arguments.items():
        known = [ATTRIBUTES.get(fact, fact + " {}").format(value) for fact, value in attributes]
        kinds.setdefault(", ".join([kind, *known]), []).append(name)
    arguments = [f"{' '.join(names)}: {kind}" for kind, names in kinds.items()]
    return text | {"grid": [" x ".join(map(str, grid))] if grid else [], "arguments": arguments}


def _run(device: Device, case: KernelCall, file: KernelFile, known: Any, launch: Launched | None) -> Verified:
    """Runs a kernel on the device, in the interpreter, or on the emulator of its vendor."""
    from portable_probe import verify, virtual  # need torch

    known = known._replace(arguments={**known.arguments, **{name: value_of(text) for name, text in case.arguments.items()}})
    run: Callable[[], str | None] = functools.partial(verify.run_here, file.kernel, case.config, known, device)
    if launch and device.index is None:
        run = functools.partial(virtual.run_case, launch, known, device)
    return verify.verify_case(known, run)


def load_case(file: KernelFile, case: KernelCall) -> Any:
    """Returns the KernelCase that a function in the kernel's file makes, or None without --case; see verify.load_case."""
    if not case.case:
        return None
    from portable_probe import verify  # needs torch

    return verify.load_case(file, case.case)
