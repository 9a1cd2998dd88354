"""Files of assert_plan_unchanged: a line for each kernel on each device, with the numbers that are compared."""

from pathlib import Path

import msgspec

from portable_probe.regression import Value, save_text, values_of
from portable_probe.schema import Fields, KernelUse, Report, Scalar

VERSION = 1


class Plan(Fields, frozen=True, kw_only=True):
    """A kernel as it is launched on a device, and the numbers to compare, by kind and name."""

    device: str
    kernel: str
    arguments: dict[str, str]
    options: dict[str, Scalar]
    config: int | None
    numbers: dict[str, dict[str, Value]]

    @property
    def case(self) -> tuple[str, bytes]:
        """Returns the subject without its numbers, as JSON, in which 1, 1.0 and true are not equal."""
        asked = msgspec.structs.replace(self, numbers={})
        return self.device, msgspec.json.encode(asked, order="deterministic")

    @property
    def values(self) -> dict[tuple[str, str], Value]:
        """Returns the numbers by kind and name together."""
        return {(kind, name): value for kind, named in self.numbers.items() for name, value in named.items()}


class _Version(Fields, frozen=True, kw_only=True):
    version: int


class _File(_Version, frozen=True, kw_only=True):
    plans: list[Plan]


def plan_of(report: Report) -> Plan:
    """Returns the plan of a kernel's report."""
    kernel = report.kernel
    assert isinstance(kernel, KernelUse), "reports of kernels alone are kept"
    numbers: dict[str, dict[str, Value]] = {}
    for (kind, name), value in values_of(report).items():
        if kind != "error" and value is not None:
            numbers.setdefault(kind, {})[name] = value
    return Plan(
        device=report.device.profile, kernel=kernel.name, arguments=kernel.arguments, options=kernel.options,
        config=kernel.config, numbers=numbers,
    )  # fmt: skip


def read_plans(path: Path) -> list[Plan]:
    """Reads what `write_plans` wrote; none if there is no such file.

    Raises:
        ValueError: the file holds something else, or plans of another version.
    """
    if not path.exists():
        return []
    try:
        text = path.read_bytes()
        if (version := msgspec.json.decode(text, type=_Version).version) != VERSION:
            raise ValueError(f"{path} is of version {version}, and this is {VERSION}; pytest --save-plans writes it anew")
        return msgspec.json.decode(text, type=_File).plans
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} holds no plans: {error}; pytest --save-plans writes it") from error


def write_plans(plans: list[Plan], path: Path) -> None:
    """Writes plans, sorted, a line for each."""
    lines = [msgspec.json.encode(plan).decode() for plan in sorted(plans, key=_order)]
    body = ",\n".join(lines)
    save_text(f'{{"version": {VERSION}, "plans": [\n{body}\n]}}\n', path)


def _order(plan: Plan) -> tuple[str, str, bytes]:
    return plan.kernel, plan.device, plan.case[1]
