"""Draws a sequence diagram as SVG: time runs down, a lane for the clients, each broker, and the controller. Pure.

Layout: one row for each event; where events are many, runs of log end offsets and high watermarks share rows
(``timeline.folding``), and a row says how many changes it stands for. Words are above the row's arrow, right of the
dot, so that no arrow crosses them; a lane is as wide as the longest words on it. A lane is solid while its broker lives
(from its start to ``stopped`` or to the lab's ``kill``), dotted while it is paused or dead. A cross marks a process's
end; a diamond is what else the lab did. With one partition alone a bar on the lane shows who leads, in a colour for
each epoch; the partition's name is then in the title only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from xml.sax.saxutils import escape

from tidegauge.event_log import is_harm
from tidegauge_lab.timeline.choice import Choice, Event
from tidegauge_lab.timeline.folding import folded
from tidegauge_lab.timeline.lanes import CLIENTS, CONTROLLER, Lane, Step, steps
from tidegauge_lab.timeline.words import group_of, merged_happening, partition_of

MOST_ROWS = 1_000
ROW_PX = 26
HEAD_PX = 84
LEFT_PX = 104
FOOT_PX = 56
LEAST_LANE_PX = 130
CHARACTER_PX = 6.7
_WORDS_GAP_PX = 34
_BAR_PX = 9

_COLOURS = {
    "log_end_offset": "#1a7f37",
    "high_watermark": "#0969da",
    "last_stable_offset": "#1b7c83",
    "epoch": "#8250df",
    "truncation": "#cf222e",
    "isr": "#9a6700",
    "min_insync_replicas": "#9a6700",
    "election": "#bf3989",
    "controller": "#bf3989",
    "quorum": "#bf3989",
    "fencing": "#bf3989",
    "elr": "#9a6700",
    "reassignment": "#bf3989",
    "role": "#24292f",
    "log_start_offset": "#57606a",
    "session": "#57606a",
    "broker": "#57606a",
    "fault": "#cf222e",
    "refusal": "#cf222e",
    "restore": "#cf222e",
    "group": "#1b7c83",
    "offsets": "#1b7c83",
    "share": "#1b7c83",
    "transaction": "#1b7c83",
    "coordinator": "#1b7c83",
}
_REPAIR_COLOUR = "#57606a"
_LEGEND = (
    ("log_end_offset", "LEO"),
    ("high_watermark", "HW"),
    ("epoch", "leader epoch"),
    ("isr", "ISR"),
    ("election", "election"),
    ("truncation", "truncation, fault"),
    ("group", "group, transaction, LSO"),
)
_EPOCH_COLOURS = ("#54aeff", "#4ac26b", "#d4a72c", "#c297ff", "#ff8182", "#76e3ea")
_DIES = frozenset({"kill", "stop", "pause", "power-cut"})
_LIVES = frozenset({"start", "resume"})
_STYLE = (
    "text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    ".h{font-weight:bold;font-size:13px}.t{fill:#57606a;font-size:11px}"
    ".l{stroke:#8c959f;stroke-width:1}.d{stroke:#8c959f;stroke-width:1;stroke-dasharray:1 5}"
    ".w{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}"
)


class Drawing(NamedTuple):
    """A picture and its contents.

    Attributes:
        svg: the picture.
        rows: how many rows it has.
        left_out: how many rows before them were left out.
        events: how many events were wanted.
    """

    svg: str
    rows: int
    left_out: int
    events: int


def draw(events: Iterable[Event], choice: Choice) -> Drawing:
    """Draw the wanted events. ``events`` are all, in causal order."""
    wanted = [step for step in steps(events) if choice.wants(step.event)]
    rows = folded(wanted)
    drawn = rows[-MOST_ROWS:]
    return Drawing(_Picture(drawn).text(), len(drawn), len(rows) - len(drawn), len(wanted))


class _Picture:
    def __init__(self, drawn: Sequence[Step]) -> None:
        self._drawn = drawn
        partitions = sorted({name for step in drawn if (name := partition_of(step.event))})
        self._only = partitions[0] if len(partitions) == 1 else None
        self._words = [self._label(step) for step in drawn]
        self._lanes = _lanes(drawn)
        self._x, self._width = self._columns()
        self._height = HEAD_PX + ROW_PX * len(drawn) + FOOT_PX

    def _label(self, step: Step) -> str:
        name = partition_of(step.event)
        words = merged_happening(step.event)
        if step.lane == CONTROLLER and "source" in step.event and step.event.get("kind") == "controller":
            words = f"{str(step.event['source']).replace('-', ' ')} {words}"
        if group := group_of(step.event):
            return f"group {group} {words}"
        return words if not name or self._only else f"{name} {words}"

    def _columns(self) -> tuple[Mapping[Lane, float], float]:
        widest = dict.fromkeys(self._lanes, 0)
        for step, words in zip(self._drawn, self._words, strict=True):
            lane = self._lanes[0] if step.lane is None else step.lane
            if lane in widest:
                widest[lane] = max(widest[lane], len(words))
        places: dict[Lane, float] = {}
        x: float = LEFT_PX + 40
        for lane in self._lanes:
            places[lane] = x
            x += max(LEAST_LANE_PX, widest[lane] * CHARACTER_PX + _WORDS_GAP_PX)
        return places, max(x, LEFT_PX + 40 + 5 * LEAST_LANE_PX)

    def text(self) -> str:
        """Return the picture as text."""
        about = self._only or "all partitions"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self._width:.0f}" height="{self._height}" '
            f'viewBox="0 0 {self._width:.0f} {self._height}" role="img">',
            f"<title>Timeline of {escape(about)}</title>",
            "<desc>A sequence diagram: time runs down, one lane for each broker.</desc>",
            f"<style>{_STYLE}</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            f'<text class="h" x="12" y="22">{escape(about)}{self._day()}</text>',
        ]
        for piece in (self._lives, self._leaders, self._heads, self._rows, self._legend):
            parts.extend(piece())
        return "\n".join([*parts, "</svg>", ""])

    def _day(self) -> str:
        if not self._drawn:
            return ": no events"
        return f", {datetime.fromtimestamp(self._drawn[0].event.get('time_ms', 0) / 1000).astimezone():%Y-%m-%d}"

    def _y(self, row: float) -> float:
        return HEAD_PX + ROW_PX * (row + 0.7)

    def _heads(self) -> Iterator[str]:
        for lane, x in self._x.items():
            name = lane if isinstance(lane, str) else f"broker {lane}"
            width = len(name) * 8 + 20
            yield (
                f'<rect x="{x - width / 2:.1f}" y="40" width="{width}" height="26" rx="4" fill="#f6f8fa" '
                f'stroke="#57606a"/><text class="h" x="{x:.1f}" y="57" text-anchor="middle">{name}</text>'
            )

    def _lives(self) -> Iterator[str]:
        """Lanes, solid while their broker lives."""
        for lane, x in self._x.items():
            alive, since = self._lived_before(lane), 66.0
            for row, step in enumerate(self._drawn):
                lives = _is_alive(step, lane)
                if lives is not None and lives != alive:
                    yield _lane_line(x, since, self._y(row), alive=alive)
                    alive, since = lives, self._y(row)
            yield _lane_line(x, since, self._y(len(self._drawn) - 0.4), alive=alive)

    def _lived_before(self, lane: Lane) -> bool:
        """Return the state before a broker's first start or end: the other one."""
        first = next((incarnation for step in self._drawn if (incarnation := _is_alive(step, lane)) is not None), False)
        return not first

    def _leaders(self) -> Iterator[str]:
        """Draw a bar where a broker leads; only one partition has one leader."""
        if self._only is None:
            return
        for lane, x in self._x.items():
            since: float | None = None
            epoch = 0
            for row, step in enumerate(self._drawn):
                begins = step.lane == lane and step.event.get("kind") == "role"
                if since is not None and (begins or _is_alive(step, lane) is False):
                    yield _bar(x, since, self._y(row), epoch)
                    since = None
                if begins and step.event.get("role") == "leader":
                    since, epoch = self._y(row), step.event.get("leader_epoch", 0)
            if since is not None:
                yield _bar(x, since, self._y(len(self._drawn) - 0.4), epoch)

    def _rows(self) -> Iterator[str]:
        last = ""
        for row, (step, words) in enumerate(zip(self._drawn, self._words, strict=True)):
            y = self._y(row)
            moment = datetime.fromtimestamp(step.event.get("time_ms", 0) / 1000)  # noqa: DTZ006 - local time is meant
            time = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"
            if time != last:
                yield f'<text class="t" x="12" y="{y:.1f}">{time}</text>'
            last = time
            yield from self._row(step, words, y)

    def _row(self, step: Step, words: str, y: float) -> Iterator[str]:
        colour = _colour_of(step)
        if step.lane is None or step.lane not in self._x:
            yield (
                f'<line x1="{LEFT_PX}" y1="{y:.1f}" x2="{self._width - 12:.1f}" y2="{y:.1f}" stroke="{colour}" '
                f'stroke-dasharray="6 4"/>{_words_at(LEFT_PX + 48, y, colour, words)}'
            )
            return
        x = self._x[step.lane]
        if step.sender is not None:
            yield _arrow(self._x[step.sender], x, y, colour)
        if step.receiver is not None:
            yield _arrow(x, self._x[step.receiver], y, colour)
        if step.event.get("action") in _DIES:
            yield f'<path d="M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12" stroke="{colour}" stroke-width="2.5"/>'
        elif step.event.get("kind") == "fault":
            yield f'<path d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z" fill="#fff" stroke="{colour}" stroke-width="2"/>'
        else:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
        yield _words_at(x + 9, y, colour, words)

    def _legend(self) -> Iterator[str]:
        x, y = 12.0, self._height - 16
        for kind, words in _LEGEND:
            yield f'<circle cx="{x + 4:.1f}" cy="{y - 4}" r="4" fill="{_COLOURS[kind]}"/>'
            yield f'<text class="t" x="{x + 13:.1f}" y="{y}">{words}</text>'
            x += 13 + len(words) * 7 + 18


def _colour_of(step: Step) -> str:
    """Return the colour of an event; a repair's differs from its fault's."""
    kind = str(step.event.get("kind"))
    if kind == "fault" and not is_harm(step.event):
        return _REPAIR_COLOUR
    return _COLOURS.get(kind, "#24292f")


def _lanes(drawn: Sequence[Step]) -> list[Lane]:
    """Clients, brokers by id, the controller; those with nothing to show are left out."""
    ends = {lane for step in drawn for lane in (step.lane, step.sender, step.receiver) if lane is not None}
    brokers: list[Lane] = sorted(lane for lane in ends if isinstance(lane, int))
    return [
        *([CLIENTS] if CLIENTS in ends else []),
        *brokers,
        *([CONTROLLER] if CONTROLLER in ends or not ends else []),
    ]


def _is_alive(step: Step, lane: Lane) -> bool | None:
    """Whether a broker lives (True) or does not (False) from this step on; None: nothing changes."""
    if step.lane != lane:
        return None
    if step.event.get("kind") == "fault":
        action = step.event.get("action")
        return False if action in _DIES else True if action in _LIVES else None
    if step.event.get("kind") == "broker":
        state = step.event.get("state")
        return False if state == "stopped" else True if state == "starting" else None
    return None


def _lane_line(x: float, from_y: float, to_y: float, *, alive: bool) -> str:
    kind = "l" if alive else "d"
    return f'<line class="{kind}" x1="{x:.1f}" y1="{from_y:.1f}" x2="{x:.1f}" y2="{to_y:.1f}"/>'


def _bar(x: float, from_y: float, to_y: float, epoch: int) -> str:
    colour = _EPOCH_COLOURS[epoch % len(_EPOCH_COLOURS)]
    return (
        f'<rect x="{x - _BAR_PX / 2:.1f}" y="{from_y:.1f}" width="{_BAR_PX}" height="{max(4.0, to_y - from_y):.1f}" '
        f'fill="{colour}"><title>leader in epoch {epoch}</title></rect>'
    )


def _arrow(from_x: float, to_x: float, y: float, colour: str) -> str:
    back = 9 if from_x < to_x else -9
    tip = to_x - back / 2
    return (
        f'<line x1="{from_x:.1f}" y1="{y:.1f}" x2="{tip - back / 2:.1f}" y2="{y:.1f}" stroke="{colour}" '
        f'stroke-width="1.3"/><path d="M{tip:.1f} {y:.1f}l{-back} -4v8z" fill="{colour}"/>'
    )


def _words_at(x: float, y: float, colour: str, words: str) -> str:
    weight = ' font-weight="bold"' if colour == _COLOURS["fault"] else ""
    return f'<text class="w" x="{x:.1f}" y="{y - 5:.1f}" fill="{colour}"{weight}>{escape(words)}</text>'
