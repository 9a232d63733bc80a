"""Hostile input of authentication and authorization: tokens in any order, alterations, and znodes of any content."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from typing import Any

import pytest
from config_zookeeper import FakeZooKeeper
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kafka_peer import Client, Listener, Transport
from tests.examples import examples

from tidegauge.cluster_metadata.credentials import MECHANISMS, Deletion, ScramCredential, Upsertion
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import (
    API_VERSIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from tidegauge.kafka.frames import encode, joined, request_frame
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest
from tidegauge.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tidegauge.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from tidegauge.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tidegauge.principal import ANONYMOUS
from tidegauge.settings import parse_broker_settings
from tidegauge.znodes import MalformedZnode
from tidegauge.znodes.access_lists import decode_change, decode_list
from tidegauge_broker.server.cluster.zookeeper.client_quotas import ClientQuotas
from tidegauge_broker.server.cluster.zookeeper.scram_users import ScramUsers
from tidegauge_broker.server.wire.kafka.sasl_connection import SaslConnection
from tidegauge_broker.server.wire.kafka.served import HANDLERS
from tidegauge_broker.server.wire.sasl_listener import SaslListener
from tidegauge_controller.zookeeper.client import BadPath

SECRET = "the-secret-of-alice"  # noqa: S105 - of this test
SETTINGS = parse_broker_settings(
    {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.outside.plain.sasl.jaas.config": f'x.PlainLoginModule required user_alice="{SECRET}";',
        "connection.failed.authentication.delay.ms": "0",
    }
)[0]
CREDENTIAL = ScramCredential(b"salt", b"k" * 32, b"s" * 32, 4096)
LENGTH = struct.Struct(">i")


def request(key: int, version: int, message: Any) -> bytes:
    return joined(request_frame(key, version, 3, "fuzz", message))


def unsecured(claims: object) -> bytes:
    """Return OAUTHBEARER's first client message, with an unsecured token of claims."""
    parts = [json.dumps({"alg": "none"}), json.dumps(claims)]
    texts = [base64.urlsafe_b64encode(one.encode()).rstrip(b"=").decode() for one in parts]
    return f"n,,\x01auth=Bearer {texts[0]}.{texts[1]}.\x01\x01".encode()


odd_claims = st.dictionaries(
    st.sampled_from(["exp", "iat", "scope", "nbf"]),
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4) | st.lists(st.text(max_size=2)),
    max_size=4,
)
"""Without a subject, so that no token names anyone."""
TOKENS = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(
        [
            b"",
            b"\0" * 3,
            b"\0alice\0wrong",
            b"\0alice\0" + b"x" * 100_000,
            b"n,,n=alice,r=nonce",
            b"n,,n=alice,r=" + b"n" * 50_000,
            b"n,,n=alice,r=\xc3\xa4",
            b"n,a=bob,n=alice,r=nonce",
            b"c=biws,r=nonce,p=AAAA",
            b"c=biws,r=nonce,p=====",
            b"c=biws,r=nonce,i=99999999999999999999,p=AAAA",
            b"n,,\x01auth=Bearer a.b.c\x01\x01",
            b"n,,\x01auth=Bearer " + b"e30." * 20_000 + b"\x01\x01",
            b"n,,\x01auth=Basic x\x01\x01",
        ]
    ),
    odd_claims.map(unsecured),
)
FRAMES = st.one_of(
    st.sampled_from([0, 1]).flatmap(
        lambda version: st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "", "x" * 300]).map(
            lambda name: request(SASL_HANDSHAKE, version, SaslHandshakeRequest(name))
        )
    ),
    TOKENS.flatmap(
        lambda token: st.sampled_from([0, 1, 2]).map(
            lambda version: request(SASL_AUTHENTICATE, version, SaslAuthenticateRequest(token))
        )
    ),
    TOKENS.map(lambda token: LENGTH.pack(len(token)) + token),
    st.sampled_from(
        [
            request(API_VERSIONS, 3, ApiVersionsRequest("fuzz", "1")),
            request(METADATA, 9, MetadataRequest()),
            LENGTH.pack(-1),
            LENGTH.pack(2**31 - 1),
        ]
    ),
)


async def sent_to_a_listener(frames: list[bytes]) -> list[dict[str, Any]]:
    """Send frames to a connection of a listener with SASL; return what escaped to the event loop."""
    escaped: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
    listener = Listener()
    served: list[object] = []
    listener.handlers = {
        METADATA: lambda *_: served.append("metadata") or MetadataResponse(),
        API_VERSIONS: HANDLERS[API_VERSIONS],
        SASL_HANDSHAKE: HANDLERS[SASL_HANDSHAKE],
    }
    client = Client(listener, Transport())
    sasl = SaslListener("OUTSIDE", SETTINGS, lambda _, user: CREDENTIAL if user == "alice" else None)
    client.connection = SaslConnection(listener, lambda: 1_000, sasl)
    client.connection.connection_made(client.transport)
    for frame in frames:
        if client.transport.ended:
            break
        client.send(frame)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not served, "nobody has proved who it is"
    assert client.connection.caller.principal == ANONYMOUS
    assert SECRET.encode() not in bytes(client.transport.written)
    client.connection.connection_lost(None)
    return escaped


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FRAMES, max_size=6))
@example([request(SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN")), request(METADATA, 9, MetadataRequest())])
def test_any_frames_are_responded_to_or_end_the_connection(
    caplog: pytest.LogCaptureFixture, frames: list[bytes]
) -> None:
    """In any order, of any length: no request is served, no exception escapes, and no secret is logged."""
    caplog.clear()
    assert asyncio.run(sent_to_a_listener(frames)) == []
    assert not [record for record in caplog.records if record.exc_info]
    assert SECRET not in caplog.text


# Alterations

names = st.one_of(st.text(max_size=8), st.sampled_from(["", "a/b", "..", "<default>", "*", "%2F", "ä" * 300, "\0"]))
numbers = st.one_of(st.floats(), st.sampled_from([0.0, -1.0, 1e308, 2.0**63, float("nan"), float("inf")]))


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(["user", "client-id", "group"]), st.none() | names, max_size=2),
            st.dictionaries(
                st.sampled_from(["producer_byte_rate", "request_percentage", "x"]), st.none() | numbers, max_size=2
            ),
        ),
        max_size=4,
    )
)
@example([({"user": "."}, {}), ({"user": "a", "client-id": ".."}, {"x": 1.0})])
def test_any_quota_is_set_or_refused_and_all_can_be_described(
    alterations: list[tuple[dict[str, str | None], dict[str, float | None]]],
) -> None:
    async def alter() -> None:
        quotas = ClientQuotas(FakeZooKeeper())  # type: ignore[arg-type] # as far as settings need it
        codes: set[ErrorCode] = set()
        for entity, changes in alterations:
            try:
                await quotas.alter(entity, changes, validate_only=False)
            except TidegaugeError as problem:
                codes.add(problem.code)
            except BadPath:  # Kafka does not escape these, either, and ZooKeeper has no znode of such a name
                assert {".", ".."} & set(entity.values())
        assert codes <= {ErrorCode.INVALID_REQUEST}
        for quota in await quotas.describe({}, strict=False):
            assert all(value == value for value in quota.values.values())  # noqa: PLR0124 - NaN is no quota

    asyncio.run(alter())


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.builds(Deletion, names, st.integers(-128, 127)), max_size=2),
    st.lists(
        st.builds(
            Upsertion, names, st.integers(-1, 3), st.integers(-(2**31), 2**31 - 1), st.binary(), st.binary(max_size=70)
        ),
        max_size=3,
    ),
)
def test_any_scram_credential_is_kept_or_refused(deletions: list[Deletion], upsertions: list[Upsertion]) -> None:
    async def alter() -> None:
        users = ScramUsers(FakeZooKeeper())  # type: ignore[arg-type] # as far as settings need it
        outcomes = await users.alter(deletions, upsertions)
        assert set(outcomes) == {one.user for one in [*deletions, *upsertions]}
        await users.read_all()
        described = await users.describe([])
        assert set(described) == {one.user for one in upsertions if outcomes[one.user].error is ErrorCode.NONE}

    asyncio.run(alter())


# Znodes

CREDENTIALS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096",
            "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=99999999999",
            "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=" + "9" * 5_000,
            "iterations=\u0664\u0660\u0669\u0666",
            "salt=,stored_key=,server_key=,iterations=-1",
            "stored_key=" * 100,
        ]
    ),
)
odd_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PAYLOADS = st.one_of(
    st.binary(max_size=60),
    odd_json.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(
        st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512", "producer_byte_rate"]), CREDENTIALS | odd_json, max_size=3
    ).map(lambda config: json.dumps({"version": 1, "config": config}).encode()),
)


@settings(max_examples=examples(100), deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "%", "%zz", "b%2Fc", "<default>"]), PAYLOADS, max_size=3))
@example({"a": json.dumps({"version": 1, "config": {"SCRAM-SHA-256": "iterations=" + "9" * 5_000}}).encode()})
@example({"a": json.dumps({"version": 1, "config": {"SCRAM-SHA-256": "iterations=99999999999"}}).encode()})
def test_any_znode_of_a_user_is_read_or_left_out(nodes: dict[str, bytes]) -> None:
    """A readable credential can be described to a client, and hides no other user's."""
    good = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"

    async def look() -> None:
        zookeeper = FakeZooKeeper()
        for name, data in nodes.items():
            zookeeper.put(f"/config/users/{name}", data)
            zookeeper.put(f"/config/clients/{name}", data)
        zookeeper.put("/config/users/known", json.dumps({"version": 1, "config": {"SCRAM-SHA-256": good}}).encode())
        users = ScramUsers(zookeeper)  # type: ignore[arg-type] # as far as settings need it
        await users.read_all()
        assert users.credential("SCRAM-SHA-256", "known") is not None
        described = await users.describe([])
        results = [
            DescribeUserScramCredentialsResult(
                name, credential_infos=[CredentialInfo(number, of) for number, of in outcome.iterations.items()]
            )
            for name, outcome in described.items()
        ]
        assert encode(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsResponse(results=results))
        assert described["known"].iterations == {1: 4096}
        await ClientQuotas(zookeeper).describe({}, strict=False)  # type: ignore[arg-type] # the same

    asyncio.run(look())
    assert set(MECHANISMS) == {1, 2}


@settings(max_examples=examples(120), deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60),
        odd_json.map(lambda value: json.dumps(value).encode()),
        st.lists(
            st.fixed_dictionaries(
                {
                    "principal": st.sampled_from(["User:a", "a", ""]) | odd_json,
                    "permissionType": st.sampled_from(["Allow", "Deny", "Any"]) | odd_json,
                    "operation": st.sampled_from(["Read", "All", "Unknown"]) | odd_json,
                    "host": odd_json,
                }
            ),
            max_size=3,
        ).map(lambda acls: json.dumps({"version": 1, "acls": acls}).encode()),
        st.fixed_dictionaries(
            {"version": st.just(1), "resourceType": odd_json, "name": odd_json, "patternType": odd_json}
        ).map(lambda value: json.dumps(value).encode()),
    )
)
@example(b"[" * 100_000)
@example(b"{" * 100_000)
@example(b"Topic:" + b"x" * 100_000)
def test_any_znode_of_a_list_is_read_or_malformed(data: bytes) -> None:
    for decode in (decode_list, decode_change):
        refusal = ""
        try:
            decode(data)
        except MalformedZnode as problem:
            refusal = str(problem)
        assert len(refusal) < 3_000, "a refusal is for people"
