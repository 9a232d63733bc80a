"""Requests that no client of Kafka sends: each gets one response, none ends the controller, and none is a defect."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kafka.random_messages import random_struct
from tests.unit.server.one_controller import CLUSTER, OneController, controller_at

from tidegauge.errors import ErrorCode
from tidegauge.kafka.frames import codec_of, joined
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_APIS, KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages.envelope import EnvelopeRequest
from tidegauge.principal import Principal
from tidegauge_broker.server.quorum.controller.authorization import OF_CLUSTER
from tidegauge_broker.server.quorum.requests_in import READERS
from tidegauge_broker.server.wire.kafka.failed_responses import errors_in
from tidegauge_controller.metadata.delta import replayed
from tidegauge_controller.metadata.image import EMPTY, Provenance
from tidegauge_controller.metadata.snapshot import snapshot_records

KEYS = [
    apis.CREATE_TOPICS,
    apis.DELETE_TOPICS,
    apis.CREATE_PARTITIONS,
    apis.ELECT_LEADERS,
    apis.ALTER_PARTITION_REASSIGNMENTS,
    apis.LIST_PARTITION_REASSIGNMENTS,
    apis.INCREMENTAL_ALTER_CONFIGS,
    apis.ALTER_CONFIGS,
    apis.DESCRIBE_ACLS,
    apis.CREATE_ACLS,
    apis.DELETE_ACLS,
    apis.ALTER_CLIENT_QUOTAS,
    apis.ALTER_USER_SCRAM_CREDENTIALS,
    apis.UPDATE_FEATURES,
    apis.ALTER_PARTITION,
    apis.BROKER_REGISTRATION,
    apis.BROKER_HEARTBEAT,
    apis.UNREGISTER_BROKER,
    apis.ALLOCATE_PRODUCER_IDS,
    apis.ASSIGN_REPLICAS_TO_DIRS,
    apis.CONTROLLER_REGISTRATION,
    apis.DESCRIBE_CLUSTER,
    apis.API_VERSIONS,
    apis.ENVELOPE,
]
PER_VERSION = 25
OF_CONNECTIONS = {apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE}
"""Handled before a request has a principal."""
STRANGER = Principal("User", "mallory")


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[OneController]:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    rules = {"authorizer_class_name": authorizer, "allow_everyone_if_no_acl_found": "true"}
    async with controller_at(tmp_path, super_users="User:ANONYMOUS", **rules) as found:
        await found.register(0)
        await found.register(1, incarnation=2)
        await found.create("t", partitions=2, factor=2)
        yield found


def familiar(value: Any, rng: random.Random, one: OneController) -> None:
    """Put ids, names and epochs of the cluster into some fields of a message, so that it passes the first checks."""
    image = one.controller.image
    known = {
        "name": "t",
        "topic": "t",
        "resource_name": "t",
        "topic_name": "t",
        "broker_id": 0,
        "cluster_id": CLUSTER,
        "broker_epoch": image.brokers[0].epoch if 0 in image.brokers else -1,
        "partition_index": 0,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "resource_type": 2,
        "election_type": 1,
        "timeout_ms": 60_000,
        "topic_id": next(iter(_ids(one)), bytes(16)),
    }
    for field in getattr(value, "__slots__", ()):
        inner = getattr(value, field)
        if field in known and rng.random() < 0.8:
            setattr(value, field, known[field])
        elif isinstance(inner, list | tuple):
            for item in inner:
                familiar(item, rng, one)
        else:
            familiar(inner, rng, one)


def _ids(one: OneController) -> list[bytes]:
    records = snapshot_records(one.controller.image)
    return [record.message.topic_id for record in records if type(record.message).__name__ == "TopicRecord"]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: KRAFT_APIS[key].name)
async def test_each_request_gets_a_response_and_is_no_defect(
    key: int, one: OneController, caplog: pytest.LogCaptureFixture
):
    """ControllerApis: a request is refused with an error of Kafka's; UNKNOWN_SERVER_ERROR would be a defect here."""
    api = KRAFT_APIS[key]
    rng = random.Random(key)
    for version in range(api.first, api.last + 1):
        for number in range(PER_VERSION):
            message = random_struct(KRAFT_PROTOCOL.message_class(key, response=False), version, rng)
            if number % 2:
                familiar(message, rng, one)
            await one.ask(key, message, version)
    assert "defect" not in caplog.text
    assert one.controller.active is not None
    assert one.driver.failure is None
    await one.create(f"after-{key}")
    assert replayed(EMPTY, snapshot_records(one.controller.image), Provenance(), 0) == one.controller.image


@pytest.mark.parametrize("key", KEYS, ids=lambda key: KRAFT_APIS[key].name)
async def test_an_envelope_with_a_damaged_request_is_refused_or_handled(key: int, one: OneController):
    """EnvelopeUtils: what can't be read, or may not be forwarded, is the Envelope's error; the controller goes on."""
    api = KRAFT_APIS[key]
    rng = random.Random(key)
    for _ in range(PER_VERSION):
        version = rng.randint(api.first, api.last)
        message = random_struct(KRAFT_PROTOCOL.message_class(key, response=False), version, rng)
        frame = bytearray(joined(codec_of(key, version, KRAFT_PROTOCOL).request_frame(7, "fuzz", message))[4:])
        for _ in range(rng.randrange(3)):
            frame[rng.randrange(len(frame))] = rng.choice([0, 1, 127, 128, 255])
        principal = rng.choice([b"\0\0\x05User\x02a\0\0", b"\0\0\x05User", b"", None, b"\0\x01\x02a\x02a\0\0"])
        address = rng.choice([bytes(4), bytes(16), b"abc"])
        response = await one.ask(apis.ENVELOPE, EnvelopeRequest(bytes(frame), principal, address))
        assert (response.error_code == 0) == (response.response_data is not None)
    assert one.controller.active is not None
    assert one.driver.failure is None


async def test_every_api_of_the_listener_is_among_the_random_ones(one: OneController):
    """The quorum's APIs have random requests of their own, at nodes in each role."""
    assert set(one.handlers) == {*KEYS, *READERS, *OF_CONNECTIONS}


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[OneController]:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    async with controller_at(tmp_path, super_users="User:ANONYMOUS", authorizer_class_name=authorizer) as found:
        await found.register(0)
        await found.create("t")
        yield found


@pytest.mark.parametrize("key", sorted({*KEYS, *READERS}), ids=lambda key: KRAFT_APIS[key].name)
async def test_no_request_of_a_stranger_writes_anything(
    key: int, guarded: OneController, caplog: pytest.LogCaptureFixture
):
    """ControllerApis: without CLUSTER_ACTION, or what else an API needs, it is refused in every version."""
    api = KRAFT_APIS[key]
    rng = random.Random(key)
    image, epoch = guarded.controller.image, guarded.node.state.epoch
    end = guarded.node.log.end_offset
    for version in range(api.first, api.last + 1):
        for number in range(PER_VERSION):
            message = random_struct(KRAFT_PROTOCOL.message_class(key, response=False), version, rng)
            if number % 2:
                familiar(message, rng, guarded)
            response = await guarded.ask(key, message, version, STRANGER)
            if key in OF_CLUSTER:
                assert errors_in(response) <= {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert "defect" not in caplog.text
    assert (guarded.node.log.end_offset, guarded.node.state.epoch) == (end, epoch)
    assert guarded.controller.image == image
    assert guarded.controller.active is not None
