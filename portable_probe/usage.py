"""Cases that a command line asks about, and options that do not go together: each is an error, none is ignored in silence."""

import argparse
import itertools
from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from portable_probe import scores
from portable_probe.arguments import value_of
from portable_probe.decorators import configurations
from portable_probe.loading import load_kernel
from portable_probe.options import named
from portable_probe.report import Case, json_value
from portable_probe.schema import KernelUse, SoftmaxProblem
from portable_softmax.devices.device import Device
from portable_softmax.devices.names import find_profile
from portable_softmax.errors import ProfileError

VIRTUAL = ("hip",)  # backends of which a kernel runs without the device
SOFTMAX = {"rows", "cols", "shapes", "dtype", "backward", *scores.OPTIONS}
OF_KERNEL = {"arguments": "--args", "options": "--option", "case": "--case", "config": "--config"}


def given_of(options: argparse.Namespace) -> set[str]:
    """Returns the names of the options that were given."""
    return {name for name, value in vars(options).items() if value not in (None, False, [], {})}


def complaints(options: argparse.Namespace) -> Iterator[str]:
    """Yields what is wrong with the options together, in words for their user."""
    given = given_of(options)
    if "shapes" in given and (unused := given & {"rows", "cols"}):
        yield f"--shapes has no use for {named([*unused])}"
    if options.kernel and (unused := given & SOFTMAX):
        yield f"--kernel has no use for {named([*unused])}, which are of the softmax"
    if not options.kernel and (unused := given & OF_KERNEL.keys()):
        yield f"{', '.join(OF_KERNEL[name] for name in sorted(unused))} are of a kernel of yours; name it: --kernel FILE:NAME"
    yield from scores.complaints(options, given)
    if options.verify and (options.on and not _virtual(options.on)):
        yield (
            "a kernel is verified on the device that is here or in Triton's interpreter if no device is named; "
            f"of devices that are not here, there is a virtual one for {' and '.join(VIRTUAL)} alone, such as amd/mi300x"
        )
    elif options.verify and options.kernel and not options.case:
        yield "a kernel is verified by --case NAME: a function of its file that gives grid, arguments and what should come out"
    if "out" in given and "dump" not in given:
        yield "--out says where --dump writes, and there is no --dump"


def _virtual(names: list[str]) -> bool:
    """Tells whether a kernel can run on a device that is not here; a wrong name is told when its device is looked for."""
    try:
        return len(names) == 1 and find_profile(names[0]).backend in (*VIRTUAL, "interpreter")
    except ProfileError:
        return True


def cases(options: argparse.Namespace, device: Device) -> list[Case]:
    """Returns the kernel that the options ask about, or the softmaxes, with the defaults of what was not given.

    Raises:
        ValueError: the kernel cannot be loaded, and all its configurations were asked for.
    """
    if options.kernel:
        given = {name: value_of(value) for name, value in options.options.items()}
        asked = KernelUse(
            name=options.kernel, arguments=options.arguments, options=given, config=options.config, case=options.case
        )
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
