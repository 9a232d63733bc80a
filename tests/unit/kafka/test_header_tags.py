"""Tagged fields of headers, which brokers send one another and Kafka's peers skip (KIP-482)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.kafka.apis import API_VERSIONS, FETCH, METADATA
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import (
    codec_of,
    joined,
    read_request_header,
    read_response_header,
    request_frame,
    response_frame,
)
from tidegauge.kafka.header_tags import NO_TAGS, Tags, decode_tags, encode_tags
from tidegauge.kafka.messages.fetch import FetchRequest, FetchResponse
from tidegauge.kafka.messages.metadata import MetadataResponse

LENGTH_BYTES = 4
UNKNOWN = b"\x05\x03abc"
"""Tag 5 with three bytes, as a later release of Kafka might define it."""


@given(st.integers(0, 2**63 - 1), st.text(st.characters(codec="ascii"), max_size=127), st.binary(max_size=20))
def test_tags_are_read_as_they_were_written(time: int, rule: str, behind: bytes) -> None:
    encoded = encode_tags(Tags(time, rule))
    assert decode_tags(memoryview(encoded + behind), 0) == (Tags(time, rule), len(encoded))


def test_no_tag_is_one_byte() -> None:
    assert encode_tags(NO_TAGS) == b"\0"
    assert encode_tags(Tags(0, "")) == b"\0"


def test_the_bytes_are_those_of_kip_482() -> None:
    """Number of fields, then tag, size and value of each, in ascending order of the tags; varints are unsigned."""
    assert encode_tags(Tags(1, "kip-101")) == (
        b"\x02" + b"\xe7\xe8\x01" + b"\x08" + b"\0\0\0\0\0\0\0\x01" + b"\xe8\xe8\x01" + b"\x07" + b"kip-101"
    )


def test_fields_of_others_are_skipped() -> None:
    time = encode_tags(Tags(77))[1:]
    section = b"\x03" + UNKNOWN + time + UNKNOWN
    assert decode_tags(memoryview(section), 0) == (Tags(77), len(section))


@pytest.mark.parametrize(
    "section",
    [
        b"\x01\xe7\xe8\x01\x07" + bytes(7),
        b"\x01\xe7\xe8\x01\x08" + bytes(7),
        b"\x01\xe8\xe8\x01\x80\x01" + bytes(128),
        b"\x01\xe8\xe8\x01\x03ab",
    ],
    ids=["a time of 7 bytes", "a time that ends early", "a rule of 128 bytes", "a rule that ends early"],
)
def test_a_malformed_field_is_refused(section: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_tags(memoryview(section), 0)


def test_a_section_that_ends_early_is_no_header() -> None:
    frame = struct.pack(">hhih", FETCH, 17, 1, -1) + b"\x01\xe7\xe8"
    with pytest.raises(MalformedMessage, match="not a request header"):
        read_request_header(memoryview(frame))


def test_a_request_carries_tags_in_flexible_versions_alone() -> None:
    for version, tags in ((17, Tags(5, "kip-320")), (11, NO_TAGS)):
        frame = joined(request_frame(FETCH, version, 3, "broker-1-fetcher-0", FetchRequest(), Tags(5, "kip-320")))
        header = read_request_header(memoryview(frame)[LENGTH_BYTES:])
        assert (header.client_id, header.tags) == ("broker-1-fetcher-0", tags)
        plain = joined(request_frame(FETCH, version, 3, "broker-1-fetcher-0", FetchRequest()))
        assert frame[LENGTH_BYTES + header.body_at :] == plain[LENGTH_BYTES + read_request_header(
            memoryview(plain)[LENGTH_BYTES:]
        ).body_at :]  # fmt: skip


def test_a_response_carries_tags_in_flexible_versions_alone() -> None:
    """ApiVersions' response never has tagged fields (KIP-511)."""
    body = joined(response_frame(FETCH, 17, 3, FetchResponse()))
    fetch = codec_of(FETCH, 17)
    tagged = joined(fetch.response_frame(3, [bytes(10)], Tags(9)))
    assert struct.unpack_from(">i", tagged)[0] == len(tagged) - LENGTH_BYTES
    correlation_id, body_at, tags = fetch.read_response_header(memoryview(tagged)[LENGTH_BYTES:])
    assert (correlation_id, len(tagged) - LENGTH_BYTES - body_at, tags) == (3, 10, Tags(9))
    assert read_response_header(FETCH, 17, memoryview(tagged)[LENGTH_BYTES:]) == (3, body_at)
    assert fetch.read_response_header(memoryview(body)[LENGTH_BYTES:])[2] == NO_TAGS
    for without in (codec_of(METADATA, 8), codec_of(API_VERSIONS, 3)):
        assert without.response_frame(3, [], Tags(9)) == without.response_frame(3, [])
    assert joined(response_frame(METADATA, 8, 3, MetadataResponse()))
