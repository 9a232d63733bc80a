"""Evidence in the report of a test that failed: the topics as they are, and the last events of the cluster.

Collecting it never raises and never takes long: a test's own failure must stay the first thing to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any

from tidegauge.cluster_directory import command_for
from tidegauge.event_log import read_directory
from tidegauge_lab.pytest_plugin.cluster import Cluster
from tidegauge_lab.switches import BrokerSwitches
from tidegauge_lab.timeline.words import line

MOST_EVENTS = 40
MOST_TOPICS = 5


def sections(cluster: Cluster, since_ms: int) -> list[tuple[str, str]]:
    """Titles and texts for a report; events since a time in ms since 1970."""
    topics = list(cluster.topics_of_test)[-MOST_TOPICS:]
    appendices: list[tuple[str, Callable[[], str]]] = [
        ("tidegauge: the cluster", lambda: cluster_lines(cluster)),
        ("tidegauge: topics", lambda: cluster.describe_text(topics) if topics else "none were made in this test"),
        (
            f"tidegauge: the last {MOST_EVENTS} events of this test",
            lambda: "\n".join(event_lines(read_directory(cluster.local.logs), since_ms, topics)),
        ),
    ]
    found = []
    for title, collect in appendices:
        try:
            text = collect()
        except Exception as problem:  # noqa: BLE001 - the report is worth more than its appendix
            text = f"could not be collected: {problem}"
        found.append((title, text))
    return found


def cluster_lines(cluster: Cluster) -> str:
    """Return the cluster's directory, its brokers that are up, and their active faults."""
    local = cluster.local
    lines = [f"broker {broker.id} {broker.address} {local.state_of(broker.id).value}" for broker in local.file.brokers]
    as_page = command_for(local.directory, "timeline --html run.html")
    where = [
        f"directory {local.directory}",
        f"logs, which stay after the session: {local.logs}",
        f"the run as a page for a browser, also later: {as_page}",
    ]
    return "\n".join([*where, *lines, *fault_lines(cluster.faults())])


def fault_lines(switches: Iterable[BrokerSwitches]) -> list[str]:
    """Return a line for each fault in force."""
    return [
        words
        for broker in switches
        for words in (
            *(f"broker {broker.broker_id}: {fault.text} (met {fault.met})" for fault in broker.faults),
            *(f"broker {broker.broker_id}: fetches of {at} are held" for at in broker.held),
        )
    ]


def event_lines(events: Iterable[Mapping[str, Any]], since_ms: int, topics: Sequence[str]) -> list[str]:
    """Return the last events since a time, as lines of `tidegauge timeline`."""
    kept = [
        event
        for event in events
        if event.get("time_ms", 0) >= since_ms and (not topics or event.get("topic") in {None, *topics})
    ]
    return [line(event, UTC) for event in kept[-MOST_EVENTS:]]
