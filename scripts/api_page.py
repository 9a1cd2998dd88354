#!/usr/bin/env python3
"""Writes docs/api.md from the docstrings of the package: `python scripts/api_page.py`. A test tells when the page is stale."""

import argparse
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import portable_softmax

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
ROOMS = {  # headings, by the beginning of the module, in portable_softmax or beside it, that a name is of
    "Compute": ("api.", "invariance"),
    "Launches": ("runtime.", "planning.", "operators.memory"),
    "Devices and occupancy": ("devices.",),
    "Any kernel": ("row_kernels.", "portable_probe."),
    "Errors": ("errors",),
}
BESIDE = (  # what is not imported from portable_softmax itself: classes that its names give or take, and the probe's names
    "portable_softmax.api.override.Override",
    "portable_softmax.planning.plan.Tiling",
    "portable_softmax.devices.schema.Hardware",
    "portable_softmax.devices.limits.Limits",
    "portable_softmax.row_kernels.fits.Fits",
    "portable_softmax.row_kernels.inspection.Inspected",
    "portable_softmax.row_kernels.persistent.Persistent",
    "portable_softmax.row_kernels.row_choice.RowPlan",
    "portable_softmax.row_kernels.resident.ResidentPrograms",
    "portable_probe.testing.assert_occupancy",
    "portable_probe.testing.assert_plan_unchanged",
)
HEAD = """# API

Made by `python scripts/api_page.py` from the docstrings. Names are imported from `portable_softmax`, others from the
module that stands beside them. `Compute` and `warm_up` need torch, plans of GPUs need Triton, the rest needs neither.
"""
SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Warns):\n((?:[ ]{4}.*\n?|\n)*)", re.MULTILINE)
WORDS = {"Args": "Arguments", "Returns": "Returns", "Yields": "Yields", "Raises": "Raises", "Warns": "Warns"}
MODULES = re.compile(r"\b(portable_softmax|portable_probe|collections|contextlib|typing)\.(\w+\.)*")
ENTRY = re.compile(r"^([\w*, ]+): (.*)", re.DOTALL)


def page() -> str:
    """Returns the page in Markdown."""
    public = {name: getattr(portable_softmax, name) for name in portable_softmax.__all__}
    others = {name: _found(name) for name in BESIDE}
    parts = [HEAD]
    for heading, rooms in ROOMS.items():
        parts.append(f"## {heading}\n")
        parts += [_entry(*each) for each in {**public, **others}.items() if _inside(each[1]).startswith(rooms)]
    return "\n".join(parts)


def _inside(each: Any) -> str:
    return str(each.__module__.removeprefix("portable_softmax."))


def _found(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _entry(name: str, each: Any) -> str:
    """Returns the part of one function or class: its signature, what it is, and the members that a class has."""
    module, _, short = name.rpartition(".")
    where = f", of `{module}`" if module else ""
    if not inspect.isclass(each):
        each = each if inspect.isfunction(each) else type(each).__call__  # of an instance that is called
        return f"### {short}\n\n`{short}{_signature(each)}`{where}\n\n{_text(each)}"
    bases = [base.__name__ for base in each.__bases__ if base.__name__ not in ("object", "Struct")]
    kind = f"class `{short}({', '.join(bases)})`{where}" if bases else f"class `{short}`{where}"
    members = [_member(key, value) for key, value in vars(each).items() if not key.startswith("_")]
    fields = [] if "Args:" in str(each.__doc__) else getattr(each, "__struct_fields__", getattr(each, "_fields", ()))
    listed = f"Fields: {', '.join(f'`{field}`' for field in fields)}.\n\n" if fields else ""
    return "\n".join([f"### {short}\n\n{kind}\n\n{_text(each, 'Fields')}{listed}\n{''.join(members)}".rstrip(), ""])


def _member(name: str, value: Any) -> str:
    if isinstance(value, property) and value.fget:
        return f"* `{name}`: {_first(value.fget)}\n"
    function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    if inspect.isfunction(function) and function.__doc__:
        return f"* `{name}{_signature(function)}`: {_first(function)}\n"
    return ""


def _first(function: Any) -> str:
    """Returns the first paragraph of a docstring, as one line."""
    return " ".join(inspect.getdoc(function).split("\n\n")[0].split())  # type: ignore[union-attr]


class _Words:
    """Annotation that is printed as it is."""

    def __init__(self, annotation: Any) -> None:
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        self.text = MODULES.sub("", text.replace("'", "").replace('"', ""))

    def __repr__(self) -> str:
        return self.text


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    empty, parameters = inspect.Parameter.empty, signature.parameters.values()
    kept = [
        each if each.annotation is empty else each.replace(annotation=_Words(each.annotation))
        for each in parameters
        if each.name != "self"
    ]
    returned = signature.return_annotation
    return str(signature.replace(parameters=kept, return_annotation=returned if returned is empty else _Words(returned)))


def _text(each: Any, fields: str = "Arguments") -> str:
    """Returns a docstring in Markdown: its sections become lists."""
    text = inspect.cleandoc(each.__doc__) + "\n"

    def listed(found: re.Match[str]) -> str:
        entries = re.split(r"\n(?! )", textwrap.dedent(found[2]).strip())
        lines = [ENTRY.sub(r"`\1`: \2", " ".join(entry.split())) for entry in entries]
        heading = fields if found[1] == "Args" else WORDS[found[1]]
        return f"{heading}:\n\n{''.join(f'* {line}{chr(10)}' for line in lines)}\n"

    return SECTION.sub(listed, text).rstrip() + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
