"""``delete-records`` (kafka-delete-records.sh; DeleteRecordsCommand): raise the log start offsets of partitions.

The file is Kafka's: ``{"partitions": [{"topic": "t", "partition": 0, "offset": 10}], "version": 1}``; offset -1 means
the high watermark. Kafka's lines on stdout; unlike Kafka's tool it fails (exit 1) when a partition did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import fail, print_json, print_text, reports_errors, verb_options
from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.cli.common import INT32_MAX, INT64_MAX, JSON, run, servers

EARLIEST_VERSION = 1
DELETE_TIMEOUT_MS = 30_000
_EXAMPLE = '{"partitions": [{"topic": "t", "partition": 0, "offset": 10}], "version": 1}'


@click.command("delete-records")
@click.option(
    "--offset-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help=f"The partitions, and the first offset to keep of each (-1: the high watermark): {_EXAMPLE}",
)
@verb_options
@reports_errors
def delete_records(offset_json_file: Path, bootstrap_server: str | None, directory: Path, output: str) -> None:
    """Delete the records below an offset, and wait until all live replicas have."""
    offsets = parse_offset_json(offset_json_file.read_bytes())
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> dict[TopicPartition, int | TidegaugeError]:
        async with Admin(bootstrap) as admin:
            return await admin.delete_records(offsets, timeout_ms=DELETE_TIMEOUT_MS)

    if output != JSON:
        print_text("Executing records delete operation")
    outcomes = run(work())
    failed = [one for one in outcomes.values() if isinstance(one, TidegaugeError)]
    if output == JSON:
        print_json({"partitions": [_entry(*item) for item in outcomes.items()]})
    else:
        print_text("Records delete operation completed:")
        for at, outcome in outcomes.items():
            text = f"error: {outcome}" if isinstance(outcome, TidegaugeError) else f"low_watermark: {outcome}"
            print_text(f"partition: {at}\t{text}")
    if failed:
        fail(f"The records of {len(failed)} partition(s) could not be deleted", output, code=failed[0].code)


def parse_offset_json(text: bytes) -> Mapping[TopicPartition, int]:
    """Read Kafka's offset file; anything wrong with it is a usage error.

    Raises:
        click.UsageError: it is not JSON, of another version, lacks a field, or names a partition twice.
    """
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise click.UsageError(f"The input string is not a valid JSON: {problem}") from None
    if not isinstance(document, dict):
        raise click.UsageError(f"The input string is not a valid JSON object; expected: {_EXAMPLE}")
    version = document.get("version", EARLIEST_VERSION)
    if version != EARLIEST_VERSION:
        raise click.UsageError(f"Not supported version field value {version}")
    if not isinstance(document.get("partitions"), list):
        raise click.UsageError(f"Missing partitions field; expected: {_EXAMPLE}")
    offsets: dict[TopicPartition, int] = {}
    twice: list[TopicPartition] = []
    for entry in document["partitions"]:
        at, offset = _parse_entry(entry)
        if at in offsets:
            twice.append(at)
        offsets[at] = offset
    if twice:
        raise click.UsageError(f"Offset json file contains duplicate topic partitions: {','.join(map(str, twice))}")
    return offsets


def _parse_entry(entry: Any) -> tuple[TopicPartition, int]:
    match entry:
        case {"topic": str(topic), "partition": int(partition), "offset": int(offset)} if (
            0 <= partition <= INT32_MAX and abs(offset) <= INT64_MAX
        ):
            return TopicPartition(topic, partition), offset
    raise click.UsageError(f"{json.dumps(entry)} does not name topic, partition and offset; expected: {_EXAMPLE}")


def _entry(at: TopicPartition, outcome: int | TidegaugeError) -> dict[str, Any]:
    entry: dict[str, Any] = {"topic": at.topic, "partition": at.partition, "low_watermark": None, "error": None}
    if isinstance(outcome, TidegaugeError):
        entry["error"] = {"code": int(outcome.code), "name": outcome.code.name, "message": outcome.message}
    else:
        entry["low_watermark"] = outcome
    return entry
