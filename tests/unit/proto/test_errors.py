"""The error table is one: numbers, names and the wire enum agree (Kafka's Errors)."""

import pytest

from tidegauge.errors import ERROR_TABLE, ErrorCode, TidegaugeError
from tidegauge.v1 import common_pb2


def test_wire_enum_and_table_have_the_same_numbers_and_names():
    wire = {
        value.number: value.name.removeprefix("ERROR_CODE_")
        for value in common_pb2.DESCRIPTOR.enum_types_by_name["ErrorCode"].values
    }
    assert wire == {int(code): code.name for code in ErrorCode}


def test_every_code_has_a_row_with_a_sentence():
    assert set(ERROR_TABLE) == set(ErrorCode)
    assert all(info.meaning.endswith(".") for info in ERROR_TABLE.values())


@pytest.mark.parametrize(
    ("number", "name", "retriable", "refresh"),
    [
        (1, "OFFSET_OUT_OF_RANGE", False, False),
        (2, "CORRUPT_MESSAGE", True, False),
        (3, "UNKNOWN_TOPIC_OR_PARTITION", True, True),
        (6, "NOT_LEADER_OR_FOLLOWER", True, True),
        (7, "REQUEST_TIMED_OUT", True, False),
        (10, "MESSAGE_TOO_LARGE", False, False),
        (19, "NOT_ENOUGH_REPLICAS", True, False),
        (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", True, False),
        (41, "NOT_CONTROLLER", True, True),
        (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", False, False),
        (56, "KAFKA_STORAGE_ERROR", True, True),
        (74, "FENCED_LEADER_EPOCH", True, True),
        (75, "UNKNOWN_LEADER_EPOCH", True, False),
        (84, "ELECTION_NOT_NEEDED", True, True),
        (95, "INVALID_UPDATE_VERSION", False, False),
    ],
)
def test_kafka_rows(number, name, retriable, refresh):
    info = ERROR_TABLE[ErrorCode(number)]
    assert (info.code.name, info.retriable, info.refresh_metadata) == (name, retriable, refresh)


def test_what_may_have_been_written_is_not_definite():
    """A timed-out or interrupted produce is indefinite: a retry without idempotence may write twice (KIP-98)."""
    indefinite = {info.code for info in ERROR_TABLE.values() if not info.definite}
    assert indefinite == {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }


def test_an_unknown_number_is_one_known_error():
    assert ErrorCode.of(31337) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_error_shows_name_and_number():
    assert str(TidegaugeError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")) == "NOT_ENOUGH_REPLICAS (19): too few"
