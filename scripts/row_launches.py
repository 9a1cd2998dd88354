#!/usr/bin/env python3
"""Launches row kernels of all forms on the device here, and times launches on the host and the kernels of examples/.

    python scripts/row_launches.py --beside CHECKOUT

`forms` launches each form of tests/support/row_forms.py in a process of its own, which is ended after 120 seconds. `host` times
a call on the host, beside `kernel[grid]`. `speeds` times kernels on the device, beside a copy of as many bytes. With `--beside`
the last two also run with the package of another checkout.
"""

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SECONDS = 120
EPS = 1e-6
NAMES: Any = {"rows": "n_rows", "cols": "n_cols", "block": "BLOCK"}
SIZES = (16384, 1024), (16384, 3000), (16384, 4096), (16384, 8192), (4096, 14336), (1024, 4096), (8, 4096)
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "examples"), str(ROOT / "scripts")]


def main() -> int:
    """Runs what is named, or all; returns 1 if a form is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", nargs="*", default=["forms", "host", "speeds"], help="forms, host, speeds, or the name of a form"
    )
    parser.add_argument("--beside", type=Path, help="another checkout")
    options = parser.parse_args()
    failures = 0
    for what in options.what:
        if what == "forms":
            failures += forms()
        elif what in ("host", "speeds"):
            (host if what == "host" else speeds)()
            if options.beside:
                print(f"beside: {what} of {options.beside}", flush=True)
                again = [sys.executable, __file__, what]
                path = os.pathsep.join([str(options.beside), os.environ.get("PYTHONPATH", "")])
                subprocess.run(again, check=False, env=os.environ | {"PYTHONPATH": path}, timeout=5 * SECONDS)
        else:
            form(what)
    return int(failures > 0)


def forms() -> int:
    """Launches each form in its own process; returns how many are wrong."""
    known = importlib.import_module("row_forms").FORMS

    wrong = 0
    for name in known:
        begun, told = time.monotonic(), ""
        try:
            ran = subprocess.run([sys.executable, __file__, name], timeout=SECONDS, check=False, capture_output=True, text=True)
            told = "right" if ran.returncode == 0 else f"WRONG {ran.stderr.strip().splitlines()[-1:]}"
        except subprocess.TimeoutExpired:
            told = f"WRONG, not ended after {SECONDS} seconds"
        wrong += told != "right"
        print(f"{name:40} {told} ({time.monotonic() - begun:.0f} s)", flush=True)
    print(f"{len(known) - wrong} of {len(known)} forms are right", flush=True)
    return wrong


def form(name: str) -> None:
    """Launches one form: right, or refused and then right by its author's grid, which also leaves memory behind alone."""
    of = importlib.import_module("row_forms")

    from portable_softmax import PlanError, current_device, launcher

    known, where = of.FORMS[name], current_device().vendor.torch_device_type
    for rows, cols in ((37, 50), (37, 3000)):
        arguments, exact = of.arguments_of(known, rows, cols, where)
        run = launcher(known.kernel, **NAMES)
        if known.grid is not None:
            try:
                run(**arguments)
            except PlanError as error:
                print(error)
            else:
                raise AssertionError("it was not refused")
        given = {} if known.grid is None else {"grid": known.grid}
        for again in range(2):
            if known.result != "total" or not again:
                run(**arguments, **given)
        of.assert_right(known, arguments, exact)


def swiglu() -> object:
    """Returns a launcher of x * sigmoid(x) * y."""
    from portable_softmax import persistent

    return persistent(importlib.import_module("row_swiglu").swiglu_kernel, **NAMES)


def host() -> None:
    """Prints microseconds of a call on the host, of small launches that the device is not late with."""
    import torch

    rms_norm = importlib.import_module("rms_norm")
    x, w = torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16), torch.ones(1024, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    arguments = (x, w, y, 8, 1024, EPS)
    run = rms_norm.forward
    plan = run.plan(*arguments)
    grid, meta = (plan.num_programs,), plan.meta
    kernel = rms_norm.rms_norm_kernel

    def directly() -> None:
        kernel[grid](*arguments, **meta)

    calls = {
        "launcher": lambda: run(*arguments),
        "launcher by name": lambda: run(x=x, w=w, y=y, n_rows=8, n_cols=1024, eps=EPS),
        "launcher, num_warps=4": lambda: run(*arguments, num_warps=4),
        "kernel[grid]": directly,
    }
    for name, call in calls.items():
        for _ in range(200):
            call()
        torch.cuda.synchronize()
        times = []
        for _ in range(30):
            begun = time.perf_counter()
            for _ in range(100):
                call()
            times.append((time.perf_counter() - begun) * 1e4)
            torch.cuda.synchronize()
        print(f"{name:24} {statistics.median(times):6.2f} us on the host, least {min(times):.2f}", flush=True)
    begun = time.perf_counter()
    rms_norm.persistent(kernel, **NAMES).plan(*arguments)
    print(f"plan, compiled before: {1e3 * (time.perf_counter() - begun):.1f} ms", flush=True)


def speeds() -> None:
    """Prints microseconds of kernels on the device beside a copy, and the launches."""
    import torch
    from triton.testing import do_bench

    cross_entropy, layer_norm, rms_norm = map(importlib.import_module, ("cross_entropy", "layer_norm", "rms_norm"))
    gate: Any = swiglu()
    for rows, cols in SIZES:
        for kind in (torch.bfloat16, torch.float32):
            x, z, y = (torch.randn(rows, cols, device="cuda", dtype=kind) for _ in range(3))
            w, b = (torch.randn(cols, device="cuda", dtype=kind) for _ in range(2))
            target, loss = torch.randint(cols, (rows,), device="cuda"), torch.empty(rows, device="cuda")
            calls = {
                "rms_norm": (rms_norm.forward, (x, w, y, rows, cols, EPS), 2),
                "layer_norm": (layer_norm.forward, (x, w, b, y, rows, cols, EPS), 2),
                "cross_entropy": (cross_entropy.forward, (x, target, loss, rows, cols), 1),
                "swiglu": (gate, (x, z, y, rows, cols), 3),
            }
            copy = do_bench(lambda x=x, y=y: y.copy_(x), warmup=5, rep=30, return_mode="median") * 1e3
            cells = []
            for name, (run, arguments, operands) in calls.items():
                us = do_bench(lambda run=run, of=arguments: run(*of), warmup=5, rep=30, return_mode="median") * 1e3
                plan = run.plan(*arguments)
                launch = f"{plan.num_programs}x{plan.meta['num_warps']}w B{plan.meta['BLOCK']}"
                cells.append(f"{name} {us:7.1f} ({copy * operands / 2 / us:.2f} of a copy) {launch}")
            print(f"{rows} x {cols} {str(kind)[6:]:8} copy {copy:7.1f} | {' | '.join(cells)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
