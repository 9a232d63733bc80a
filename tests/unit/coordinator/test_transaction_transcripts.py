"""Golden transcripts of the transaction coordinator: each story with every event and every effect in a text file.

A change of its behaviour shows as a difference of these files. ``make transcripts`` writes them again; the difference
is then reviewed, line by line, as any other change.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.coordinator.transaction_harness import ABORT, OFFSETS_0, T0, T1, TIMEOUT_MS, U0, TransactionHarness
from tests.unit.coordinator.transcribing import DIRECTORY, Transcribing, assert_the_same

from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.record_codec import read_batches
from tidegauge_broker.coordinator.transaction.records import read_transaction, read_transaction_key

TRANSACTIONS = DIRECTORY / "transactions"
E = ErrorCode


class Transcribed(Transcribing, TransactionHarness):
    """A transaction coordinator whose events and effects are written down."""

    def record_words(self, batch) -> str:
        words = []
        for read in read_batches(batch):
            for key, value in read.records:
                name = read_transaction_key(key or b"")
                assert isinstance(name, str)
                if value is None:
                    words.append(f"{name} = tombstone")
                    continue
                one = read_transaction(name, value)
                partitions = ", ".join(str(at) for at in one.partitions) or "no partitions"
                words.append(
                    f"{name} = {one.state.value}, producer {one.producer_id} epoch {one.producer_epoch}, {partitions}, "
                    f"begun {one.start_ms}, updated {one.update_ms}"
                )
        return "; ".join(words)


def a_commit() -> Transcribed:
    broker = Transcribed("From the first InitProducerId to CompleteCommit; the response comes before the markers.")
    broker.send_init()
    broker.send_add(T0, U0)
    broker.add_offsets()
    broker.verify(T0)
    broker.verify(T1)
    broker.holds_markers = True
    broker.send_end()
    broker.say("Until the last marker is written the id is busy, and the same EndTxn gets CONCURRENT_TRANSACTIONS.")
    broker.send_end()
    broker.write_markers()
    broker.say("After that a repeated commit is a success, and an abort is refused.")
    broker.send_end()
    broker.send_end(ABORT)
    return broker


def markers_that_fail() -> Transcribed:
    broker = Transcribed(
        "Two leaders: one is not found, the other loses the request, then its response names a partition that is not "
        "its own any more. Each marker is sent again, to whoever leads by then; a deleted partition needs none."
    )
    broker.init()
    broker.add(T0, T1, U0)
    broker.leaders = {T0: 1, T1: -1, U0: 2}
    broker.holds_markers = True
    broker.send_end(ABORT)
    broker.lose_markers()
    broker.write_markers(t_0=E.NONE, u_0=E.NOT_LEADER_OR_FOLLOWER)
    broker.leaders = {T0: 1, T1: 2, U0: None}
    broker.after(100)
    while broker.markers:
        broker.write_markers()
    return broker


def a_new_producer_fences() -> Transcribed:
    broker = Transcribed(
        "A second producer takes the transactional id over while a transaction is open: the epoch rises by two, one of "
        "them for the abort, and the first producer is fenced from the moment on at which the abort is decided."
    )
    broker.init()
    broker.add(T0)
    broker.holds_markers = True
    broker.send_init()
    broker.say("The first producer is fenced already.")
    broker.send_add(U0)
    broker.send_end()
    broker.send_init()
    broker.write_markers()
    broker.say("The second producer asks again, as CONCURRENT_TRANSACTIONS makes it do.")
    broker.send_init()
    broker.send_end()
    return broker


def a_timeout() -> Transcribed:
    broker = Transcribed("A producer that says nothing any more: its transaction is aborted after its own timeout.")
    broker.init()
    broker.add(T0)
    broker.after(TIMEOUT_MS + 10_000)
    broker.say("It finds out with its next request, and gets a new epoch without expecting one.")
    broker.send_end()
    broker.send_init(0, 0)
    broker.send_init()
    return broker


def a_failover() -> Transcribed:
    broker = Transcribed(
        "The coordinator loses its leadership between the decision and the markers. Its successor, here the same "
        "broker, reads the log and sends all markers again, with its own epoch."
    )
    broker.init()
    broker.add(T0, OFFSETS_0)
    broker.holds_markers = True
    broker.send_end()
    broker.resign(1)
    broker.send_end()
    broker.say("Elected again.")
    broker.elect(2)
    broker.say("The response to the request of before is of no interest any more.")
    broker.write_markers()
    broker.write_markers()
    return broker


def an_append_fails() -> Transcribed:
    broker = Transcribed(
        "The record of a change can't be written: the change is given up, and the client hears why. That of an epoch "
        "fence leaves the raised epoch behind (KAFKA-9666); that of a completion is written again."
    )
    broker.init()
    broker.append_error = E.NOT_ENOUGH_REPLICAS
    broker.send_add(T0)
    broker.append_error = E.NONE
    broker.send_add(T0)
    broker.say("A fence that can't be written, twice, and then can: the epoch is 1 throughout.")
    broker.append_error = E.REQUEST_TIMED_OUT
    broker.send_init()
    broker.send_init()
    broker.append_error = E.NONE
    broker.holds_markers = True
    broker.send_init()
    broker.say("The markers are written, the record of it is not.")
    broker.append_error = E.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    broker.write_markers()
    broker.append_error = E.NONE
    broker.after(100)
    return broker


STORIES: tuple[Callable[[], Transcribed], ...] = (
    a_commit,
    markers_that_fail,
    a_new_producer_fences,
    a_timeout,
    a_failover,
    an_append_fails,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_story_of_a_transaction_is_the_same(story: Callable[[], Transcribed]):
    assert_the_same(story, TRANSACTIONS)


def test_every_transaction_transcript_has_its_story():
    assert {path.stem for path in TRANSACTIONS.glob("*.txt")} == {story.__name__ for story in STORIES}
