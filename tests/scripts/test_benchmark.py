"""The benchmark's own arithmetic, and that its checks tell right from wrong; nothing is timed here."""

from types import SimpleNamespace

import pytest
from benchmark import documents, report, sweeps, timing
from benchmark import run as benchmark_run
from benchmark.providers import load
from benchmark.results import Result, cells_of, read

TIMES = {  # microseconds by direction, shape and provider
    ("forward", "4096x128"): {"copy": 5, "torch": 20, "ours": 10},
    ("forward", "4096x256"): {"copy": 5, "torch": 40, "quack": 5, "ours": 10},
    ("backward", "4096x256"): {"copy": 5, "torch": 40, "quack": 20},
}


def results():
    return [
        Result(device="A", sweep="wide", provider=name, shape=shape, dim=1, dtype="float32", direction=way, median_us=float(us))
        for (way, shape), times in TIMES.items()
        for name, us in times.items()
    ]


def test_ratios_of_cells_and_their_geometric_means():
    cells = cells_of(results())
    forward, backward = report.summary(cells)
    assert forward == ("forward", "wide", "float32", "2", "0.50", "2.83", "1.00", "1", "0.50 4096 x 256 (quack)")
    assert backward == ("backward", "wide", "float32", "1", "-", "-", "-", "0", "-")
    assert report.below(cells) == ["  0.500 forward float32 4096 x 256 (quack)"]
    assert report.times(cells)[-1] == ("backward", "float32", "4096 x 256", "5.0", "40.0", "-", "20.0", "-", "-", "-")
    assert cells[0].gb_per_s["ours"] == pytest.approx(2 * 4096 * 128 * 4 / 10 / 1e3)


@pytest.mark.parametrize("document", documents.DOCUMENTS, ids=lambda path: path.name)
def test_tables_of_documents_are_those_of_the_kept_results(document):
    """If not: python scripts/benchmark report --write."""
    text = document.read_text()
    assert documents.BLOCK.search(text)
    assert documents.filled(text) == text
    broken = documents.BLOCK.sub(r"\1old\n", text)
    assert documents.filled(broken) == text


def test_a_whole_run_writes_a_file_that_reads_again(monkeypatch, tmp_path):
    """On the CPU, with torch for our kernel; the clock alone is another."""
    monkeypatch.setattr(timing, "do_bench", lambda call, **_: call() is None or 1.0)
    monkeypatch.setitem(sweeps.SWEEPS, "quick", [(3, 5), (2, 7)])
    device = SimpleNamespace(vendor=SimpleNamespace(torch_device_type="cpu"))
    directions = ["forward", "backward", "token_log_probs", "token_both"]
    options = SimpleNamespace(direction=directions, sweep=["quick"], dtype=["float32"], every=1, turns=2, jobs=0,
                              out=tmp_path / "rows.csv")  # fmt: skip
    found = benchmark_run._measured(options, load(["copy", "torch", "ours"]), device)
    assert len(found) == len(directions) * 2 * 3
    assert {each.median_us for each in found} == {1000.0}
    assert all(each.error <= 1 for each in found if each.provider != "copy")
    again = read(options.out)
    assert [(each.cell, each.provider) for each in again] == [(each.cell, each.provider) for each in found]
    assert "backward" in report.text_of(again)
