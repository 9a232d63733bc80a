"""``tidegauge timeline``: what happened in the cluster in ``--dir``, over all brokers, in causal order.

Text has one line for each event, JSON the event as it was written (docs/events.md), one a line. ``--svg FILE`` draws
a sequence diagram instead, ``--html FILE`` writes a recording for a browser. ``-f`` goes on until Ctrl-C.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from tidegauge.cli import directory_option, output_option, pause, print_json, print_line, print_text, say
from tidegauge.counted import counted
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import KINDS, broker_of
from tidegauge.partition import TopicPartition
from tidegauge_client.cli.common import MomentType, PartitionType
from tidegauge_lab.cli.common import BrokerIdType
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.timeline.choice import Choice
from tidegauge_lab.timeline.drawing import MOST_ROWS, draw
from tidegauge_lab.timeline.reading import Timeline
from tidegauge_lab.timeline.words import line

LOOK_AGAIN_SECONDS = 0.2
MOST_NAMED = 10


class SomePartitionType(click.ParamType[tuple[str | None, int]]):
    """``T-P``, or a number for that partition of any topic."""

    name = "P|T-P"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str | None, int]:
        """Read it; a usage error if that fails."""
        if isinstance(value, tuple):
            return value
        if str(value).isdecimal():
            return None, int(value)
        try:
            at = TopicPartition.parse(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)
        return at.topic, at.partition

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the partitions that begin so, for Tab in the shell."""
        return PartitionType().shell_complete(ctx, param, incomplete)


@click.command()
@click.argument("about", nargs=-1, type=SomePartitionType(), metavar="[T-P]...")
@click.option("--topic", "topics", multiple=True, metavar="T", help="Only this topic's; may be repeated.")
@click.option(
    "--partition", "partitions", multiple=True, type=SomePartitionType(), help="Only this partition's; may be repeated."
)
@click.option(
    "--broker", "brokers", multiple=True, type=BrokerIdType(), metavar="ID", help="Only this broker's; may be repeated."
)
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(sorted(KINDS)), help="Only this kind of event; may be repeated."
)
@click.option("--since", type=MomentType(), help="From then on: 30s (ago), 12:30:15, ISO, or ms since 1970.")
@click.option("--until", type=MomentType(), help="Up to then.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Draw a sequence diagram into this file.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the run as one page for a browser that shows the cluster at any moment; takes --since and --until.",
)
@directory_option
@output_option
@lab_verb
def timeline(
    about: Sequence[tuple[str | None, int]],
    topics: Sequence[str],
    partitions: Sequence[tuple[str | None, int]],
    brokers: Sequence[int],
    kinds: Sequence[str],
    since: int | None,
    until: int | None,
    follow: bool,
    svg: Path | None,
    html: Path | None,
    directory: Path,
    output: str,
) -> None:
    """Show what happened on all brokers, in causal order; with T-P of these partitions, as --partition.

    Events of no partition that may be causes pass, too: of brokers, sessions, the controller, the lab.
    """
    partitions = [*about, *partitions]
    if (svg is not None or html is not None) and follow:
        raise click.UsageError("--svg and --html show the past; they can't follow")
    if html is not None and (svg is not None or topics or partitions or brokers or kinds):
        raise click.UsageError("--html needs all events, and has no other output: only --since and --until go with it")
    choice = Choice(frozenset(topics), frozenset(partitions), frozenset(brokers), frozenset(kinds), since, until)
    with closing(Timeline(LocalCluster(directory).logs)) as source:
        if svg is not None:
            _draw(source, choice, svg, directory, output)
            return
        if html is not None:
            _record(source, choice, html, directory, output)
            return
        if not follow:
            events = list(source.written())
            _require_known(choice, events, directory)
            _show(events, choice, output)
        while follow:
            _show(source.settled(time.monotonic()), choice, output)
            pause(LOOK_AGAIN_SECONDS)


def _require_known(choice: Choice, events: Sequence[Mapping[str, Any]], directory: Path) -> None:
    """Refuse a topic or a partition that no event names, and a broker that the cluster does not have.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, BROKER_NOT_AVAILABLE.
    """
    partitions = {
        (str(event["topic"]), int(event["partition"]))
        for event in events
        if event.get("topic") and event.get("partition") is not None
    }
    topics = sorted({str(event["topic"]) for event in events if event.get("topic")})
    for topic in sorted(choice.topics):
        if topic not in topics:
            raise _unnamed(f"topic {topic}", topics, "topic")
    for of_topic, partition in sorted(choice.partitions, key=str):
        if of_topic is None:
            if partition not in {one for _, one in partitions}:
                numbers = [str(one) for one in sorted({one for _, one in partitions})]
                raise _unnamed(f"partition {partition} of any topic", numbers, "partition")
        elif (of_topic, partition) not in partitions:
            named = [str(TopicPartition(*one)) for one in sorted(partitions)]
            same_topic = [str(TopicPartition(*one)) for one in sorted(partitions) if one[0] == of_topic]
            raise _unnamed(f"partition {of_topic}-{partition}", same_topic or named, "partition")
    brokers = {one.id for one in LocalCluster(directory).file.brokers}
    brokers |= {one for event in events if (one := broker_of(event)) is not None}
    for broker in sorted(choice.brokers - brokers):
        having = ", ".join(map(str, sorted(brokers)))
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster has no broker {broker}; its brokers are {having}"
        )


def _unnamed(what: str, seen: Sequence[str], kind: str) -> TidegaugeError:
    """Return the error for a name in no event; it lists known names."""
    more = ", ..." if len(seen) > MOST_NAMED else ""
    known = f"there are events of {', '.join(seen[:MOST_NAMED])}{more}" if seen else f"there are none of any {kind}"
    return TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no event names the {what}; {known}")


def _show(events: Iterable[dict[str, Any]], choice: Choice, output: str) -> None:
    for event in events:
        if not choice.wants(event):
            continue
        if output == "json":
            print_json(event)
        else:
            print_line(line(event))


def _draw(source: Timeline, choice: Choice, svg: Path, directory: Path, output: str) -> None:
    events = list(source.written())
    _require_known(choice, events, directory)
    drawing = draw(events, choice)
    _write(svg, drawing.svg)
    if drawing.left_out:
        say(
            f"Only the last {MOST_ROWS} of {drawing.rows + drawing.left_out} rows are drawn; narrow it with --since, "
            "--partition or --kind"
        )
    if output == "json":
        print_json({"file": str(svg), "events": drawing.events, "drawn": drawing.rows, "left_out": drawing.left_out})
    elif drawing.rows + drawing.left_out < drawing.events:
        print_text(
            f"{counted(drawing.events, 'event')} drawn to {svg} in {counted(drawing.rows, 'row')}: "
            "runs of LEO and HW share a row"
        )
    else:
        print_text(f"{counted(drawing.rows, 'event')} drawn to {svg}")


def _record(source: Timeline, choice: Choice, html: Path, directory: Path, output: str) -> None:
    """Write the recording of a run."""
    from tidegauge.faults.schema import vocabulary  # noqa: PLC0415 - only a recording pays for it
    from tidegauge_lab.watch.history import history_of  # noqa: PLC0415 - the same
    from tidegauge_lab.watch.recording import recording_of  # noqa: PLC0415 - the same

    recorded = history_of(source.written(), since_ms=choice.since_ms, until_ms=choice.until_ms).recorded()
    if not recorded.steps:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "there are no events to record; narrow it less, or `up` first")
    _write(html, recording_of(recorded, str(directory.absolute()), vocabulary()))
    left_out = recorded.steps[0]["number"] - 1
    if left_out and choice.since_ms is None:
        say(f"The last {len(recorded.steps)} events are steps; the first moment is after {left_out} others")
    if output == "json":
        print_json({"file": str(html), "events": len(recorded.steps), "left_out": left_out})
    else:
        print_text(f"{counted(len(recorded.steps), 'event')} recorded to {html}: open it in a browser")


def _write(path: Path, text: str) -> None:
    """Write a file.

    Raises:
        TidegaugeError: INVALID_REQUEST, it can't be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{path} can't be written: {problem.strerror}") from None
