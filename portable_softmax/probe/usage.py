"""Options of the probe that do not go together: each is an error, none is ignored in silence."""

import argparse
from collections.abc import Iterator

from portable_softmax.devices.profiles import profiles

VIRTUAL = ("hip",)  # backends of which a kernel runs without the device
SOFTMAX = {"rows": 4096, "cols": 4096, "dtype": "float32"}  # defaults, set once it is known that nobody gave them
OF_KERNEL = ("signature", "constexpr", "num_warps", "num_stages", "config")
SHOWN = (
    "rows",
    "cols",
    "dtype",
    "kernel",
    *OF_KERNEL,
    "explain",
    "textbook",
    "verify",
    "case",
    "dump",
    "out",
    "plot",
    "require",
)


def complaints(options: argparse.Namespace) -> Iterator[str]:
    """Yields what is wrong with the options together, in words for their user."""
    given = {name for name, value in vars(options).items() if value is not None and value is not False and value != []}
    for alone in ("list", "matrix"):
        if alone in given and (unused := _named(given & set(SHOWN))):
            yield f"--{alone} has no use for {unused}"
    if "matrix" not in given and (unused := _named(given & {"backend", "runner"})):
        yield f"{unused} choose legs of --matrix"
    if "profile" in given and not options.profile.strip():
        yield "--profile is empty; --list names the products"
    if "kernel" in given:
        if unused := _named(given & {*SOFTMAX, "plot"}):
            yield f"--kernel has no use for {unused}, which are of the softmax"
        if ":" not in options.kernel:
            yield f"--kernel should be FILE:NAME, not {options.kernel!r}"
    elif unused := _named(given & set(OF_KERNEL)):
        yield f"{unused} are of a kernel of yours; name it: --kernel FILE:NAME"
    yield from _unverifiable(given, options)
    if "out" in given and "dump" not in given:
        yield "--out says where --dump writes, and there is no --dump"


def _unverifiable(given: set[str], options: argparse.Namespace) -> Iterator[str]:
    """Yields why nothing here can run the kernel."""
    if "case" in given and not given >= {"kernel", "verify"}:
        yield "--case is of --kernel with --verify"
    if "verify" not in given:
        return
    known = profiles().get(options.profile or "")
    if "compare" in given or (known and known.backend not in VIRTUAL):
        yield (
            "--verify runs the softmax on the device that is here; leave out --profile and --compare. "
            f"Of devices that are not here, there is a virtual one for {' and '.join(VIRTUAL)}"
        )
    elif "kernel" in given and not given >= {"profile", "case"}:
        yield "--verify of --kernel runs in a virtual device: it needs --profile, and --case for the arguments"


def complete(options: argparse.Namespace) -> None:
    """Fills in the defaults that `complaints` must tell from what was given."""
    for name, value in SOFTMAX.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.out = options.out or "."


def _named(names: set[str]) -> str:
    return ", ".join(sorted(f"--{name.replace('_', '-')}" for name in names))
