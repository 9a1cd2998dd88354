#!/usr/bin/env python3
"""Shows the device that Triton drives, the facts that are used, and the plan of a softmax with its reasons."""

from portable_softmax.probe.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
