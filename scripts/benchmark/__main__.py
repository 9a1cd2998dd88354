"""Commands; each prints its options with --help.

python scripts/benchmark              times softmax, scores, log-probabilities and row kernels beside peers' (run.py)
python scripts/benchmark host         times how long the host is busy with a call (host.py)
python scripts/benchmark report       prints ratios, writes the tables and the chart of documents; needs no device (report.py)
"""

import sys
from importlib import import_module
from pathlib import Path

COMMANDS = ("host", "report")


def main() -> int:
    """Runs the command that is named first; the benchmark if none is named."""
    chosen = sys.argv.pop(1) if sys.argv[1:] and sys.argv[1] in COMMANDS else "run"
    sys.argv[0] = f"benchmark {chosen}" if chosen in COMMANDS else "benchmark"
    from portable_softmax import PortableSoftmaxError

    try:
        result: int = import_module(f"benchmark.{chosen}").main()
    except PortableSoftmaxError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return result


if __name__ == "__main__":
    if not __package__:  # Python was started with the folder's name and has put the folder itself on the path
        sys.path[0] = str(Path(__file__).resolve().parents[1])
        sys.path.append(str(Path(__file__).resolve().parents[2]))  # where nothing is installed
    raise SystemExit(main())
