"""Prints the legs of vendors' CI from .github/matrix.json: a line of JSON for GitHub's fromJSON, or GitLab's child pipeline."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

MATRIX = Path(__file__).parents[1] / ".github" / "matrix.json"
DEVICES = "cuda", "hip", "npu", "xpu", "interpreter"


def legs(backends: list[str] | None = None, labels: list[str] | None = None) -> list[dict[str, Any]]:
    """Returns the legs of backends that a runner with these labels can take; None for any. Others would wait for ever."""
    every: list[dict[str, Any]] = json.loads(MATRIX.read_text(encoding="utf-8"))["include"]
    selected = [leg for leg in every if not backends or leg["device"] in backends]
    return [leg for leg in selected if labels is None or set(leg["runner"]) <= set(labels)]


def main(arguments: list[str] | None = None) -> int:
    """Prints the legs that the command line selects; returns 1 and prints none where no leg is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", nargs="+", choices=DEVICES, help="legs of these alone")
    parser.add_argument("--runner", nargs="+", metavar="LABEL", help="legs that runners with these labels can take")
    parser.add_argument("--gitlab", action="store_true", help="as a child pipeline of GitLab's")
    options = parser.parse_args(arguments)
    selected = legs(options.backend, options.runner)
    if not selected:
        print(f"no leg of {', '.join(leg['name'] for leg in legs())} is left", file=sys.stderr)
        return 1
    print(json.dumps({leg["name"]: _gitlab_job(leg) for leg in selected} if options.gitlab else {"include": selected}))
    return 0


def _gitlab_job(leg: dict[str, Any]) -> dict[str, Any]:
    """Returns a leg as GitLab has it. Options of containers are in its runners' config.toml."""
    variables = {"DEVICE": leg["device"], "PROFILE": leg["profile"] or "", "SETUP": leg["setup"]}
    variables["PACKAGES"] = " ".join(leg.get("packages", ()))
    job = {"tags": leg["runner"], "variables": variables, "script": ["bash scripts/hardware.sh all"]}
    if leg["container"]:
        job["image"] = leg["container"]["image"]
    job["artifacts"] = {"when": "always", "paths": ["results"], "reports": {"junit": "results/tests.xml"}}
    job["cache"] = {"key": f"hardware-{leg['name']}", "paths": ["last"], "when": "always"}
    return job | {"after_script": ["[ ! -f results/plans.json ] || { rm -rf last && cp -r results last; }"]}


if __name__ == "__main__":
    raise SystemExit(main())
