#!/usr/bin/env python3
"""Writes docs/api.md, the signatures and docstrings of all public names: `python scripts/api_page.py`."""

import argparse
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import portable_softmax

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
HEADINGS = {  # by the beginning of a name's module
    "Compute": ("portable_softmax.api.", "portable_softmax.invariance"),
    "Launches": ("portable_softmax.runtime.", "portable_softmax.planning.", "portable_softmax.operators."),
    "Devices and occupancy": ("portable_softmax.devices.",),
    "Any kernel": ("portable_softmax.row_kernels.", "portable_probe."),
    "Errors": ("portable_softmax.errors",),
}
OTHERS = {  # public names that are imported from their modules
    "portable_softmax.planning.plan": ("Tiling",),
    "portable_softmax.devices.schema": ("Hardware",),
    "portable_softmax.row_kernels.inspection": ("Inspected",),
    "portable_softmax.row_kernels.launcher": ("Launcher",),
    "portable_softmax.row_kernels.row_choice": ("RowPlan",),
    "portable_probe.testing": ("assert_occupancy",),
}
HEAD = """# API

The docstrings, by `python scripts/api_page.py`. Names are imported from `portable_softmax` unless a module is named.
`Compute` and `warm_up` need torch, plans of GPUs need Triton, the rest needs neither."""
MODULES = re.compile(r"\b(portable_softmax|portable_probe|collections|contextlib|typing)\.(\w+\.)*")


def page() -> str:
    """Returns the page in Markdown."""
    names = {name: (getattr(portable_softmax, name), "") for name in portable_softmax.__all__}
    for module, exported in OTHERS.items():
        names |= {name: (getattr(importlib.import_module(module), name), f"`{module}`\n\n") for name in exported}
    parts, first = [HEAD], dict[str, str]()  # the name that a text was first printed for
    for heading, modules in HEADINGS.items():
        parts.append(f"## {heading}")
        for name, (value, where) in names.items():
            if value.__module__.startswith(modules):
                text = f"~~~text\n{_text(value)}\n~~~"
                known = first.setdefault(text, name)
                entry = _entry(name, value)
                entry = entry if known == name else entry.replace(text, f"As [{known}](#{known.lower()}).")
                parts.append(f"### {name}\n\n{where}{entry}")
    return "\n\n".join(parts) + "\n"


def _entry(name: str, value: Any) -> str:
    """Returns signature and docstring; of a class its methods and properties too."""
    if not inspect.isclass(value) or name != value.__name__:  # a class of another name is used as a function
        called = value.__init__ if inspect.isclass(value) else type(value).__call__  # of an instance that is called
        function = value if inspect.isfunction(value) else called
        return f"```python\n{_signature(name, function)}\n```\n\n~~~text\n{_text(value)}\n~~~"
    members = [(key, inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member)))
               for key, member in vars(value).items() if not key.startswith("_")]  # fmt: skip
    lines = [f"* `{key if isinstance(vars(value)[key], property) else _signature(key, member)}`: {_summary(member)}"
             for key, member in members if inspect.isfunction(member) and member.__doc__]  # fmt: skip
    return "\n\n".join([f"~~~text\n{_text(value)}\n~~~", *(["\n".join(lines)] if lines else [])])


def _text(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "")


def _signature(name: str, function: Any) -> str:
    text = str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()")
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations that are text
    return name + MODULES.sub("", text.removesuffix(" -> None") if function.__name__ == "__init__" else text)


def _summary(function: Any) -> str:
    return " ".join(inspect.getdoc(function).split("\n\n")[0].split())  # type: ignore[union-attr]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
