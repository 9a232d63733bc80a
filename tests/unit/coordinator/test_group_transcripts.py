"""Golden transcripts of the group coordinator: each story with every event and every effect in a text file.

A change of its behaviour shows as a difference of these files. ``make transcripts`` writes them again; the difference
is then reviewed, line by line, as any other change.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, SESSION_MS, Harness
from tests.unit.coordinator.transcribing import DIRECTORY, Transcribing, assert_the_same

from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.record_codec import UnknownKey, read_batches
from tidegauge_broker.coordinator.records import OffsetKey, read_group, read_key, read_offset


class Transcribed(Transcribing, Harness):
    """A group coordinator whose events and effects are written down."""

    def record_words(self, batch) -> str:
        words = []
        for read in read_batches(batch):
            for key_bytes, value in read.records:
                key = read_key(key_bytes or b"")
                assert not isinstance(key, UnknownKey)
                name = f"{key.group_id} {key.topic_partition}" if isinstance(key, OffsetKey) else key.group_id
                read_value = read_offset if isinstance(key, OffsetKey) else read_group
                words.append(f"{name} = {'tombstone' if value is None else read_value(value)}")
        return "; ".join(words)


def a_rebalance() -> Transcribed:
    broker = Transcribed(
        "Two members join an empty group; the leader's assignment is answered when its record is committed."
    )
    tokens = [broker.join(), broker.join()]
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    broker.holds = True
    broker.sync(ids[1])
    broker.sync(ids[0], 1, [(ids[0], b"t-0"), (ids[1], b"t-1")])
    broker.say("Nothing is answered before the record is committed.")
    broker.release()
    return broker


def a_member_fails() -> Transcribed:
    broker = Transcribed(
        "A member is silent for its session timeout; the other learns of the rebalance and joins again."
    )
    ids = broker.stable_group(2)
    broker.after(SESSION_MS - 1)
    broker.heartbeat(ids[0])
    broker.after(1)
    broker.heartbeat(ids[0])
    broker.join(ids[0])
    return broker


def a_failover() -> Transcribed:
    broker = Transcribed("The coordinator resigns while a member waits in SyncGroup, and loads the group again.")
    tokens = [broker.join(), broker.join()]
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    broker.sync_all(ids)
    broker.commit(7, member_id=ids[0], generation=1)
    broker.join(ids[0])
    broker.resign(1)
    broker.heartbeat(ids[1])
    broker.elect(2)
    broker.say("The rebalance in progress is forgotten: the last generation that was written is Stable again.")
    broker.heartbeat(ids[1])
    broker.offset()
    return broker


def a_commit_times_out() -> Transcribed:
    broker = Transcribed("A commit that is not committed in time fails, though it stays in the log.")
    broker.holds = True
    broker.commit(5)
    broker.offset(stable=True)
    broker.release(ErrorCode.REQUEST_TIMED_OUT)
    broker.offset(stable=True)
    return broker


def a_static_member_restarts() -> Transcribed:
    broker = Transcribed(
        "A static member restarts: another member id, the same assignment, no rebalance; the old id is fenced."
    )
    ids = broker.stable_group(group_instance_id="i")
    broker.join(group_instance_id="i")
    broker.heartbeat(ids[0], instance="i")
    return broker


STORIES: tuple[Callable[[], Transcribed], ...] = (
    a_rebalance,
    a_member_fails,
    a_failover,
    a_commit_times_out,
    a_static_member_restarts,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_story_of_a_group_is_the_same(story: Callable[[], Transcribed]):
    assert_the_same(story, DIRECTORY)


def test_every_group_transcript_has_its_story():
    assert {path.stem for path in DIRECTORY.glob("*.txt")} == {story.__name__ for story in STORIES}
