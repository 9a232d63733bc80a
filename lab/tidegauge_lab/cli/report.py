"""``tidegauge report``: how the cluster in ``--dir`` replicated, by its brokers' event logs.

Leader changes, leaderless time, time under min ISR and high-watermark lag of each partition, elections of each broker.
``spark_jobs/replication_report.py`` has the same figures, of logs of any size, and charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from tidegauge.cli import directory_option, output_option, print_json, print_text
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.replication_report import text_of
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.replication_figures import figures_of
from tidegauge_lab.timeline.reading import Timeline


@click.command()
@click.option("--topic", "topics", multiple=True, metavar="T", help="Only this topic; may be repeated.")
@click.option(
    "--min-insync-replicas",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    metavar="N",
    help="min.insync.replicas to compare with.",
)
@directory_option
@output_option
@lab_verb
def report(topics: Sequence[str], min_insync_replicas: int, directory: Path, output: str) -> None:
    """Report leader changes, time without a leader or under min ISR, and high-watermark lag, by the event logs."""
    with closing(Timeline(LocalCluster(directory).logs)) as source:
        events = list(source.written())
    named = {str(one["topic"]) for one in events if one.get("topic")}
    if missing := sorted(set(topics) - named):
        having = ", ".join(sorted(named)) or "none"
        text = f"the event logs name no topic {missing[0]}; topics that they name: {having}"
        raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    figures = figures_of(events, min_insync_replicas, frozenset(topics))
    if output == "json":
        print_json(figures)
    else:
        print_text(text_of(figures))
