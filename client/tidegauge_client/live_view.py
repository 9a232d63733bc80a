"""``describe-topic --watch`` on a terminal: topics and replicas on one screen of 80 columns. Pure.

Rules:
    1. A line for each partition, and under it, if requested, one for each replica in the order of the assignment. The
       last stable offset (LSO) has a column where a topic has a replica whose LSO differs from its HW.
    2. Unhealthy states are coloured: out of the ISR, behind, unknown, no leader. The words say it, too. The role
       ``kafka`` is for an Apache Kafka broker's replica, which can't be asked.
    3. A screen never scrolls: lines beyond its height are counted in its last one, and lines beyond its width are
       truncated. It is written over the previous one, line by line, so that nothing flickers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import click

from tidegauge.counted import counted
from tidegauge_client.metadata import PartitionInfo
from tidegauge_client.topic_description import ReplicaState, TopicDescription

WIDTH = 80
HOME = "\x1b[H"
END_OF_LINE = "\x1b[K"
END_OF_SCREEN = "\x1b[J"
_EPOCHS_WIDTH = 16
_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")


def view(topics: Sequence[tuple[TopicDescription, Sequence[PartitionInfo]]], *, replicas: bool) -> Iterator[str]:
    """Yield the lines for topics and their chosen partitions."""
    for topic, parts in topics:
        count = len(topic.info.partitions)
        yield click.style(f"{topic.info.name}  ({counted(count, 'partition')})", bold=True)
        if replicas and parts:
            stable = f"{'LSO':>9}" if _holds_readers(topic) else ""
            yield f"    {'BROKER':<8}{'ROLE':<9}{'ISR':<5}{'LOG START':>9}{'LEO':>9}{'HW':>9}{stable}{'LAG':>7}  EPOCHS"
        for part in parts:
            yield _partition(part)
            if replicas:
                states = topic.replicas.get(part.partition, ())
                leo = next((state.leo for state in states if state.role == "leader"), None)
                yield from (_replica(state, leo, with_lso=_holds_readers(topic)) for state in states)


def _holds_readers(topic: TopicDescription) -> bool:
    """Return whether a transaction keeps readers of committed records below a high watermark."""
    return any(state.lso not in {None, state.hw} for states in topic.replicas.values() for state in states)


def _partition(part: PartitionInfo) -> str:
    out = [broker for broker in part.replicas if broker not in part.isr]
    none = click.style("no leader", fg="red", bold=True)
    leader = none if part.leader_id is None else f"leader {part.leader_id}"
    osr = click.style(f"  OSR {_ids(out)}", fg="red") if out else ""
    members = f"ISR {_ids(part.isr)}{osr}  Replicas {_ids(part.replicas)}"
    return f"  {part.partition:<4} {leader}  epoch {part.leader_epoch}  {members}"


def _replica(state: ReplicaState, leader_leo: int | None, *, with_lso: bool) -> str:
    lag = None if leader_leo is None or state.leo is None else leader_leo - state.leo
    colour = None
    if not state.in_isr or state.shown_role in {"unknown", "offline"}:
        colour = "red"
    elif lag:
        colour = "yellow"
    elif state.role == "leader":
        colour = "green"
    stable = f"{_n(state.lso):>9}" if with_lso else ""
    numbers = f"{_n(state.log_start):>9}{_n(state.leo):>9}{_n(state.hw):>9}{stable}{_n(lag):>7}"
    in_isr = "yes" if state.in_isr else "no"
    text = f"    {state.broker:<8}{state.shown_role:<9}{in_isr:<5}{numbers}  {_epochs(state.epochs)}"
    return click.style(text.rstrip(), fg=colour)


def _epochs(epochs: Sequence[tuple[int, int]]) -> str:
    """Return the newest entries that fit; two points stand for older ones."""
    text = ""
    for epoch, start in reversed(epochs):
        longer = f"{epoch}@{start} {text}".rstrip()
        if len(longer) > _EPOCHS_WIDTH - len(".. "):
            return f".. {text}"
        text = longer
    return text or "-"


def _n(value: int | None) -> str:
    return "-" if value is None else str(value)


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "-"


def shortened(line: str, width: int) -> str:
    """Return the line's first columns, with two points for the rest."""
    if len(click.unstyle(line)) <= width:
        return line
    kept, room = "", width - len("..")
    for part in _STYLE.split(line):
        kept += part if _STYLE.fullmatch(part) else part[:room]
        room -= 0 if _STYLE.fullmatch(part) else min(room, len(part))
    return f"{kept}.."


def screen(lines: Sequence[str], height: int, width: int = WIDTH) -> str:
    """Return the output that shows exactly these lines on a terminal (rule 3)."""
    shown = list(lines)
    if len(shown) >= height:
        hidden = len(shown) - height + 2
        shown = [*shown[: height - 2], f"... {hidden} more lines; name topics, or filter partitions"]
    return HOME + "".join(f"{shortened(line, width)}{END_OF_LINE}\n" for line in shown) + END_OF_SCREEN
