"""Output beside an answer: few lines of a compiler."""

import os
import subprocess
import sys

from portable_probe.output import LINES, few_lines_of_compilers


def test_a_few_lines_of_a_compiler_come_through(capfd):
    with few_lines_of_compilers():
        os.write(2, "".join(f"line {number}\n" for number in range(900)).encode())
        print("an answer")
    print("afterwards", file=sys.stderr)
    captured = capfd.readouterr()
    lines = captured.err.splitlines()
    last = f"... and {900 - LINES} more lines of the compiler's", "afterwards"
    assert (len(lines), (lines[LINES], lines[-1]), captured.out) == (LINES + 2, last, "an answer\n")


def test_a_closed_standard_error_is_no_problem():
    code = "from portable_probe.output import few_lines_of_compilers as few\nwith few():\n    print('in')\n"
    ran = subprocess.run(["bash", "-c", '"$0" -c "$1" 2>&-', sys.executable, code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "in\n")
