"""Options of the probe that do not go together: each is an error, none is ignored in silence."""

import argparse
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from portable_softmax.devices.device import Device
from portable_softmax.devices.names import find_profile
from portable_softmax.errors import ProfileError
from portable_softmax.probe import scores
from portable_softmax.probe.arguments import value_of
from portable_softmax.probe.decorators import configurations
from portable_softmax.probe.loading import load_kernel
from portable_softmax.probe.report import Case, json_value
from portable_softmax.probe.schema import KernelUse, SoftmaxProblem

VIRTUAL = ("hip",)  # backends of which a kernel runs without the device
RUNS = (*VIRTUAL, "interpreter")
SOFTMAX = ("rows", "cols", "shapes", "dtype", "backward", *scores.OPTIONS)
OF_KERNEL = ("args", "case", "signature", "constexpr", "num_warps", "num_stages", "option", "config")
EXTRAS = ("explain", "textbook", "verify", "dump", "out", "plot")
ASKED = (*SOFTMAX, "kernel", *OF_KERNEL, *EXTRAS)
SHOWN = (*ASKED, "require", "save", "baseline", "tolerate", "markdown", "csv", "brief")


def named(options: argparse.Namespace, names: Collection[str]) -> str:
    """Returns names of options as the command line that was used spells them."""
    return ", ".join(sorted({options.spelled.get(name, f"--{name.replace('_', '-')}") for name in names}))


def complaints(options: argparse.Namespace) -> Iterator[str]:
    """Yields what is wrong with the options together, in words for their user."""
    given = {name for name, value in vars(options).items() if value is not None and value is not False and value != []}
    for alone in ("list", "matrix", "new_profile"):
        if alone in given and (unused := named(options, given & set(SHOWN))):
            yield f"{named(options, {alone})} has no use for {unused}"
    if "matrix" not in given and (unused := named(options, given & {"backend", "runner", "offline", "gitlab"})):
        yield f"{unused} choose legs of --matrix"
    if "profile" in given and not options.profile.strip():
        yield f"{named(options, {'profile'})} is empty; `portable-softmax profiles` lists the products"
    if "baseline" in given:
        if unused := named(options, (given - {"kernel"}) & {*ASKED, "profile", "compare", "index"}):
            yield f"--baseline asks again what its file holds, and has no use for {unused}"
    elif "tolerate" in given:
        yield "--tolerate is of --baseline, and there is none"
    if "shapes" in given and (unused := named(options, given & {"rows", "cols"})):
        yield f"--shapes has no use for {unused}"
    if "plot" in given and ("shapes" in given or len(options.dtype or ()) > 1):
        yield "--plot draws rows of every length in one type; leave out --shapes, and all types but one"
    if "kernel" in given:
        if unused := named(options, given & {*SOFTMAX, "plot"}):
            yield f"--kernel has no use for {unused}, which are of the softmax"
        if ":" not in options.kernel:
            yield f"a kernel is named FILE:NAME, not {options.kernel!r}"
    elif unused := named(options, given & set(OF_KERNEL)):
        yield f"{unused} are of a kernel of yours; name it: --kernel FILE:NAME"
    yield from repeated("--args, --signature or --constexpr", named_arguments(options))
    yield from repeated("--option, --num-warps or --num-stages", _named_options(options))
    yield from repeated("--tolerate", options.tolerate)
    yield from scores.complaints(options, given)
    yield from _unverifiable(given, options)
    if "out" in given and "dump" not in given:
        yield "--out says where --dump writes, and there is no --dump"


def _unverifiable(given: set[str], options: argparse.Namespace) -> Iterator[str]:
    """Yields why nothing here can run the kernel."""
    if "verify" not in given:
        return
    if "compare" in given or _backend(options.profile) not in (None, *RUNS):
        yield (
            "a kernel is verified on the device that is here or in Triton's interpreter if no device is named; "
            f"of devices that are not here, there is a virtual one for {' and '.join(VIRTUAL)} alone, such as amd/mi300x"
        )
    elif "kernel" in given and "case" not in given:
        yield "a kernel is verified by --case NAME: a function of its file that gives grid, arguments and what should come out"


def _backend(profile: str | None) -> str | None:
    try:
        return find_profile(profile).backend if profile else None
    except ProfileError:  # told when its device is looked for
        return None


def cases(options: argparse.Namespace, device: Device) -> list[Case]:
    """Returns the kernel that the options ask about, or the softmaxes, with the defaults of what was not given.

    Raises:
        ValueError: the kernel cannot be loaded, and all its configurations were asked for.
    """
    if options.kernel:
        given = {name: value_of(str(value)) for name, value in _named_options(options)}
        arguments = dict(named_arguments(options))
        asked = KernelUse(name=options.kernel, arguments=arguments, options=given, config=options.config, case=options.case)
        return list(_each_configuration(asked, device)) if options.config == "all" else [asked]
    shapes = options.shapes or [(options.rows or 4096, options.cols or 4096)]
    pairs = itertools.product(shapes, options.dtype or ["float32"])
    return [_softmax(options, rows, cols, dtype) for (rows, cols), dtype in pairs]


def _softmax(options: argparse.Namespace, n_rows: int, n_cols: int, dtype: str) -> SoftmaxProblem:
    asked = scores.scores_of(options, dtype)
    return SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype=dtype, scores=asked or UNSET, backward=options.backward or UNSET)


def _each_configuration(asked: KernelUse, device: Device) -> Iterator[KernelUse]:
    found = [config.all_kwargs() for config in configurations(load_kernel(asked.name, device).kernel)]
    if not found:
        raise ValueError(f"all configurations were asked for, and {asked.name} is not under @triton.autotune")
    every = dict.fromkeys(name for values in found for name in values if name not in ("num_warps", "num_stages"))
    names = [name for name in every if any(values.get(name) != found[0].get(name) for values in found)]
    for number, values in enumerate(found):
        chosen = {name: json_value(values[name]) for name in names if name in values}
        yield msgspec.structs.replace(asked, config=number, chosen=chosen)


def named_arguments(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Returns the arguments of a kernel that the options name."""
    return [*itertools.chain(*options.args), *options.signature, *options.constexpr]


def repeated(lists: str, pairs: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Yields what is wrong with pairs, name first, where a name comes more than once."""
    names = [name for name, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield f"{', '.join(twice)} stands more than once in {lists}; leave out all but one"


def _named_options(options: argparse.Namespace) -> list[tuple[str, Any]]:
    numbers = [(name, getattr(options, name)) for name in ("num_warps", "num_stages")]
    return [*options.option, *(pair for pair in numbers if pair[1] is not None)]
