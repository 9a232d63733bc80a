"""The cleaner's rounds: one log that can't be compacted does not keep the others from it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.replication.log_cleaner import LogCleaner


class Logs:
    """A manager of compactions of logs of which each is dirty until it was compacted or given up."""

    def __init__(self, failures):
        self.dirty = {TopicPartition(name, 0): failure for name, failure in failures.items()}
        self.cleaned = []
        self.uncleanable = []

    def next_to_clean(self, last_stable_offsets):
        at = next(iter(self.dirty), None)
        return at and Cleaning(at, self.dirty[at])

    def note_uncleanable(self, at):
        self.uncleanable.append(at.topic)
        del self.dirty[at]

    def note_cleaned(self, cleaning):
        self.cleaned.append(cleaning.log.topic_partition.topic)
        del self.dirty[cleaning.log.topic_partition]


class Cleaning:
    """The compaction of a log; it fails with what it is given."""

    def __init__(self, at, failure):
        self.log = SimpleNamespace(
            topic_partition=at, size_bytes=1, is_closed=False, log_directory=SimpleNamespace(offline=False)
        )
        self.part = SimpleNamespace(first_dirty_offset=0)
        self.end_offset = 1
        self._failure = failure

    def map_keys(self):
        if self._failure is not None:
            raise self._failure
        return [["segment"]]

    def write(self, group):
        return group[0]

    def replace(self, group, cleaned):
        return True


async def at_once(call):
    call()


def test_a_log_that_fails_in_any_way_is_left_alone_and_the_others_are_compacted():
    logs = Logs(
        {
            "damaged": TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "no batch"),
            "broken": AssertionError("out of order"),
            "sound": None,
        }
    )
    replicas = SimpleNamespace(
        logs=SimpleNamespace(compaction=logs),
        core=SimpleNamespace(last_stable_offsets=dict),
        delete_old_segments_of_compacted=lambda: None,
    )
    asyncio.run(LogCleaner(replicas, at_once).run())
    assert logs.uncleanable == ["damaged", "broken"]
    assert logs.cleaned == ["sound"]
