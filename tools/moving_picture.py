"""Draws the events of a run as a moving picture: a row for each replica, its log as cells, its high watermark. Pure.

The SVG moves by CSS alone, so it moves in an ``<img>`` too; it has no script, no font and no file from elsewhere.
A reader who asked for less motion, or whose viewer shows none, sees its last moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

Event = dict[str, Any]

WIDTH, HEIGHT = 960, 436
LOG_X, CELL, CELL_HEIGHT = 218, 54, 44
ROW_Y, ROW_HEIGHT = 66, 84
SECONDS_TO_LOOK, SECONDS_PER_WORD = 1.0, 0.14
"""How long a new sentence is shown at least before anything else happens."""
SHORTEST_SECONDS, LONGEST_SECONDS = 0.12, 0.6
LAST_SECONDS = 4.0
RAMP_SECONDS = 0.15

SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>A failover, drawn from the events of a real run</title>
<style>
text {{ font: 17px ui-sans-serif, system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #e6edf3 }}
.c {{ font: bold 18px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #7ee787 }}
.b {{ font-weight: bold }}
.m {{ fill: #a9b6c3 }}
.d {{ fill: #ff8d85; font-weight: bold }}
.l {{ fill: #ffd33d; font-weight: bold }}
.o {{ font-size: 15px; text-anchor: middle; fill: #fff }}
.e {{ text-anchor: end }}
.e0 {{ fill: #2563eb }} .e1 {{ fill: #b45309 }} .e2 {{ fill: #7c3aed }}
.u {{ fill-opacity: .25; stroke: #a9b6c3; stroke-dasharray: 4 3 }}
.x {{ stroke: #ff8d85; stroke-width: 4 }}
.w {{ stroke: #56d4dd; stroke-width: 4 }}
.k {{ fill: #56d4dd; font: bold 13px ui-sans-serif, system-ui, sans-serif; text-anchor: middle }}
{still}
@media (prefers-reduced-motion:no-preference){{
{motion}
}}
</style>
<rect width="{width}" height="{height}" rx="10" fill="#0d1117"/>
{panels}
{elements}
</svg>
"""


@dataclass(frozen=True)
class Replica:
    """The drawn state of a replica: the epoch of each record, its high watermark, and what it does."""

    epochs: tuple[int, ...] = ()
    high_watermark: int = 0
    role: str = "follower"
    is_alive: bool = True
    is_held: bool = False
    starts: tuple[tuple[int, int], ...] = ()
    """The epoch cache: epoch and start offset."""
    truncated: int = 0
    """How many records a truncation has just removed."""


@dataclass(frozen=True)
class Moment:
    """The picture's state between two events."""

    replicas: dict[int, Replica]
    isr: tuple[int, ...] = ()
    leader: int | None = None
    leader_epoch: int = 0
    command: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Command:
    """A command of the run: when it began (logical time, us), its words, and the sentence below them."""

    began_us: int
    words: str
    caption: str


@dataclass
class Film:
    """The moments of a run, each with its length in seconds."""

    moments: list[tuple[float, Moment]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Return how long it takes."""
        return sum(seconds for seconds, _ in self.moments)


def after(moment: Moment, event: Event) -> Moment:
    """Return the moment after an event; one that shows nothing changes nothing."""
    if event["kind"] in {"election", "isr"}:
        return _decided(moment, event)
    broker = _broker_of(event)
    if broker is None or broker not in moment.replicas:
        return moment
    changed = _changed(replace(moment.replicas[broker], truncated=0), event)
    return replace(moment, replicas={**moment.replicas, broker: changed})


def _broker_of(event: Event) -> int | None:
    if event["kind"] == "fault":
        return event["broker"]
    name, _, number = event["source"].partition("-")
    return int(number) if name == "broker" else None


def _decided(moment: Moment, event: Event) -> Moment:
    if event["kind"] == "isr":
        return replace(moment, isr=tuple(event["new"])) if event["state"] == "committed" else moment
    return replace(moment, isr=tuple(event["isr"]), leader=event["leader"], leader_epoch=event["leader_epoch"])


def _changed(one: Replica, event: Event) -> Replica:
    match event["kind"]:
        case "role":
            return replace(one, role=event["role"])
        case "epoch":
            return replace(one, starts=(*one.starts, (event["leader_epoch"], event["start_offset"])))
        case "high_watermark":
            return replace(one, high_watermark=event["new"])
        case "log_end_offset":
            added = [
                max(epoch for epoch, start in one.starts if start <= at) for at in range(event["old"], event["new"])
            ]
            return replace(one, epochs=(*one.epochs, *added))
        case "truncation":
            kept = event["new"]
            return replace(one, epochs=one.epochs[:kept], truncated=event["old"] - kept)
        case "fault":
            return _broken(one, event["action"])
        case "broker" if event["state"] == "registered":
            return replace(one, is_alive=True)
    return one


def _broken(one: Replica, action: str) -> Replica:
    match action:
        case "kill":
            return replace(one, is_alive=False)
        case "hold-fetch" | "release-fetch":
            return replace(one, is_held=action == "hold-fetch")
    return one


def said(before: Moment, event: Event, killed_us: int | None) -> str | None:
    """Return the sentence for an event that replaces its command's, if any."""
    match event["kind"]:
        case "election" if event["leader_epoch"] > before.leader_epoch and killed_us is not None:
            waited = (event["logical_time"] - killed_us) / 1e6
            begins = len(before.replicas[event["leader"]].epochs)
            new = f"broker {event['leader']} leads, epoch {event['leader_epoch']}"
            return f"{waited:.1f} s later: {new} begins at offset {begins}."
        case "truncation":
            count = event["old"] - event["new"]
            return f"It truncates its log from {event['old']} to {event['new']}: {count} acknowledged records are lost."
        case "isr" if event["state"] == "committed" and len(event["new"]) == len(before.replicas) > len(before.isr) > 0:
            return "In sync again. With acks=all the lost records would not have been acknowledged."
    return None


def film(events: Iterable[Event], commands: Sequence[Command], brokers: Sequence[int]) -> Film:
    """Return the moments of a run, with long pauses shortened and time to read."""
    moment = Moment({broker: Replica() for broker in brokers})
    rest = list(commands)
    shown = Film()
    killed_us: int | None = None
    last_us = 0
    for event in events:
        now_us = event["logical_time"]
        while rest and rest[0].began_us <= now_us:
            command = rest.pop(0)
            moment = replace(moment, command=command.words, caption=command.caption)
            shown.moments.append((_reading_seconds(command.caption), moment))
            last_us = now_us
        if event.get("action") == "kill":
            killed_us = now_us
        sentence = said(moment, event, killed_us)
        changed = after(moment, event)
        if sentence is not None:
            changed = replace(changed, caption=sentence)
        if changed == moment or not commands or now_us < commands[0].began_us:
            moment = changed
            continue
        if shown.moments:
            _lengthen(shown, (now_us - last_us) / 1e6)
        shown.moments.append((_reading_seconds(sentence) if sentence else SHORTEST_SECONDS, changed))
        moment, last_us = changed, now_us
    shown.moments[-1] = (LAST_SECONDS, shown.moments[-1][1])
    return shown


def _reading_seconds(sentence: str) -> float:
    return SECONDS_TO_LOOK + SECONDS_PER_WORD * len(sentence.split())


def _lengthen(shown: Film, pause_seconds: float) -> None:
    seconds, moment = shown.moments[-1]
    shown.moments[-1] = (max(seconds, min(pause_seconds, LONGEST_SECONDS)), moment)


def elements(moment: Moment) -> Iterator[str]:
    """Return what a moment shows, but for the marks of high watermarks."""
    isr = ",".join(map(str, moment.isr))
    yield f'<text x="930" y="42" class="e">leader epoch {moment.leader_epoch} · in sync: {isr}</text>'
    for row, (broker, one) in enumerate(moment.replicas.items()):
        yield from _row(ROW_Y + row * ROW_HEIGHT, one, is_leader=moment.leader == broker)
    bottom = ROW_Y + len(moment.replicas) * ROW_HEIGHT
    yield f'<text x="30" y="{bottom + 44}" class="c">$ {escape(moment.command)}</text>'
    for number, line in enumerate(_wrapped(moment.caption, 108)):
        yield f'<text x="30" y="{bottom + 74 + 25 * number}">{escape(line)}</text>'


def _row(y: int, one: Replica, *, is_leader: bool) -> Iterator[str]:
    role, style = ("leader", "l") if is_leader else ("follower", "m")
    if one.is_held and not is_leader:
        role = "follower, held"
    if not one.is_alive:
        role, style = "killed", "d"
    yield f'<text x="46" y="{y + 48}" class="{style}">{role}</text>'
    for offset, epoch in enumerate(one.epochs):
        x = LOG_X + offset * CELL
        uncommitted = "" if offset < one.high_watermark else " u"
        dim = "" if one.is_alive else ' opacity=".45"'
        yield (
            f'<g{dim}><rect x="{x}" y="{y + 14}" width="{CELL - 4}" height="{CELL_HEIGHT}" rx="4"'
            f' class="e{epoch}{uncommitted}"/><text x="{x + CELL // 2 - 2}" y="{y + 41}" class="o">{offset}</text></g>'
        )
    for offset in range(len(one.epochs), len(one.epochs) + one.truncated):
        x, top = LOG_X + offset * CELL + 8, y + 20
        cross = f"M{x} {top}l{CELL - 20} {CELL_HEIGHT - 12}m0 -{CELL_HEIGHT - 12}l-{CELL - 20} {CELL_HEIGHT - 12}"
        yield f'<path d="{cross}" class="x"/>'
    yield f'<text x="930" y="{y + 30}" class="e">LEO {len(one.epochs)}</text>'
    yield f'<text x="930" y="{y + 54}" class="e" style="fill:#56d4dd">HW {one.high_watermark}</text>'


def _wrapped(text: str, columns: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > columns:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def svg(shown: Film) -> str:
    """Return the picture; it begins again after its last moment."""
    spans, at = [], 0.0
    for seconds, moment in shown.moments:
        spans.append((at, at + seconds, moment))
        at += seconds
    times: dict[str, list[tuple[float, float]]] = {}
    for begin, end, moment in spans:
        for element in elements(moment):
            known = times.setdefault(element, [])
            if known and known[-1][1] == begin:
                known[-1] = (known[-1][0], end)
            else:
                known.append((begin, end))
    names: dict[tuple[tuple[float, float], ...], str] = {}
    still, motion, body = [], [], []
    for element, when in times.items():
        name = names.setdefault(tuple(when), f"t{len(names)}")
        body.append(f'<g class="{name}">{element}</g>')
    for when, name in names.items():
        if when[-1][1] < at:
            still.append(f".{name}")
        if when != ((0.0, at),):
            motion += _visibility(name, when, at)
    brokers = list(shown.moments[0][1].replicas)
    for row, broker in enumerate(brokers):
        marks = [(begin, moment.replicas[broker].high_watermark) for begin, _, moment in spans]
        body.append(_mark(broker, ROW_Y + row * ROW_HEIGHT, marks[-1][1]))
        motion += _moves(broker, marks, at)
    return SVG.format(
        width=WIDTH,
        height=HEIGHT,
        still=f"{','.join(still)}{{opacity:0}}",
        motion="\n".join(motion),
        panels="\n".join(_panels(brokers)),
        elements="\n".join(body),
    )


def _panels(brokers: Sequence[int]) -> Iterator[str]:
    yield '<text x="30" y="42" class="b">What acks=1 can lose in a failover</text>'
    for row, broker in enumerate(brokers):
        y = ROW_Y + row * ROW_HEIGHT
        yield f'<rect x="20" y="{y}" width="{WIDTH - 40}" height="{ROW_HEIGHT - 10}" rx="8" fill="#1c2430"/>'
        yield f'<text x="46" y="{y + 26}" class="b">Broker {broker}</text>'


def _mark(broker: int, y: int, high_watermark: int) -> str:
    x = LOG_X - 3
    return (
        f'<g id="w{broker}" transform="translate({high_watermark * CELL} 0)">'
        f'<path d="M{x} {y + 4}v64" class="w"/><text x="{x + 16}" y="{y + 12}" class="k">HW</text></g>'
    )


def _percent(at_seconds: float, of_seconds: float) -> str:
    return f"{100 * at_seconds / of_seconds:.2f}%"


def _visibility(name: str, when: Iterable[tuple[float, float]], of_seconds: float) -> list[str]:
    frames = []
    for begin, end in when:
        if begin > 0:
            frames.append(f"{_percent(begin, of_seconds)}{{opacity:0}}")
        frames.append(f"{_percent(min(begin + RAMP_SECONDS, end) if begin else 0, of_seconds)}{{opacity:1}}")
        frames.append(f"{_percent(end, of_seconds)}{{opacity:1}}")
        if end < of_seconds:
            frames.append(f"{_percent(end + 0.01, of_seconds)}{{opacity:0}}")
    first, last = next(iter(when))[0], list(when)[-1][1]
    edges = ("0%{opacity:0}" if first > 0 else "") + ("100%{opacity:0}" if last < of_seconds else "")
    return [
        f"@keyframes {name}{{{edges}{''.join(frames)}}}",
        f".{name}{{animation:{name} {of_seconds:.2f}s linear infinite}}",
    ]


def _moves(broker: int, marks: Sequence[tuple[float, int]], of_seconds: float) -> list[str]:
    frames, last = [f"0%{{transform:translate({marks[0][1] * CELL}px,0)}}"], marks[0][1]
    for begin, high_watermark in marks:
        if high_watermark != last:
            frames.append(f"{_percent(begin, of_seconds)}{{transform:translate({last * CELL}px,0)}}")
            end = _percent(begin + RAMP_SECONDS, of_seconds)
            frames.append(f"{end}{{transform:translate({high_watermark * CELL}px,0)}}")
            last = high_watermark
    frames.append(f"100%{{transform:translate({last * CELL}px,0)}}")
    return [
        f"@keyframes w{broker}{{{''.join(frames)}}}",
        f"#w{broker}{{animation:w{broker} {of_seconds:.2f}s linear infinite}}",
    ]
