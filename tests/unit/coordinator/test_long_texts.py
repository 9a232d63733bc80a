"""A text that no STRING of Kafka can hold is refused before anything changes: no record could be written of it."""

import pytest
from tests.unit.coordinator.harness import T0, Harness
from tests.unit.coordinator.transaction_harness import TransactionHarness

from tidegauge.errors import ErrorCode
from tidegauge.groups import JoinGroup, Protocol
from tidegauge.kafka.fields import MAX_STRING_BYTES
from tidegauge_broker.coordinator.text_limits import is_too_long, joins_with_long_text

E = ErrorCode
LONGEST = "x" * MAX_STRING_BYTES
TOO_LONG = ["x" * (MAX_STRING_BYTES + 1), "ü" * (MAX_STRING_BYTES // 2 + 1), "\U0001f600" * 8_192]


@pytest.mark.parametrize("text", TOO_LONG)
def test_bytes_count_and_not_characters(text):
    assert is_too_long(text)
    assert not is_too_long(text[:-1])
    assert is_too_long(text[:-1], 4)
    assert not is_too_long(None)


@pytest.mark.parametrize("text", TOO_LONG)
def test_a_group_id_that_no_record_holds_is_invalid(text):
    broker = Harness()
    assert broker.committed(broker.commit(1, group=text)) is E.INVALID_GROUP_ID
    assert broker.joined(broker.join(group=text)).error is E.INVALID_GROUP_ID
    assert broker.log == []
    assert broker.coordinator.group_views() == []


def test_the_longest_group_id_is_committed():
    broker = Harness()
    assert broker.committed(broker.commit(7, group=LONGEST)) is E.NONE
    assert broker.successor().offset(group=LONGEST).offset == 7


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "x" * (MAX_STRING_BYTES - 36)},
        {"client_id": TOO_LONG[0], "member_id": "m"},
        {"group_instance_id": LONGEST},
        {"protocol_type": TOO_LONG[0]},
        {"client_host": TOO_LONG[0]},
        {"member_id": TOO_LONG[0]},
        {"protocols": (Protocol("range", b""), Protocol(TOO_LONG[0], b""))},
    ],
)
def test_a_member_that_no_record_holds_does_not_join(changes):
    """A member without id gets one made of its client id or instance id and a UUID."""
    broker = Harness()
    assert broker.joined(broker.join(**changes)).error is E.INVALID_REQUEST
    assert broker.log == []
    assert broker.coordinator.group_views() == []


def test_a_member_whose_texts_just_fit_joins():
    broker = Harness()
    token = broker.join(client_id="x" * (MAX_STRING_BYTES - 37))
    broker.after(10**5)
    assert broker.joined(token).error is E.NONE
    named = JoinGroup("g", "m", 1, 1, LONGEST, (Protocol(LONGEST, b""),), client_id=LONGEST, client_host=LONGEST)
    assert not joins_with_long_text(named)


@pytest.mark.parametrize("text", TOO_LONG)
def test_metadata_of_an_offset_that_no_record_holds_are_too_large_whatever_the_setting(text):
    broker = Harness(offset_metadata_max_bytes=10**6)
    for send in (broker.commit, broker.commit_transactional):
        token = send(1, metadata=text)
        assert broker.response_to(token).partitions[T0] is E.OFFSET_METADATA_TOO_LARGE
    assert broker.log == []


@pytest.mark.parametrize("text", TOO_LONG)
def test_a_transactional_id_that_no_record_holds_is_invalid(text):
    harness = TransactionHarness()
    assert harness.init(name=text).error is E.INVALID_REQUEST
    assert harness.add(T0, name=text) is E.INVALID_REQUEST
    assert harness.add_offsets(name=text) is E.INVALID_REQUEST
    assert harness.end(name=text) is E.INVALID_REQUEST
    assert harness.log == []
    assert harness.coordinator.transaction_views() == []


def test_the_longest_transactional_id_is_written():
    harness = TransactionHarness()
    assert harness.init(name=LONGEST).error is E.NONE
    assert [view.transactional_id for view in harness.successor().coordinator.transaction_views()] == [LONGEST]
