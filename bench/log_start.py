"""How long a large log takes to start: after a clean stop, and after kill -9, by what lies behind its recovery point.

The log manager is opened as a broker opens it, in a process of its own, without ZooKeeper or network: the measured work
is reading, checking and indexing. The data may still be in the page cache, so this is the processor's share.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge.settings import parse_broker_settings, parse_topic_settings
from tidegauge_broker.log.manager import LogManager
from tidegauge_client.records import NewRecord, encode_batch

AT = TopicPartition("large", 0)
RECORD_BYTES = 1_000
BATCH_RECORDS = 1_000
CLEAN_ROUNDS = 3
BEHIND_MB = (64, 256, 1_024, 4_096)


def _open(directory: Path) -> LogManager:
    broker, _ = parse_broker_settings({"broker.id": "0"})
    return LogManager.open(
        [directory],
        broker_id=0,
        cluster_id="abcdefghijklmnopqrstuv",
        broker=broker,
        topic_values=lambda _: parse_topic_settings({}, broker),
        now_ms=lambda: int(time.time() * 1_000),
    )


def _append(manager: LogManager, size_bytes: int) -> None:
    log = manager.get_or_create(AT, "A" * 22, is_new=True)
    now_ms = int(time.time() * 1_000)
    batch = encode_batch([NewRecord(b"x" * RECORD_BYTES, None, now_ms, ())] * BATCH_RECORDS)
    header = read_header(batch)
    end = log.size_bytes + size_bytes
    while log.size_bytes < end:
        log.append_as_leader(batch, header._replace(base_offset=log.log_end_offset, leader_epoch=0))


def _started(directory: Path) -> float:
    """Seconds to open, in a process that has nothing in memory."""
    command = [sys.executable, __file__, "--open", str(directory)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(directory: Path, size_bytes: int) -> dict[str, float]:
    """Seconds by case."""
    manager = _open(directory)
    _append(manager, size_bytes)
    manager.close({}, clean=True)
    found: dict[str, float] = {}
    clean = sorted(_started(directory) for _ in range(CLEAN_ROUNDS))
    found[f"{size_bytes / 1e9:g} GB, after a clean stop"] = clean[len(clean) // 2]
    for behind_mb in BEHIND_MB:
        manager = _open(directory)
        _append(manager, behind_mb * 1_000_000)
        manager.close({}, clean=False)
        found[f"after kill -9, {behind_mb:,} MB behind the recovery point"] = _started(directory)
    return found


def main() -> None:
    """Measure, and print the table; or open one directory and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0, help="size of the log (default 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--open", type=Path, metavar="DIRECTORY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.open is not None:
        began = time.perf_counter()
        manager = _open(arguments.open)
        print(time.perf_counter() - began)
        manager.close({}, clean=True)
        return
    directory = Path(tempfile.mkdtemp(prefix="tidegauge-log-"))
    try:
        found = measure(directory / "data", int(arguments.gigabytes * 1e9))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print("| start of one log | s |\n|---|---|")
    print("\n".join(f"| {case} | {seconds:.2f} |" for case, seconds in found.items()))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
