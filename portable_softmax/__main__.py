"""The program `portable-softmax`, as `python -m portable_softmax`."""

from portable_softmax.probe.program import main

if __name__ == "__main__":
    raise SystemExit(main())
