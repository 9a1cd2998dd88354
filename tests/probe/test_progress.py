"""A long answer says on a terminal how far it is, and nothing elsewhere."""

import sys

import pytest

from portable_probe import output


@pytest.mark.parametrize(("terminal", "patience", "said"), [(True, -1.0, True), (True, 100.0, False), (False, -1.0, False)])
def test_it_counts_on_a_terminal_that_waits(capsys, monkeypatch, terminal, patience, said):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(output, "PATIENCE", patience)
    assert list(output.counted_out("abc", "case")) == ["a", "b", "c"]
    captured = capsys.readouterr()
    assert (captured.out, "case 2 of 3" in captured.err, captured.err == "") == ("", said, not said)
