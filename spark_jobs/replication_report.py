"""Report how a cluster replicated, from its brokers' event logs: time under min ISR, lag, leaderless time, elections.

    python spark_jobs/replication_report.py --events tidegauge-data/logs --output report

Contract: runs by ``python`` and by ``spark-submit``. --events is a directory with ``*.events.jsonl``, such as a
cluster's ``logs``. Prints tables; the last line of stdout is a JSON document with the same figures. With --output they
are written there as ``report.json``, and as charts: PNG if matplotlib is installed, else SVG. The figures are described
in ``tidegauge_spark.replication_tables``; ``tidegauge report`` has the same ones without Spark. Exit 0, 1 on failure,
2 on usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegauge.replication_report import elections_of, text_of
from tidegauge_spark.charts import can_draw_png, draw
from tidegauge_spark.job_session import MASTER_HELP, run_report
from tidegauge_spark.replication_tables import hw_lag_of, replication_tables

FILES = "*.events.jsonl*"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exit with 2 on a mistake."""
    parser = argparse.ArgumentParser(
        prog="replication_report.py", description="Report how a cluster replicated, from its brokers' event logs."
    )
    add = parser.add_argument
    add("--events", required=True, metavar="DIR", help=f"directory with {FILES}, for example tidegauge-data/logs")
    add("--topic", default="", metavar="T,...", help="only these topics")
    add(
        "--min-insync-replicas",
        type=int,
        default=2,
        metavar="N",
        help="min.insync.replicas to compare with (default: 2)",
    )
    add("--output", type=Path, metavar="DIR", help="directory for report.json and the charts")
    add("--master", metavar="URL", help=MASTER_HELP)
    return parser.parse_args(arguments)


def report_of(tables: Mapping[str, Any], min_isr: int) -> dict[str, Any]:
    """Return the document, always with all keys."""
    return {
        "events": tables["span"]["events"],
        "from_ms": tables["span"]["first_ms"],
        "to_ms": tables["span"]["last_ms"],
        "min_insync_replicas": min_isr,
        "partitions": [
            {
                "topic": row["topic"],
                "partition": row["partition"],
                "leader_changes": row["leader_changes"],
                "leaderless_ms": row["leaderless_ms"],
                "under_min_isr_ms": row["under_min_isr_ms"],
                "smallest_isr": row["smallest_isr"],
                "hw_lag": hw_lag_of(row),
            }
            for row in tables["partitions"]
        ],
        "elections": elections_of((row["broker"], row["strategy"], row["elections"]) for row in tables["elections"]),
        "truncations": tables["truncations"],
    }


def charts_of(report: Mapping[str, Any], directory: Path) -> list[Path]:
    """Draw the figures."""
    places = {f"{one['topic']}-{one['partition']}": one for one in report["partitions"]}
    p99 = {name: float(one["hw_lag"]["p99"]) for name, one in places.items() if one["hw_lag"] is not None}
    elections = {f"broker {one['broker']}": float(one["elections"]) for one in report["elections"]}
    leaderless = {name: float(one["leaderless_ms"]) for name, one in places.items()}
    under = {name: float(one["under_min_isr_ms"]) for name, one in places.items()}
    return [
        draw(directory, "elections", "Elections per broker", "count", elections),
        draw(directory, "leaderless", "Leaderless time", "ms", leaderless),
        draw(directory, "under-min-isr", "Time under min ISR", "ms", under),
        draw(directory, "hw-lag-p99", "High-watermark lag, 99th percentile", "records", p99),
    ]


def make_report(arguments: argparse.Namespace, start: Callable[[], Any]) -> dict[str, Any]:
    """Read the events, and write report and charts if a directory is given.

    Raises:
        ValueError: there are no events.
        Exception: what Spark raises.
    """
    spark = start()
    lines = spark.read.text(f"{arguments.events}/{FILES}")
    topics = [one.strip() for one in arguments.topic.split(",") if one.strip()]
    tables = replication_tables(spark, lines, arguments.min_insync_replicas, topics)
    if not tables["span"]["events"]:
        raise ValueError(f"{arguments.events} holds no events")
    report = report_of(tables, arguments.min_insync_replicas)
    report["files"] = []
    if arguments.output is not None:
        arguments.output.mkdir(parents=True, exist_ok=True)
        if not can_draw_png():
            print("matplotlib is not installed: charts are SVG", file=sys.stderr)
        report["files"] = [str(file) for file in charts_of(report, arguments.output)]
        (arguments.output / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def main(given: Sequence[str]) -> int:
    """Run the job; return the exit code."""
    arguments = parse_arguments(given)
    report = run_report("replication_report", arguments.master, lambda start: make_report(arguments, start), text_of)
    return 0 if report is not None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
