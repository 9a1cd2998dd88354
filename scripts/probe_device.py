#!/usr/bin/env python3
"""Shows the device that Triton drives, or with --on NAME another, its facts, and the plan of a softmax with its reasons."""

import sys

from portable_probe.program import main

if __name__ == "__main__":
    raise SystemExit(main(["plan", "--facts", *sys.argv[1:]]))
