"""The probe's report as plain text."""

from collections.abc import Iterator
from typing import Any


def as_text(report: dict[str, Any]) -> str:
    return "\n".join(_lines(report))


def _lines(report: dict[str, Any]) -> Iterator[str]:
    device = report["device"]
    where = "not here" if not device["here"] else "here" if device["index"] is None else f"index {device['index']}"
    yield f"device    {device['name']}  ({device['backend']}/{device['arch']}, {device['architecture']}, {where})"
    yield f"profile   {device['profile']}"
    yield f"software  {', '.join(f'{name} {version}' for name, version in report['software'].items())}"
    yield ""
    yield f"{'':36}{'runtime':>15}{'profile':>15}{'used':>15}  from"
    for key, fact in report["facts"].items():
        numbers = "".join(f"{'-' if fact[side] is None else fact[side]:>15}" for side in ("runtime", "profile", "used"))
        yield f"{key:36}{numbers}  {_origin(fact)}"
    yield ""
    yield from _plan(report["plan"], report["problem"], device["multiprocessor"])
    if "verify" in report:
        yield from _verification(report["verify"])


def _origin(fact: dict[str, Any]) -> str:
    if fact["from"] in {"profile", "estimated"}:
        return f"{fact['from']} ({fact['profile_source']['verified']})"
    return str(fact["from"])


def _plan(plan: dict[str, Any], problem: dict[str, Any], multiprocessor: str) -> Iterator[str]:
    yield f"plan      softmax of {problem['n_rows']} x {problem['n_cols']}, {problem['dtype']}"
    launch = ("num_programs", "num_warps", "num_stages")
    yield f"          {plan['strategy']} {plan['tile_rows']} x {plan['tile_cols']}" + _named(plan, launch)
    resources = plan["resources"]
    yield f"uses     {_named(resources, resources) or '  nothing that is limited'}"
    occupancy = plan["occupancy"]
    limits = ", ".join(f"{name} {programs}" for name, programs in occupancy["limits"].items())
    yield (
        f"occupancy {occupancy['programs_per_multiprocessor']} programs per {multiprocessor}, limited by "
        f"{' and '.join(occupancy['limited_by'])}  (allowed by {limits})"
    )
    for number, reason in enumerate(plan["reasons"]):
        yield f"{'' if number else 'why':10}{reason}"


def _named(values: dict[str, Any], keys: Any) -> str:
    return "".join(f"  {key} {values[key]}" for key in keys if values[key] is not None)


def _verification(verify: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield (
        f"verify    {'right' if verify['right'] else 'WRONG'}: largest error {verify['max_error']:.3g}, "
        f"{verify['worst']:.2g} of what is allowed; {verify['overwritten']} elements next to it overwritten"
    )
