"""Tagged fields that Tidegauge's brokers put into the headers of what they send one another. Pure.

A flexible header has a section of tagged fields, and a peer skips those that it does not know (KIP-482), so Apache
Kafka's brokers and clients are not concerned. No release of Kafka defines one there; the numbers are far above those
that it would give out first.

    tag 29799   int64    the sender's logical clock (``tidegauge.logical_clock``), in requests and their responses
    tag 29800   string   the follower's ``replica.truncation.rule``, in a Fetch that begins a session
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidegauge.kafka.compiler import MalformedMessage, read_uvarint, write_uvarint

LOGICAL_TIME = 29_799
TRUNCATION_RULE = 29_800
_MOST_RULE_BYTES = 127
_INT64 = struct.Struct(">q")


class Tags(NamedTuple):
    """The tagged fields of a header that this project knows; an absent field has its default.

    Attributes:
        logical_time: microseconds of the sender's logical clock; 0: the sender has none.
        truncation_rule: of the follower that fetches; empty: not said.
    """

    logical_time: int = 0
    truncation_rule: str = ""


NO_TAGS = Tags()


_TIME_PREFIX = write_uvarint(LOGICAL_TIME) + write_uvarint(_INT64.size)
_RULE_PREFIX = write_uvarint(TRUNCATION_RULE)
_ONE_TIME = struct.Struct(f">B{len(_TIME_PREFIX)}sq")


def encode_tags(tags: Tags) -> bytes:
    """Return the section of tagged fields of a flexible header.

    Args:
        tags: those to write, in the order of their numbers, as KIP-482 asks; a rule has at most 127 bytes.
    """
    time, rule = tags
    if not rule:
        return _ONE_TIME.pack(1, _TIME_PREFIX, time) if time else b"\0"
    text = rule.encode()
    of_rule = _RULE_PREFIX + bytes((len(text),)) + text
    return b"\2" + _TIME_PREFIX + _INT64.pack(time) + of_rule if time else b"\1" + of_rule


def decode_tags(frame: memoryview, offset: int) -> tuple[Tags, int]:
    """Read the section of tagged fields at an offset; return those that are known, and the offset behind all of them.

    Raises:
        MalformedMessage: a known field has another size than it can have, or is no text.
        IndexError: the frame ends within the section.
    """
    if len(frame) - offset >= _ONE_TIME.size:
        count, prefix, logical_time = _ONE_TIME.unpack_from(frame, offset)
        if count == 1 and prefix == _TIME_PREFIX:  # as in nearly all messages among brokers
            return Tags(logical_time), offset + _ONE_TIME.size
    count, offset = _read_uvarint(frame, offset)
    logical_time, rule = NO_TAGS
    for _ in range(count):
        tag, offset = _read_uvarint(frame, offset)
        size, offset = _read_uvarint(frame, offset)
        value, offset = frame[offset : offset + size], offset + size
        if tag == LOGICAL_TIME:
            if size != _INT64.size or len(value) != size:
                raise MalformedMessage(f"tagged field {tag} of a header has {size} bytes, and not {_INT64.size}")
            (logical_time,) = _INT64.unpack(value)
        elif tag == TRUNCATION_RULE:
            if size > _MOST_RULE_BYTES or len(value) != size:
                raise MalformedMessage(
                    f"tagged field {tag} of a header has {size} bytes; {_MOST_RULE_BYTES} are allowed"
                )
            rule = str(value, "utf8")
    return Tags(logical_time, rule), offset


def _read_uvarint(frame: memoryview, offset: int) -> tuple[int, int]:
    first = frame[offset]
    return (first, offset + 1) if first < 128 else read_uvarint(frame, first, offset + 1)
