"""The history of producers: records and their outcomes, complete at any moment a producer may be killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.history import History, HistoryWriter, read_history
from tidegauge_client.metadata import TopicIdentity
from tidegauge_client.partition_queue import OutcomeUnknown, RecordMetadata
from tidegauge_client.sent_record import NO_OFFSET, NO_TIME, SentRecord


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def records_of(*paths: Path, topic: str = "t") -> list[SentRecord]:
    return read_history(paths, topic).records


def test_a_record_has_an_invocation_and_its_response(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with HistoryWriter(path, "t", "all", is_idempotent=True) as history:
        history.invoked(0, b"k", b"v", None, 77)
        history.acknowledged(0, RecordMetadata("t", 2, 15, 77))

    (record,) = records_of(path)
    assert record[1:7] == (0, b"k", b"v", 77, "all", True)
    assert (record.outcome, record.partition, record.offset) == ("ok", 2, 15)
    assert record.invoked_us <= record.completed_us
    assert record.is_acknowledged
    assert [line["type"] for line in lines_of(path)] == ["invoke", "ok"]


def test_definite_and_indefinite_failures_are_kept_apart(tmp_path: Path) -> None:
    """Rule 3: an unknown outcome must never count as failed."""
    path = tmp_path / "h"
    refused = TidegaugeError(ErrorCode.MESSAGE_TOO_LARGE)
    with HistoryWriter(path, "t", "all", is_idempotent=True) as history:
        for number in range(4):
            history.invoked(number, None, b"%d" % number, 0, 0)
        history.failed(0, refused, is_definite=refused.definite)
        unknown = OutcomeUnknown(ErrorCode.MESSAGE_TOO_LARGE)
        history.failed(1, unknown, is_definite=unknown.definite)
        late = TidegaugeError(ErrorCode.REQUEST_TIMED_OUT)
        history.failed(2, late, is_definite=late.definite)

    found = records_of(path)
    assert [record.outcome for record in found] == ["fail", "info", "info", "info"]
    assert [record.error for record in found] == ["MESSAGE_TOO_LARGE", "MESSAGE_TOO_LARGE", "REQUEST_TIMED_OUT", ""]
    assert (found[3].completed_us, found[3].offset) == (NO_TIME, NO_OFFSET), "rule 2"


def test_acks_0_acknowledges_nothing(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with HistoryWriter(path, "t", "0", is_idempotent=False) as history:
        history.invoked(0, None, b"v", 0, 0)
        history.acknowledged(0, RecordMetadata("t", 0, -1, 0))

    (record,) = records_of(path)
    assert record.outcome == "ok"
    assert not record.is_acknowledged


def test_an_invocation_is_on_disk_before_the_record_can_leave(tmp_path: Path) -> None:
    """Rule 1: nothing is buffered in the process."""
    path = tmp_path / "h"
    with HistoryWriter(path, "t", "1", is_idempotent=False) as history:
        history.invoked(0, None, b"v", 0, 0)
        assert [line["type"] for line in lines_of(path)] == ["invoke"]


def test_several_producers_share_a_file_and_topics_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with (
        HistoryWriter(path, "t", "all", is_idempotent=True) as one,
        HistoryWriter(path, "other", "all", is_idempotent=True) as other,
    ):
        one.invoked(0, None, b"1", 0, 0)
        other.invoked(0, None, b"2", 0, 0)
        other.acknowledged(0, RecordMetadata("other", 0, 0, 0))
    with HistoryWriter(path, "t", "all", is_idempotent=True) as again:
        again.invoked(0, None, b"3", 0, 0)

    found = records_of(path)
    assert [record.value for record in found] == [b"1", b"3"]
    assert found[0].producer != found[1].producer
    assert [record.outcome for record in records_of(path, topic="other")] == ["ok"]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_truncated_by_a_kill_is_left_out_and_the_next_writer_begins_a_new_one(tmp_path: Path, cut: int) -> None:
    """Rule 5."""
    path = tmp_path / "h"
    with HistoryWriter(path, "t", "all", is_idempotent=True) as history:
        history.invoked(0, None, b"1", 0, 0)
        history.acknowledged(0, RecordMetadata("t", 0, 0, 0))
    path.write_bytes(path.read_bytes()[:-cut])
    with HistoryWriter(path, "t", "all", is_idempotent=True) as history:
        history.invoked(0, None, b"2", 0, 0)

    history_read = read_history([path], "t")
    assert [(record.value, record.number) for record in history_read.records] == [(b"1", 0), (b"2", 0)]
    assert history_read.damaged_lines == (0 if cut == 1 else 1)
    assert history_read.records[0].outcome == ("ok" if cut == 1 else "info")


def test_what_is_no_history_is_counted_not_used(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_text('[]\n{}\nhello\n{"type":"invoke","producer":"p","number":0,"topic":"t"}\n')
    assert read_history([path], "t") == History(damaged_lines=4)
    with pytest.raises(TidegaugeError, match="can't be read"):
        read_history([tmp_path / "none"], "t")
    with pytest.raises(TidegaugeError, match="can't be written"):
        HistoryWriter(tmp_path / "none" / "h", "t", "all", is_idempotent=True)


OLD, NEW = TopicIdentity("old", "cluster"), TopicIdentity("new", "cluster")


def test_what_was_sent_to_another_topic_of_the_name_is_left_out_and_counted(tmp_path: Path) -> None:
    """Rule 6: a topic that was deleted and created again, and one of another cluster, are other topics (KIP-516)."""
    path = tmp_path / "h"
    other_cluster = TopicIdentity("new", "another")
    for identity in (OLD, NEW, other_cluster):
        with HistoryWriter(path, "t", "all", is_idempotent=True) as history:
            history.sends_to(identity)
            history.invoked(0, None, identity.topic_id.encode(), 0, 0)
            history.acknowledged(0, RecordMetadata("t", 0, 7, 0))
    found = read_history([path], "t", NEW)
    assert [(record.value, record.outcome) for record in found.records] == [(b"new", "ok")]
    assert dict(found.of_others) == {OLD: 1, other_cluster: 1}
    assert found.without_identity == 0
    assert len(read_history([path], "t").records) == 3, "without an id every topic of the name is meant"


def test_a_producer_that_learns_of_the_new_topic_says_so_once(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with HistoryWriter(path, "t", "all", is_idempotent=True) as history:
        for number, identity in enumerate([TopicIdentity(), OLD, OLD, NEW, NEW]):
            history.sends_to(identity)
            history.invoked(number, None, b"%d" % number, 0, 0)
    assert [line["type"] for line in lines_of(path)].count("begin") == 2
    found = read_history([path], "t", NEW)
    assert [record.number for record in found.records] == [0, 3, 4]
    assert (found.without_identity, dict(found.of_others)) == (1, {OLD: 2})


def test_a_history_without_ids_stays_readable_and_says_so(tmp_path: Path) -> None:
    """As older versions wrote it."""
    path = tmp_path / "h"
    with HistoryWriter(path, "t", "all", is_idempotent=True) as history:
        history.invoked(0, None, b"v", 0, 0)
        history.acknowledged(0, RecordMetadata("t", 0, 0, 0))
    found = read_history([path], "t", NEW)
    assert ([record.outcome for record in found.records], found.without_identity) == (["ok"], 1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.none() | st.binary(), st.none() | st.binary()), max_size=5))
def test_any_bytes_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, contents: list[tuple[bytes | None, bytes | None]]
) -> None:
    path = tmp_path_factory.mktemp("h") / "h"
    with HistoryWriter(path, "t", "all", is_idempotent=True) as history:
        for number, (key, value) in enumerate(contents):
            history.invoked(number, key, value, None, number)
    assert [(record.key, record.value) for record in records_of(path)] == contents
