"""The command `tune`: times launches on the local device, and writes a profile with the fitted cost."""

import argparse
import logging
import re
import sys
import time
from datetime import date
from typing import Any

import yaml

from portable_probe.report import versions
from portable_probe.text import as_columns
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.schema import COST_NUMBERS
from portable_softmax.errors import PortableSoftmaxError, ProfileError


def tune(options: argparse.Namespace) -> int:
    """Times launches of the local device, and writes DIR/<vendor>/<product>.yaml; returns 0.

    A launch that does not fit, does not compile or is wrong is printed and left out. Any other error ends the timing, as the
    device may be unusable. ProfileError: the device has no cost to fit. ValueError: too few launches were timed.
    """
    from portable_probe.tune import fit, launches

    device, timed, began = current_device(), [], time.monotonic()
    if not device.profile.launch.cost or not device.hardware.memory_bandwidth_gb_per_s:
        raise ProfileError(f"{device.profile.name} lacks `cost` or memory_bandwidth_gb_per_s, from which tune starts")
    logging.getLogger("portable_softmax").setLevel(logging.ERROR)  # slow launches are timed on purpose
    for job in launches.jobs_of(device):
        if time.monotonic() - began > 60 * options.minutes:
            break
        try:
            timed.append(job())
        except Exception as error:
            print(f"{job}: {type(error).__name__}: {error}", file=sys.stderr)
            if not isinstance(error, PortableSoftmaxError):
                break
    print(f"{len(timed)} launches timed in {time.monotonic() - began:.0f} s\n")
    listed, before = fit.prepared(timed), [getattr(device.profile.launch.cost, name) for name in COST_NUMBERS]
    numbers, errors = ([float(f"{value:.4g}") for value in values] for values in fit.fitted(listed, before))
    print(as_columns(("number", "before", "fitted", "standard error"), zip(COST_NUMBERS, before, numbers, errors, strict=True)))
    regret, worst, half, error_90 = fit.accuracy(listed, fit.left_out(listed, before))
    summary = f"least squares of {len(timed)} launches; left out of the fit: error near the fastest {half:.1%} (median), "
    summary += f"{error_90:.1%} (90%), regret {regret:.1%}, at most {worst:.1%}"
    vendor, _, product = device.profile.name.partition("/")
    if not device.profile.is_product:
        product = re.sub(r"[^a-z0-9]+", "-", device.name.lower().removeprefix(f"{vendor} ")).strip("-")
    path = options.out / vendor / f"{product}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(profile_of(device, summary, dict(zip(COST_NUMBERS, numbers, strict=True)), error_90), encoding="utf-8")
    print(f"\n{summary}\n{path}: used with PORTABLE_SOFTMAX_PROFILES={options.out}")
    return 0


def profile_of(device: Device, summary: str, numbers: dict[str, float], error_90: float) -> str:
    """Returns a profile that extends the device's by the fitted cost, and by what its driver and torch report."""
    source = "tuned_again" if "tuned" in device.profile.sources else "tuned"
    title = f"portable-softmax tune, {device.name}: {summary}; {versions()}, {date.today()}"
    reported = [fact for fact, origin in device.origins.items() if origin in ("driver", "torch")]
    content: dict[str, Any] = {
        "extends": device.profile.name,
        "matches": [re.escape(device.name)],
        "sources": {source: {"verified": "measured", "title": title}},
        "hardware": {fact: {"value": getattr(device.hardware, fact), "source": source} for fact in reported},
        "launch": {"cost": {**numbers, "error_90": round(error_90, 4), "source": source}},
    }
    return "# Written by portable-softmax.\n" + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=128)
