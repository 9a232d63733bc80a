"""Draws a Mermaid state diagram as SVG: a column for each step from the start, arrows as curves. Pure.

Knows the lines that ``tidegauge_broker.diagrams`` and ``tidegauge_controller.diagrams`` write: ``A --> B``, with
``[*]`` for the begin and the end. So the site needs no script that draws, and shows its diagrams without a network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

Arrow = tuple[str, str]
START, END = "(start)", "(end)"
BOX_HEIGHT, ROW, GAP, MARGIN = 40, 84, 64, 24
PIXELS_PER_LETTER = 8.6


def svg(lines: str) -> str:
    """Return the diagram in one line of HTML.

    Raises:
        ValueError: a line is none that the tables' generators write.
    """
    arrows = list(parsed(lines))
    columns = laid_out(arrows)
    widths = [max(map(_width, column)) for column in columns]
    height = max(map(len, columns)) * ROW + 2 * MARGIN
    boxes: dict[str, tuple[float, float, float]] = {}
    x = float(MARGIN)
    for column, width in zip(columns, widths, strict=True):
        top = (height - len(column) * ROW) / 2 + ROW / 2
        for row, state in enumerate(column):
            boxes[state] = (x + width / 2, top + row * ROW, _width(state) / 2)
        x += width + GAP
    shown = [_path(arrow, boxes, arrows) for arrow in arrows] + [_box(state, *boxes[state]) for state in boxes]
    total = x - GAP + MARGIN
    label = escape(f"State diagram: {', '.join(state for state in boxes if state not in {START, END})}")
    return (
        f'<svg class="states" viewBox="0 0 {total:.0f} {height:.0f}" style="max-width:{total:.0f}px" role="img"'
        f' aria-label="{label}"><defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8"'
        f' markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z"/></marker></defs>{"".join(shown)}</svg>'
    )


def parsed(lines: str) -> Iterator[Arrow]:
    """Yield from and to of each arrow.

    Raises:
        ValueError: as of ``svg``.
    """
    for line in lines.splitlines():
        if line.strip() in {"", "stateDiagram-v2"}:
            continue
        arrow = re.fullmatch(r"\s*(\[\*\]|\w+) --> (\[\*\]|\w+)", line)
        if arrow is None:
            raise ValueError(f"this is no arrow of a state diagram: {line!r}")
        yield START if arrow[1] == "[*]" else arrow[1], END if arrow[2] == "[*]" else arrow[2]


def laid_out(arrows: Sequence[Arrow]) -> list[list[str]]:
    """Return the states in columns by steps from the start, the end last."""
    depth = {START: 0}
    waiting = [START]
    while waiting:
        state = waiting.pop(0)
        for begin, end in arrows:
            if begin == state and end not in depth and end != END:
                depth[end] = depth[state] + 1
                waiting.append(end)
    if any(end == END for _, end in arrows):
        depth[END] = max(depth.values()) + 1
    columns: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for state, column in depth.items():
        columns[column].append(state)
    return columns


def _width(state: str) -> float:
    return 22.0 if state in {START, END} else len(state) * PIXELS_PER_LETTER + 28


def _box(state: str, x: float, y: float, half: float) -> str:
    if state in {START, END}:
        ring = "" if state == START else f'<circle cx="{x:.0f}" cy="{y:.0f}" r="11" class="ring"/>'
        return f'{ring}<circle cx="{x:.0f}" cy="{y:.0f}" r="7"/>'
    return (
        f'<rect x="{x - half:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{2 * half:.0f}" height="{BOX_HEIGHT}" rx="8"/>'
        f'<text x="{x:.0f}" y="{y + 5:.0f}">{escape(state)}</text>'
    )


def _path(arrow: Arrow, boxes: dict[str, tuple[float, float, float]], arrows: Sequence[Arrow]) -> str:
    begin, end = arrow
    (x, y, half), (to_x, to_y, to_half) = boxes[begin], boxes[end]
    high = BOX_HEIGHT / 2
    if begin == end:
        left, right, top = x - 16, x + 16, y - high
        return _curve(f"M{right:.0f} {top:.0f}C{right + 8:.0f} {top - 30:.0f} {left - 8:.0f} {top - 30:.0f}", left, top)
    if abs(x - to_x) < 1:
        side = 10 if (end, begin) in arrows else 0
        down = 1 if to_y > y else -1
        start, stop = y + down * high, to_y - down * high
        if abs(to_y - y) <= ROW + 1:
            return f'<path d="M{x + down * side:.0f} {start:.0f}L{to_x + down * side:.0f} {stop:.0f}"/>'
        bow = max(half, to_half) + 26
        return _curve(
            f"M{x + half:.0f} {y:.0f}C{x + bow + 14:.0f} {y:.0f} {x + bow + 14:.0f} {to_y:.0f}", to_x + to_half, to_y
        )
    if to_x > x:
        reach = (to_x - to_half - x - half) / 2
        turn = -7 if (end, begin) in arrows else 0
        first = f"M{x + half:.0f} {y + turn:.0f}C{x + half + reach:.0f} {y + turn:.0f}"
        return _curve(f"{first} {to_x - to_half - reach:.0f} {to_y + turn:.0f}", to_x - to_half, to_y + turn)
    reach = (x - half - to_x - to_half) / 2
    first = f"M{x - half:.0f} {y + 9:.0f}C{x - half - reach:.0f} {y + 9:.0f}"
    return _curve(f"{first} {to_x + to_half + reach:.0f} {to_y + 9:.0f}", to_x + to_half, to_y + 9, "back")


def _curve(begin: str, x: float, y: float, name: str = "") -> str:
    style = f' class="{name}"' if name else ""
    return f'<path d="{begin} {x:.0f} {y:.0f}"{style}/>'
