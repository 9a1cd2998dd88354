"""Draws docs/speed.svg from scripts/results: times of the README's calls as bars, in multiples of a copy's time."""

from pathlib import Path
from xml.sax.saxutils import escape

from benchmark.documents import LABELS, ROOT, readme_cells
from benchmark.results import COPY, OURS

CHART = ROOT / "docs" / "speed.svg"
CARD = "h100"
WIDTH, LEFT, UNIT, BAR, GAP = 720, 130, 43, 12, 7  # pixels; UNIT is a copy's time
DARK, LIGHT = "#1a1a1a", "#c4c4c4"


def draw(path: Path = CHART) -> None:
    """Writes the chart. Bars have labels and two shades of gray, so no colour is required to read them."""
    y, parts = 28, list[str]()
    for name, cell in readme_cells(CARD):
        parts.append(_text(8, y + BAR, f"{name}, {' x '.join(map(str, cell.result.sizes))}", "bold"))
        y += BAR + 5
        top, limit = y - 2, LEFT + UNIT
        for provider, label in LABELS.items():
            if provider == COPY or provider not in cell.us:
                continue
            ratio, weight = cell.us[provider] / cell.us[COPY], "bold" if provider == OURS else "normal"
            fill, length = DARK if provider == OURS else LIGHT, ratio * UNIT
            parts.append(_text(LEFT - 6, y + BAR - 2, label, weight, "end"))
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 2}" fill="{fill}"/>')
            parts.append(_text(LEFT + length + 5, y + BAR - 2, f"{ratio:.2f}", weight))
            y += BAR
        parts.append(f'<line x1="{limit}" y1="{top}" x2="{limit}" y2="{y}" stroke="{DARK}" stroke-dasharray="3 3"/>')
        y += GAP
    parts.append(
        _text(8, 14, "Time of a bfloat16 call, shorter is better. 1 = a copy of the same bytes (dashed), one H100", "bold")
    )
    style = 'font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" {style}>'
    background = f'<rect width="{WIDTH}" height="{y}" fill="white"/>'
    path.write_text("\n".join((head, background, *parts, "</svg>", "")), encoding="utf-8")


def _text(x: float, y: float, text: str, weight: str = "normal", anchor: str = "start") -> str:
    style = f'font-weight="{weight}" text-anchor="{anchor}" fill="{DARK}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
