"""A process that writes a log is killed (SIGKILL), wherever it happens to be: appending, rolling, truncating,
syncing, writing checkpoints, compacting. Its files must have all that it had reported, or one step more.

The process is this very file, run as a program: it does the steps that a seed gives and reports each when it is done.
The test does the same steps in its head. Unit tests stop before every single change of a file instead
(``tests/unit/log/test_crash_steps.py``); here the operating system has the say.
"""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge.settings import parse_broker_settings, parse_topic_settings
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.log.partition_log import PartitionLog

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

AT = TopicPartition("orders", 0)
KEYS = 4
Record = tuple[int, int]
"""Offset, and the number of the step that wrote it; its key is the offset's remainder."""


def open_manager(directory: Path, *, compact: bool) -> LogManager:
    """Segments of a few batches, so that much is rolled; with compaction all is always dirty enough."""
    given = {"log.segment.bytes": "1200", "log.index.interval.bytes": "100", "log.segment.delete.delay.ms": "0"}
    given |= {"log.cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": "0"} if compact else {}
    broker, _ = parse_broker_settings(given)
    return LogManager.open(
        [directory],
        broker_id=1,
        cluster_id="abcdefghijklmnopqrstuv",
        broker=broker,
        topic_values=lambda _topic: parse_topic_settings({}, broker),
        now_ms=lambda: int(time.time() * 1000),
    )


def steps(seed: int, *, compact: bool) -> Iterator[tuple[str, int]]:
    """Yield the steps of the process, for ever: appends mostly."""
    dice = random.Random(seed)
    while True:
        name = dice.choices(["append", "cut", "flush", "checkpoint", "clean"], [20, 0 if compact else 3, 2, 2, 2])[0]
        yield name, dice.randrange(1, 6)


def reported_by(records: list[Record], number: int, step: tuple[str, int]) -> list[Record]:
    """The records after a step. Compaction is not followed: what must stay is looked at in the end."""
    name, count = step
    end = records[-1][0] + 1 if records else 0
    if name == "append":
        return records + [(end + index, number) for index in range(count)]
    return records[: -2 * count] if name == "cut" else records


def make_batch(first: int, count: int, number: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    for index in range(count):
        builder.append(index, 1_700_000_000_000, b"%d" % ((first + index) % KEYS), b"%d" % number, [])
    return bytes(builder.build())


def do(manager: LogManager, log: PartitionLog, number: int, step: tuple[str, int]) -> None:
    """One step on the real log; a truncation goes record by record of the twin, so batches hold one record each."""
    name, count = step
    end = log.log_end_offset
    match name:
        case "append":
            for index in range(count):
                data = make_batch(end + index, 1, number)
                log.append_as_leader(data, read_header(data)._replace(base_offset=end + index, leader_epoch=0))
        case "cut":
            log.truncate_to(max(log.log_start_offset, end - 2 * count))
        case "flush":
            manager.flush_dirty()
        case "checkpoint":
            manager.write_recovery_points()
            manager.note_high_watermarks({AT: end})
            manager.write_high_watermarks()
        case "clean":
            cleaning = manager.compaction.next_to_clean({AT: end})
            for group in [] if cleaning is None else cleaning.map_keys():
                assert cleaning is not None
                cleaning.replace(group, cleaning.write(group))
            if cleaning is not None:
                manager.compaction.note_cleaned(cleaning)
            manager.remove_deleted()


def held(log: PartitionLog) -> list[Record]:
    found: list[Record] = []
    for segment in log.segments:
        for spot in segment.spots(0):
            found += [(one.offset, int(one.value or b"-1")) for one in decode_records(segment.batch_bytes(spot))]
    return found


def killed(directory: Path, seed: int, at_least: int, *, compact: bool) -> list[list[Record]]:
    """Let the process run, kill it after so many steps or a little more; the records after each step it may be in."""
    command = [sys.executable, __file__, str(directory), str(seed), str(int(compact))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reported = sum(1 for _ in itertools.islice(process.stdout, at_least))
        process.send_signal(signal.SIGKILL)
        reported += sum(1 for line in process.stdout if line.endswith("\n"))
    assert process.returncode == -signal.SIGKILL
    records: list[Record] = []
    history = [records]
    for number, step in enumerate(itertools.islice(steps(seed, compact=compact), reported + 1)):
        records = reported_by(records, number, step)
        history.append(records)
    return history[-2:]


def newest_of_each_key(records: list[Record]) -> dict[int, Record]:
    return {record[0] % KEYS: record for record in records}


def check(directory: Path, seed: int, at_least: int, *, compact: bool) -> None:
    before, after = killed(directory, seed, at_least, compact=compact)
    longer, shorter = sorted((before, after), key=len, reverse=True)
    manager = open_manager(directory, compact=compact)
    log = manager.get_or_create(AT, "topicidtopicidtopicidt", is_new=True)
    found = held(log)
    if compact:
        assert set(found) <= set(longer)
        assert newest_of_each_key(found) in [newest_of_each_key(longer[:end]) for end in range(len(longer) + 1)]
        assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
    else:
        assert found == longer[: len(found)], "a prefix"
    assert log.log_end_offset >= len(shorter), "nothing reported is missing"
    assert found[-1:] == longer[log.log_end_offset - 1 : log.log_end_offset], "the log goes on where it ended"
    manager.close({})


@pytest.mark.parametrize("compact", [False, True], ids=["delete", "compact"])
def test_a_killed_process_leaves_what_it_reported_or_one_step_more(tmp_path: Path, compact: bool) -> None:
    for seed in range(3):
        check(tmp_path / str(seed), seed, 40 + 70 * seed, compact=compact)


@pytest.mark.long
@pytest.mark.parametrize("compact", [False, True], ids=["delete", "compact"])
def test_many_killed_processes(tmp_path: Path, compact: bool) -> None:
    for seed in range(100, 150):
        check(tmp_path / str(seed), seed, random.Random(seed).randrange(1, 400), compact=compact)


def main(directory: str, seed: str, compact: str) -> None:
    """The process."""
    is_compact = bool(int(compact))
    manager = open_manager(Path(directory), compact=is_compact)
    log = manager.get_or_create(AT, "topicidtopicidtopicidt", is_new=True)
    for number, step in enumerate(steps(int(seed), compact=is_compact)):
        do(manager, log, number, step)
        print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
