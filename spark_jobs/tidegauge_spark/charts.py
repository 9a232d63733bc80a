"""Bar charts: PNG if matplotlib is installed (the extra `spark` brings it), else SVG, which needs no library.

Contract: ``draw`` writes one file and returns its path. A chart has a readable number of bars: the largest ones.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from html import escape
from pathlib import Path

BAR_PX = 22
LABEL_PX = 220
WIDTH_PX = 760
COLOUR = "#2a6f97"
MAX_BARS = 40
"""Maximum number of bars of a chart; report.json has all partitions."""


def largest(title: str, bars: Mapping[str, float]) -> tuple[str, dict[str, float]]:
    """Return title and bars of a chart: the largest ones in the given order, with a title that says so."""
    if len(bars) <= MAX_BARS:
        return title, dict(bars)
    kept = set(sorted(bars, key=lambda name: -bars[name])[:MAX_BARS])
    return f"{title}: the largest {MAX_BARS} of {len(bars)}", {name: bars[name] for name in bars if name in kept}


def label(value: float) -> str:
    """Return a value in readable form: as an integer, or with one decimal."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def svg_bars(title: str, unit: str, bars: Mapping[str, float]) -> str:
    """Return horizontal bars with their values, as an SVG document."""
    top = max(bars.values(), default=0) or 1
    height = 40 + BAR_PX * max(1, len(bars))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{height}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)} ({escape(unit)})</text>',
    ]
    room = WIDTH_PX - LABEL_PX - 90
    for index, (name, value) in enumerate(bars.items()):
        y = 32 + index * BAR_PX
        width = round(room * value / top, 1)
        parts.append(f'<text x="{LABEL_PX - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{LABEL_PX}" y="{y + 2}" width="{width}" height="{BAR_PX - 6}" fill="{COLOUR}"/>')
        parts.append(f'<text x="{LABEL_PX + width + 6}" y="{y + 14}">{label(value)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def can_draw_png() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(directory: Path, name: str, title: str, unit: str, bars: Mapping[str, float]) -> Path:
    """Write ``name.png`` or ``name.svg`` into the directory."""
    title, bars = largest(title, bars)
    if not can_draw_png():
        file = directory / f"{name}.svg"
        file.write_text(svg_bars(title, unit, bars), encoding="utf-8")
        return file
    import matplotlib as mpl  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415  (optional)

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415  (optional)

    figure, axes = plt.subplots(figsize=(8, 1 + 0.3 * max(1, len(bars))))
    drawn = axes.barh(list(bars), list(bars.values()), color=COLOUR)
    axes.bar_label(drawn, labels=[label(value) for value in bars.values()], padding=4)
    axes.set_xlim(0, 1.25 * max(bars.values(), default=0) or 1)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.locator_params(axis="x", nbins=5)
    axes.set_ylim(len(bars) - 0.4 if bars else 1, -0.6)
    axes.set_title(title)
    axes.set_xlabel(unit)
    figure.tight_layout()
    file = directory / f"{name}.png"
    figure.savefig(file)
    plt.close(figure)
    return file
