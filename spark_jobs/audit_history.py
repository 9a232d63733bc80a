"""The accountant at scale: producers' histories compared with the committed log, by Spark.

    python spark_jobs/audit_history.py --bootstrap-server 127.0.0.1:19092 --topic orders --history 'history/*.jsonl'

Contract: runs by ``python`` and by ``spark-submit``. Histories are those of ``tidegauge produce --history``; --complete
is meaningful only if every producer's history is given. Prints the findings by kind, topic and partition, with
examples; the last line of stdout is a JSON document with the same. Exit 0 when the books balance, 1 when they don't or
the job failed, 2 on usage. The meaning of the kinds, and what is not checked, is described in
``tidegauge_spark.audit_tables``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidegauge.counted import counted
from tidegauge_spark.audit_tables import MEANINGS, NOT_CHECKED, Audit, Bounds, audit
from tidegauge_spark.job_session import MASTER_HELP, run_report
from tidegauge_spark.offsets import EARLIEST, LATEST, to_json
from tidegauge_spark.options import Options, parse_options

SHOWN_BYTES = 60


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exit with 2 on a mistake."""
    parser = argparse.ArgumentParser(
        prog="audit_history.py", description="Compare producers' histories with the committed log."
    )
    add = parser.add_argument
    add("--bootstrap-server", "-b", required=True, metavar="HOST:PORT,...", help="bootstrap brokers")
    add("--topic", required=True, metavar="T,...", help="topics to audit")
    add("--history", required=True, action="append", metavar="PATH", help="history file, directory or glob; repeatable")
    add(
        "--complete",
        action="store_true",
        help="the histories hold every record that was written: a phantom is a violation",
    )
    add("--compacted", action="store_true", help="the topics are compacted: an older record of a key may be missing")
    add("--min-partitions", type=int, default=8, metavar="N", help="tasks that read the log (default: 8)")
    add("--master", metavar="URL", help=MASTER_HELP)
    return parser.parse_args(arguments)


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the data source's options, without offsets."""
    return {
        "kafka.bootstrap.servers": arguments.bootstrap_server,
        "subscribe": arguments.topic,
        "minPartitions": str(arguments.min_partitions),
    }


def bounds_of(options: Options) -> list[Bounds]:
    """Return each partition's begin and end, and what its leader holds above the high watermark.

    Raises:
        TidegaugeError: a topic does not exist, or no broker responds.
    """
    from tidegauge_spark.transport import client_for  # noqa: PLC0415  (gRPC; not for --help)

    client = client_for(options.connection)
    found = client.partitions(options.subscription, asks_all=True)
    starts = client.offsets(dict.fromkeys(found, EARLIEST))
    ends = client.offsets(dict.fromkeys(found, LATEST))
    # After the high watermarks: the records above them now have not been seen as committed.
    epochs = client.epoch_ends({one: client.leader_epoch(one) for one in found})
    bounds = []
    for one in sorted(found):
        end, epoch = ends[one] or 0, epochs[one]
        log_end = end if epoch is None else max(end, epoch.end_offset)
        bounds.append(Bounds(one.topic, one.partition, starts[one] or 0, end, log_end, client.leader(one)[2]))
    return bounds


def read_log(spark: Any, options: dict[str, str], bounds: Sequence[Bounds]) -> Any:
    """Return the committed log as it was when the bounds were taken."""
    from tidegauge.partition import TopicPartition  # noqa: PLC0415  (with what needs it)

    places = {TopicPartition(one.topic, one.partition): one for one in bounds}
    offsets = {
        "startingOffsets": json.dumps(to_json({one: place.log_start_offset for one, place in places.items()})),
        "endingOffsets": json.dumps(to_json({one: place.high_watermark for one, place in places.items()})),
    }
    return spark.read.format("tidegauge").options(**options, **offsets).load()


def shown(value: bytes | None) -> str:
    """Return a value in readable form."""
    if value is None:
        return "null"
    text = bytes(value).decode("utf-8", "backslashreplace")
    return text if len(text) <= SHOWN_BYTES else text[:SHOWN_BYTES] + "..."


def example_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return one finding."""
    what = f"record {row['number']} of producer {row['producer']}" if row["producer"] else "a record"
    place = f"{row['topic']}-{row['partition']} offset {row['offset']}"
    text = {
        "lost": f"{what} was acknowledged at {place}",
        "lost-tail": f"{what} was acknowledged at {place}, but the log ends before it",
        "misplaced": f"{what} was acknowledged at offset {row['other']}, but is at {place}",
        "reordered": f"{what} is at {place}, but one sent earlier is at offset {row['other']}",
        "reordered-in-real-time": f"{what} is at {place}, but one acknowledged earlier is at offset {row['other']}",
    }.get(row["kind"], f"{what} is at {place}")
    value = "" if row["value"] is None else f": {shown(row['value'])}"
    return {"partition": row["partition"], "topic": row["topic"], "offset": row["offset"], "message": text + value}


def report_of(found: Audit, topics: Sequence[str], partitions: int, *, is_complete: bool) -> dict[str, Any]:
    """Return the document, always with all keys."""
    counts = dict.fromkeys(MEANINGS, 0)
    for row in found.counts:
        counts[row["kind"]] += row["count"]
    findings = []
    for kind, count in counts.items():
        if count:
            rows = [row for row in found.counts if row["kind"] == kind]
            by_partition: dict[str, int] = {}
            by_acks: dict[str, int] = {}
            for row in rows:
                name = f"{row['topic']}-{row['partition']}"
                by_partition[name] = by_partition.get(name, 0) + row["count"]
                by_acks[row["acks"]] = by_acks.get(row["acks"], 0) + row["count"]
            findings.append(
                {
                    "kind": kind,
                    "meaning": MEANINGS[kind],
                    "violation": kind != "phantom" or is_complete,
                    "count": count,
                    "by_partition": by_partition,
                    "by_acks": by_acks,
                    "examples": [example_of(row) for row in found.examples if row["kind"] == kind],
                }
            )
    return {
        "topics": list(topics),
        "balanced": not any(finding["violation"] for finding in findings),
        "partitions": partitions,
        "records": found.records,
        "damaged_lines": found.damaged_lines,
        "acks": {row["acks"]: {name: value for name, value in row.items() if name != "acks"} for row in found.accounts},
        "counts": counts,
        "findings": findings,
        "not_checked": NOT_CHECKED + list(left_out(found)),
    }


def left_out(found: Audit) -> Iterator[str]:
    """Say which records of the histories were left out, and which may be of a deleted topic."""
    if found.of_others:
        yield (
            f"{counted(found.of_others, 'record')} of the histories: by the topic id of another topic of the same "
            "name, which was deleted or is another cluster's"
        )
    if found.without_topic_id:
        yield (
            f"of which topic {found.without_topic_id} records of the histories are: they carry no topic id, so they "
            "count; those of a topic that was deleted and created again would seem lost"
        )


def text_of(report: dict[str, Any]) -> str:
    """Return the report as text."""
    lines = [
        f"{counted(report['records'], 'record')} in {counted(report['partitions'], 'partition')} of "
        f"{', '.join(report['topics'])}"
    ]
    for level, account in report["acks"].items():
        lines.append(f"acks={level}: " + ", ".join(f"{name} {count}" for name, count in account.items()))
    for finding in report["findings"]:
        lines.append(f"{finding['kind']} {finding['count']}: {finding['meaning']}")
        lines += [f"    {name}: {count}" for name, count in finding["by_partition"].items()]
        lines += [f"        {example['message']}" for example in finding["examples"]]
    lines.append("The books balance." if report["balanced"] else "The books do not balance.")
    return "\n".join(lines)


def make_report(arguments: argparse.Namespace, start: Callable[[], Any]) -> dict[str, Any]:
    """Read both and compare.

    Raises:
        TidegaugeError: an option is wrong, a topic does not exist, or no broker responds.
        Exception: what Spark raises.
    """
    options = parse_options(source_options(arguments), streaming=False)
    bounds = bounds_of(options)
    spark = start()
    log = read_log(spark, source_options(arguments), bounds)
    topics = options.subscription.topics
    found = audit(spark, spark.read.text(arguments.history), log, bounds, topics, is_compacted=arguments.compacted)
    return report_of(found, topics, len(bounds), is_complete=arguments.complete)


def main(given: Sequence[str]) -> int:
    """Run the job; return the exit code."""
    arguments = parse_arguments(given)
    report = run_report("audit_history", arguments.master, lambda start: make_report(arguments, start), text_of)
    return 0 if report is not None and report["balanced"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
