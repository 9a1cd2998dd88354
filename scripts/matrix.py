"""Legs of vendor CI, from .github/matrix.json: one line of JSON, for GitHub's fromJSON, or GitLab's child pipeline."""

import argparse
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

MATRIX = Path(__file__).parents[1] / ".github" / "matrix.json"
DEVICES = Literal["cuda", "hip", "npu", "xpu", "interpreter"]

Text = Annotated[str, msgspec.Meta(min_length=1)]
Image = Annotated[str, msgspec.Meta(pattern=r"^[^:@\s]+(:(?!latest$)[\w.-]+|@sha256:[0-9a-f]{64})$")]  # of one version


class Container(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A container in GitHub's words."""

    image: Image
    options: str = ""
    volumes: list[Text] = []
    env: dict[str, str] = {}


class Leg(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One machine of CI, and how its software is set up."""

    name: Text
    device: DEVICES
    profile: Text | None  # that the device should be taken for; null where there is none
    runner: Annotated[list[Text], msgspec.Meta(min_length=1)]  # labels
    container: Container | None
    setup: Text  # a shell command, before each step
    torch: Text  # version, or where it comes from
    triton: Text
    packages: list[Text] = []  # for the image's own Python, before anything else


class Matrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Contents of .github/matrix.json, and of what is printed."""

    include: list[Leg]


def legs(backends: list[str] | None = None, labels: list[str] | None = None, offline: bool = False) -> list[Leg]:
    """Returns the legs that are wanted and that a runner can take: one that no runner takes would wait for ever.

    Args:
        backends: of these alone; None for all.
        labels: of the runners there are; None for any.
        offline: only legs that need no accelerator.
    """
    every = msgspec.json.decode(MATRIX.read_bytes(), type=Matrix).include
    wanted = (leg for leg in every if not backends or leg.device in backends)
    here = (leg for leg in wanted if not offline or leg.device == "interpreter")
    return [leg for leg in here if labels is None or set(leg.runner) <= set(labels)]


def main(arguments: list[str] | None = None) -> int:
    """Prints the legs that the command line asks for; returns 1 and prints none where no leg is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", nargs="+", choices=get_args(DEVICES), help="legs of these alone")
    parser.add_argument("--runner", nargs="+", metavar="LABEL", help="legs that runners with these labels can take")
    parser.add_argument("--gitlab", action="store_true", help="as a child pipeline of GitLab's")
    parser.add_argument("--offline", action="store_true", help="legs that need no accelerator")
    options = parser.parse_args(arguments)
    found = legs(options.backend, options.runner, options.offline)
    if not found:
        print(f"no leg of {', '.join(leg.name for leg in legs())} is left", file=sys.stderr)
        return 1
    told = {leg.name: _gitlab_job(leg) for leg in found} if options.gitlab else msgspec.to_builtins(Matrix(include=found))
    print(json.dumps(told))
    return 0


def _gitlab_job(leg: Leg) -> dict[str, Any]:
    """Returns a leg as GitLab has it. Options of containers are its runners' own business: their config.toml has them."""
    variables = {"DEVICE": leg.device, "PROFILE": leg.profile or "", "SETUP": leg.setup}
    variables["PACKAGES"] = " ".join(leg.packages)
    job: dict[str, Any] = {"tags": leg.runner, "variables": variables, "script": ["bash scripts/hardware.sh all"]}
    if leg.container:
        job["image"] = leg.container.image
    job["artifacts"] = {"when": "always", "paths": ["results"], "reports": {"junit": "results/tests.xml"}}
    job["cache"] = {"key": f"hardware-{leg.name}", "paths": ["last"], "when": "always"}
    return job | {"after_script": ["[ ! -f results/plans.json ] || { rm -rf last && cp -r results last; }"]}


if __name__ == "__main__":
    raise SystemExit(main())
