"""The probe's report as plain text."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from tabulate import tabulate

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.schema import Hardware

IDENTITY = ("", "target", "multiprocessor")
LAUNCH = ("strategy", "tile_rows", "tile_cols", "parts", "pieces", "num_warps", "num_stages", "max_registers", "num_programs")
RESOURCES = tuple(field.name for field in fields(KernelResources))
COUNTED = ("programs per multiprocessor", "limited by")
SIDES = ("runtime", "profile", "used")


def as_text(report: dict[str, Any]) -> str:
    """Returns a report of `describe` or `describe_kernel` as lines for a terminal."""
    return "\n".join(_lines(report))


def side_by_side(reports: list[dict[str, Any]]) -> str:
    """Returns a table with a column per report: its device, the facts used, its plan or kernel; then a remark on each."""
    columns = [_column(report) for report in reports]
    keys = dict.fromkeys([*IDENTITY, *Hardware.__struct_fields__, *LAUNCH, *RESOURCES, *COUNTED])
    rows = [(key, *(column.get(key, "-") for column in columns)) for key in keys if any(key in column for column in columns)]
    table = tabulate(rows, tablefmt="plain", disable_numparse=True)
    return "\n".join([table, *(line for report in reports for line in _remarks(report))])


def _column(report: dict[str, Any]) -> dict[str, Any]:
    device, body = report["device"], report.get("plan") or report.get("kernel")
    identity = (device["name"], f"{device['backend']}/{device['arch']}", device["multiprocessor"])
    facts = {key: fact["used"] for key, fact in report["facts"].items()}
    if body is None:
        return dict(zip(IDENTITY, identity, strict=True)) | facts
    occupancy = body["occupancy"]
    launch = {key: body[key] for key in LAUNCH if key in body}
    counted = occupancy["programs_per_multiprocessor"], ", ".join(occupancy["limited_by"])
    named = dict(zip((*IDENTITY, *COUNTED), (*identity, *counted), strict=True))
    everything = named | facts | launch | body["resources"]
    return {key: value for key, value in everything.items() if value is not None}


def _remarks(report: dict[str, Any]) -> Iterator[str]:
    name = report["device"]["name"]
    yield from [f"{name}: {report['error']}: {report['message']}"] if "error" in report else []
    yield from [f"{name}: {report['explain'][-1]}"] if "explain" in report else []
    yield from [f"{name}: the textbook says {report['textbook']}"] if "textbook" in report else []


def _lines(report: dict[str, Any]) -> Iterator[str]:
    device = report["device"]
    where = "not here" if not device["here"] else "here" if device["index"] is None else f"index {device['index']}"
    yield f"device    {device['name']}  ({device['backend']}/{device['arch']}, {device['architecture']}, {where})"
    yield f"profile   {device['profile']}"
    yield f"software  {', '.join(f'{name} {version}' for name, version in report['software'].items())}"
    yield ""
    yield _facts(report["facts"])
    yield ""
    yield from _plan(report["plan"], report["problem"]) if "plan" in report else [f"kernel    {report['kernel']['name']}"]
    yield from _use(report.get("plan") or report["kernel"], device["multiprocessor"])
    yield from _listed("why", report.get("plan", {}).get("reasons", ()))
    yield from _listed("limits", report.get("explain", ()))
    yield from _listed("textbook", [report["textbook"]] if "textbook" in report else ())
    yield from _listed("written", report.get("dump", ()))
    if "verify" in report:
        yield from _verification(report["verify"])


def _facts(facts: dict[str, dict[str, Any]]) -> str:
    rows = [(key, *(fact[side] for side in SIDES), _origin(fact)) for key, fact in facts.items()]
    alignment = ("left", *("right" for _ in SIDES), "left")
    return tabulate(rows, ("", *SIDES, "from"), "plain", missingval="-", colalign=alignment, disable_numparse=True)


def _origin(fact: dict[str, Any]) -> str:
    if fact["from"] in {"profile", "estimated"}:
        return f"{fact['from']} ({fact['profile_source']['verified']})"
    return str(fact["from"])


def _plan(plan: dict[str, Any], problem: dict[str, Any]) -> Iterator[str]:
    yield f"plan      softmax of {problem['n_rows']} x {problem['n_cols']}, {problem['dtype']}"
    launch = _named(plan, ("num_programs", "num_warps", "num_stages", "max_registers"))
    parts = f" in {plan['parts']} parts" if plan["parts"] > 1 else ""
    pieces = f" of {plan['pieces']} pieces" if plan["pieces"] > 1 else ""
    yield f"          {plan['strategy']} {plan['tile_rows']} x {plan['tile_cols']}{parts}{pieces}  {launch}"


def _use(body: dict[str, Any], multiprocessor: str) -> Iterator[str]:
    """Describes what a program of a plan or of any kernel uses, and how many fit."""
    yield f"uses      {_named(body['resources'], body['resources'])}"
    occupancy = body["occupancy"]
    limits = ", ".join(f"{name} {programs}" for name, programs in occupancy["limits"].items())
    count = occupancy["programs_per_multiprocessor"]
    yield (
        f"occupancy {count} program{'' if count == 1 else 's'} per {multiprocessor}, "
        f"limited by {' and '.join(occupancy['limited_by'])}  (allowed by {limits})"
    )


def _named(values: dict[str, Any], keys: Iterable[str]) -> str:
    return "  ".join(f"{key} {values[key]}" for key in keys if values[key] is not None)


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{'' if number else title:10}{line}"


def _verification(verify: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield (
        f"verify    {'right' if verify['right'] else 'WRONG'}: largest error {verify['max_error']:.3g}, "
        f"{verify['worst']:.2g} of what is allowed; {verify['overwritten']} elements next to it overwritten"
    )
    if "executed" in verify:
        rows = f"{verify['rows']} rows, " if "rows" in verify else ""
        yield f"          {verify['executed']}; {rows}{verify['instructions']} instructions of waves"
