"""The program `portable-softmax`, as `python -m portable_probe`."""

from portable_probe.program import main

if __name__ == "__main__":
    raise SystemExit(main())
