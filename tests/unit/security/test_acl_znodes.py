"""The znodes of access control lists: what Kafka writes is read, and the other way round; nothing else is taken."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.cluster_metadata.access_lists import Entry, Operation, Pattern, PatternType, Permission, ResourceType
from tidegauge.znodes import MalformedZnode
from tidegauge.znodes.access_lists import (
    KINDS,
    decode_change,
    decode_list,
    encode_change,
    encode_list,
    path_of,
    paths,
)

OF_KAFKA = b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}'
ENTRY = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
patterns = st.builds(
    Pattern, st.sampled_from(KINDS), st.text(min_size=1), st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])
)
entries = st.builds(
    Entry,
    st.text().map("User:x{}".format),
    st.text(),
    st.sampled_from([one for one in Operation if one > Operation.ANY]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


def test_paths_and_payloads_are_kafkas() -> None:
    """ZkAclStore, AclEntry.toJsonCompatibleMap, ZkAclChangeStore."""
    assert path_of(Pattern(ResourceType.TRANSACTIONAL_ID, "t")) == "/kafka-acl/TransactionalId/t"
    assert path_of(Pattern(ResourceType.TOPIC, "o", PatternType.PREFIXED)) == "/kafka-acl-extended/prefixed/Topic/o"
    assert {"/kafka-acl-changes", "/kafka-acl-extended-changes", "/kafka-acl/DelegationToken"} <= set(paths())
    assert decode_list(OF_KAFKA) == {ENTRY}
    assert json.loads(encode_list([ENTRY])) == json.loads(OF_KAFKA)
    assert encode_change(Pattern(ResourceType.TOPIC, "a:b")) == ("/kafka-acl-changes/acl_changes_", b"TOPIC:a:b")
    path, payload = encode_change(Pattern(ResourceType.GROUP, "g", PatternType.PREFIXED))
    assert path == "/kafka-acl-extended-changes/acl_changes_"
    assert payload == b'{"version":1,"resourceType":"GROUP","name":"g","patternType":"PREFIXED"}'


@settings(max_examples=examples(200))
@given(st.frozensets(entries), patterns)
def test_what_is_written_is_read(found: frozenset[Entry], pattern: Pattern) -> None:
    assert decode_list(encode_list(found)) == found
    if not pattern.name.startswith("{"):
        assert decode_change(encode_change(pattern)[1]) == pattern


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"[]",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[1]}',
        b'{"version":1,"acls":[{"principal":"alice","permissionType":"Allow","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Any","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Fly","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":7,"host":"*"}]}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_what_kafka_does_not_write_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedZnode):
        decode_list(data)


@pytest.mark.parametrize(
    "data", [b"", b"TOPIC", b"Fly:x", b"{}", b'{"resourceType":"TOPIC","name":"x","patternType":"MATCH"}']
)
def test_a_change_of_nothing_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedZnode):
        decode_change(data)


@settings(max_examples=examples(300))
@given(st.binary(max_size=200) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_list, decode_change):
        try:
            decode(data)
        except MalformedZnode:
            continue
