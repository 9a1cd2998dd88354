"""A softmax of scores on the command line: the options, which of them exclude each other, and words for a report."""

import argparse
from collections.abc import Iterator
from typing import Any

from portable_softmax.planning.scores import Scores

OPTIONS = ("mask", "scale", "temperature", "softcap", "sink")
MASKS = ("boolean", "added", "causal", "lower_right")


def which_scores(group: argparse._ActionsContainer) -> None:
    """Adds the options that say what becomes of x ahead of the softmax."""
    factors: dict[str, Any] = {"nargs": "?", "const": "number", "choices": ("number", "rows")}
    group.add_argument(
        "--mask", nargs="+", choices=MASKS, metavar="KIND",
        help="boolean, or added to x; causal (j <= i), or lower_right: causal such that the last row has all columns",
    )  # fmt: skip
    group.add_argument("--scale", **factors, help="x times a number, or one for each row")
    group.add_argument("--temperature", **factors, help="x divided by a number, or by one for each row")
    group.add_argument("--softcap", type=_cap, metavar="CAP", help="CAP * tanh(x / CAP)")
    group.add_argument("--sink", action="store_true", help="one more logit for each row, in the denominator alone")


def complaints(options: argparse.Namespace, given: set[str]) -> Iterator[str]:
    """Yields what is wrong with these options together, and with others beside them."""
    if {"scale", "temperature"} <= given:
        yield "a kernel takes one factor, the quotient if a call has two; plan either --scale or --temperature"
    masks = options.mask or []
    for pair in (("boolean", "added"), ("causal", "lower_right")):
        if {*pair} <= {*masks}:
            yield f"--mask {' '.join(pair)} are two masks where a kernel takes one; leave out one"
    if {"backward", "softcap"} <= given:
        yield "--backward of a cap is a launch without it, and operators of torch; leave out --softcap"


def scores_of(options: argparse.Namespace, dtype: str) -> Scores:
    """Returns the scores that the options ask for; an added mask is of x's type."""
    masks = {*(options.mask or ())}
    return Scores(
        scale=options.scale,
        temperature=options.temperature,
        cap=options.softcap,
        mask="bool" if "boolean" in masks else dtype if "added" in masks else None,
        causal="lower_right" if "lower_right" in masks else "upper_left" if "causal" in masks else None,
        sink=bool(options.sink),
    )


def words_of(scores: Scores) -> str:
    """Names the steps, in their order; "" where there are none."""
    mask = "boolean" if scores.mask == "bool" else f"added {scores.mask}"
    steps = {
        f"scale{' of each row' if scores.scale == 'rows' else ''}": scores.scale,
        f"softcap {scores.cap}": scores.cap,
        f"temperature{' of each row' if scores.temperature == 'rows' else ''}": scores.temperature,
        f"{mask} mask": scores.mask,
        "causal" if scores.causal == "upper_left" else f"causal {scores.causal}": scores.causal,
        "sink": scores.sink,
        "masked rows of 0": scores.zero_rows,
    }
    return " and ".join(name for name, is_done in steps.items() if is_done)


def _cap(text: str) -> float:
    try:
        cap = float(text)
    except ValueError:
        cap = 0.0
    if not 0 < cap < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} should be a number above 0")
    return cap
