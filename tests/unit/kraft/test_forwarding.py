"""Requests that a broker in KRaft mode hands on to the controller, and those that it serves (KIP-590, KIP-896)."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegauge.consumer_groups import ConsumerGroupHeartbeatResult
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.apis import SHARE_APIS
from tidegauge.kafka.frames import RequestHeader, codec_of, decode, joined, read_request_header
from tidegauge.kafka.kraft.apis import DESCRIBE_QUORUM
from tidegauge.kafka.kraft.broker_apis import FORWARDED, KRAFT_BROKER_APIS, KRAFT_BROKER_PROTOCOL
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidegauge.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidegauge.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidegauge.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidegauge.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge.share_groups import ShareGroupHeartbeatResult
from tidegauge_broker.server.cluster.kraft.forwarding import serialized
from tidegauge_broker.server.cluster.ports import Features
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.wire.kafka.by_mode import Serving, serving_of
from tidegauge_broker.server.wire.kafka.request import CloseConnection
from tidegauge_broker.server.wire.kafka.served import SERVED

ALICE = Principal("User", "alice")


class Controller:
    """A controller that responds with a message, or a refusal; it notes what it is sent."""

    def __init__(self, response: Any = None, refusal: ErrorCode | None = None) -> None:
        self.response = response
        self.refusal = refusal
        self.known: dict[int, tuple[int, int]] = {}
        self.sent: list[tuple[bytes, Principal, str]] = []

    async def forward(self, request: bytes, principal: Principal, host: str) -> bytes:
        self.sent.append((request, principal, host))
        if self.refusal is not None:
            raise TidegaugeError(self.refusal, "no controller has responded")
        header = read_request_header(memoryview(request), KRAFT_BROKER_PROTOCOL)
        codec = codec_of(header.key, header.version, KRAFT_BROKER_PROTOCOL)
        return joined(codec.response_frame(header.correlation_id, codec.encode(self.response)))[4:]

    def versions(self) -> Mapping[int, tuple[int, int]]:
        return self.known


def served(
    controller: Controller, group_version: int = 0, share_version: int = 0, *, has_consumer: bool = True
) -> Serving:
    """Return the APIs of a broker that forwards requests to this controller."""
    finalized = {"metadata.version": 30, "group.version": group_version, "share.version": share_version}
    features = Features(41, finalized, {"metadata.version": (25, 30), "kraft.version": (0, 1)})
    return serving_of(controller, lambda: features, serves_consumer_groups=has_consumer, serves_share_groups=True)


def context(key: int, version: int) -> Any:
    """The context of a request of alice."""
    header = RequestHeader(key, version, 7, "c", 0)
    caller = SimpleNamespace(principal=ALICE, host="10.0.0.9")
    return SimpleNamespace(header=header, version=version, caller=caller)


async def ask(serving: Serving, key: int, version: int, request: Any) -> Any:
    found = serving.handlers[key](request, context(key, version))
    return await found if hasattr(found, "__await__") else found


def advertised(serving: Serving, version: int = 4) -> ApiVersionsResponse:
    encoded: Any = serving.handlers[apis.API_VERSIONS](
        ApiVersionsRequest("a", "1"), context(apis.API_VERSIONS, version)
    )
    message, _ = decode(apis.API_VERSIONS, version, memoryview(joined(encoded.body)), response=True)
    return message  # type: ignore[no-any-return] # of this API


async def test_a_request_goes_to_the_controller_as_it_came_with_the_clients_principal() -> None:
    """Envelope: the whole request, header included; the response comes back to the client."""
    controller = Controller(CreateTopicsResponse(topics=[CreatableTopicResult("t", bytes(16), 36, "there")]))
    request = CreateTopicsRequest([CreatableTopic("t", 1, 1)], 5_000)
    response = await ask(served(controller), apis.CREATE_TOPICS, 7, request)
    assert [(one.name, one.error_code) for one in response.topics] == [("t", 36)]
    [(sent, principal, host)] = controller.sent
    assert (principal, host) == (ALICE, "10.0.0.9")
    header = read_request_header(memoryview(sent), KRAFT_BROKER_PROTOCOL)
    assert (header.key, header.version, header.correlation_id, header.client_id) == (apis.CREATE_TOPICS, 7, 7, "c")


async def test_without_a_controller_the_response_is_the_apis_own_error() -> None:
    controller = Controller(refusal=ErrorCode.REQUEST_TIMED_OUT)
    response = await ask(served(controller), apis.CREATE_TOPICS, 7, CreateTopicsRequest([CreatableTopic("t", 1, 1)]))
    assert [one.error_code for one in response.topics] == [ErrorCode.REQUEST_TIMED_OUT]


async def test_a_version_that_the_controller_does_not_know_closes_the_connection() -> None:
    """ForwardingManager: UNSUPPORTED_VERSION makes the client ask for the versions again."""
    controller = Controller(refusal=ErrorCode.UNSUPPORTED_VERSION)
    with pytest.raises(CloseConnection):
        await ask(served(controller), apis.CREATE_TOPICS, 7, CreateTopicsRequest())


def settings_of(*values: tuple[int, str, str, str | None]) -> IncrementalAlterConfigsRequest:
    """A request that sets one setting of each resource: type, name, setting, value."""
    return IncrementalAlterConfigsRequest(
        [AlterConfigsResource(kind, name, [AlterableConfig(key, 0, value)]) for kind, name, key, value in values]
    )


class Service:
    """A broker's own judgement of its settings; it notes what it is asked."""

    def __init__(self, refusal: ErrorCode = ErrorCode.NONE) -> None:
        self.refusal = refusal
        self.asked: list[tuple[str, dict[str, str], bool]] = []

    async def describe_configs(self, resource_type: int, name: str) -> Any:
        return SimpleNamespace(error=ErrorCode.NONE, message="", entries=[])

    async def alter_configs(self, kind: int, name: str, changed: Any, deleted: Any, *, validate_only: bool) -> Any:
        self.asked.append((name, changed, validate_only))
        return SimpleNamespace(error=self.refusal, message="no such value")


async def altered(controller: Controller, service: Service, request: Any) -> list[tuple[str, int]]:
    """Names of the resources, and their errors, as a client gets them."""
    asked = context(apis.INCREMENTAL_ALTER_CONFIGS, 1)
    asked.service = service
    response = await cast("Any", served(controller).handlers[apis.INCREMENTAL_ALTER_CONFIGS](request, asked))
    return [(one.resource_name, one.error_code) for one in response.responses]


@pytest.mark.parametrize("name", ["log.cleaner.threads", "listener.name.sasl_ssl.plain.sasl.jaas.config"])
async def test_a_setting_of_a_broker_is_judged_here_and_not_sent_if_it_is_refused(name: str) -> None:
    """ConfigAdminManager.preprocess: the controller keeps whatever it is given for a broker, secrets too."""
    controller = Controller(
        IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(0, None, ConfigResourceType.TOPIC, "t")]
        )
    )
    service = Service(ErrorCode.INVALID_REQUEST)
    broker, topic = ConfigResourceType.BROKER, ConfigResourceType.TOPIC
    request = settings_of((broker, "0", name, "abc"), (topic, "t", "retention.ms", "1"))
    assert await altered(controller, service, request) == [("0", ErrorCode.INVALID_REQUEST), ("t", ErrorCode.NONE)]
    assert service.asked == [("0", {name: "abc"}, True)]
    sent = decode_request(controller.sent[0][0])
    assert [one.resource_name for one in sent.resources] == ["t"]


async def test_a_setting_that_a_broker_takes_goes_to_the_controller() -> None:
    """Nothing is changed here: the broker learns of it by its image."""
    broker = ConfigResourceType.BROKER
    controller = Controller(
        IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(0, None, broker, "")])
    )
    service = Service()
    request = settings_of((broker, "", "log.cleaner.threads", "2"))
    assert await altered(controller, service, request) == [("", ErrorCode.NONE)]
    assert [one.resource_name for one in decode_request(controller.sent[0][0]).resources] == [""]
    assert service.asked == [("", {"log.cleaner.threads": "2"}, True)]


@pytest.mark.parametrize(
    "values",
    [
        [(ConfigResourceType.TOPIC, "t", "retention.ms", None)],
        [(ConfigResourceType.TOPIC, "t", "retention.ms", "1"), (ConfigResourceType.TOPIC, "t", "segment.ms", "1")],
        [(99, "t", "retention.ms", "1")],
    ],
    ids=["null", "named twice", "of an unknown type"],
)
async def test_what_contradicts_itself_is_refused_before_the_controller_hears_of_it(values: Any) -> None:
    """ConfigAdminManager.preprocess, for resources of any type."""
    controller = Controller()
    found = await altered(controller, Service(), settings_of(*values))
    assert {error for _, error in found} == {ErrorCode.INVALID_REQUEST}
    assert controller.sent == []


def decode_request(sent: bytes) -> Any:
    """The message of a request that was handed on."""
    header = read_request_header(memoryview(sent), KRAFT_BROKER_PROTOCOL)
    codec = codec_of(header.key, header.version, KRAFT_BROKER_PROTOCOL)
    return codec.decode_request(memoryview(sent), header.body_at)[0]


def test_a_principal_is_serialized_as_kafkas() -> None:
    """DefaultKafkaPrincipalBuilder.serialize, as recorded from a broker of 4.3.1."""
    assert serialized(ANONYMOUS) == bytes.fromhex("000005557365720a414e4f4e594d4f55530000")


async def test_a_broker_can_switch_the_consumer_protocol_off() -> None:
    """group.coordinator.rebalance.protocols=classic: refused whatever group.version says, and advertised."""
    serving = served(Controller(), 1, has_consumer=False)
    key = apis.CONSUMER_GROUP_HEARTBEAT
    response = await ask(serving, key, 1, ConsumerGroupHeartbeatRequest("g", "", 0))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert key in {one.api_key for one in advertised(serving).api_keys}


@pytest.mark.parametrize(("group_version", "error"), [(0, ErrorCode.UNSUPPORTED_VERSION), (1, ErrorCode.NONE)])
async def test_group_version_says_whether_the_consumer_protocol_is_served(group_version: int, error: ErrorCode) -> None:
    """KafkaApis.isConsumerGroupProtocolEnabled: the API is advertised at any level, and refused at level 0."""
    serving = served(Controller(), group_version)
    key = apis.CONSUMER_GROUP_HEARTBEAT
    assert key in {one.api_key for one in advertised(serving).api_keys}
    asked = context(key, 1)
    asked.may_describe = None
    asked.service = SimpleNamespace(groups=SimpleNamespace(ask=_beaten))
    found = serving.handlers[key](ConsumerGroupHeartbeatRequest("g", "m"), asked)
    response = await found if hasattr(found, "__await__") else found
    assert response.error_code == error


@pytest.mark.parametrize(("share_version", "error"), [(0, ErrorCode.UNSUPPORTED_VERSION), (1, ErrorCode.NONE)])
async def test_share_version_says_whether_the_share_protocol_is_served(share_version: int, error: ErrorCode) -> None:
    """KafkaApis.isShareGroupProtocolEnabled, which is asked before any right; states of share partitions ask it not."""
    serving = served(Controller(), share_version=share_version)
    key = apis.SHARE_GROUP_HEARTBEAT
    assert SHARE_APIS.keys() & SERVED.keys() <= {one.api_key for one in advertised(serving).api_keys}
    asked = context(key, 1)
    asked.service = SimpleNamespace(groups=SimpleNamespace(ask=_share_beaten))
    request = ShareGroupHeartbeatRequest("g", "m")
    found = serving.handlers[key](request, asked)
    response = await found if hasattr(found, "__await__") else found
    assert response.error_code == error
    guard, judged = serving.apis[key].guard, Judged(asked)
    assert guard is not None
    assert guard(request, cast("Any", judged), serving.handlers[key]).error_code == (error or Judged.ERROR)
    unguarded = serving.apis[apis.READ_SHARE_GROUP_STATE].handle
    assert unguarded is SERVED[apis.READ_SHARE_GROUP_STATE].handle


class Judged(SimpleNamespace):
    """The questions about a request of a principal that may do nothing."""

    ERROR = ErrorCode.GROUP_AUTHORIZATION_FAILED

    def __init__(self, asked: Any) -> None:
        super().__init__(context=asked)

    def group(self, *_: Any) -> bool:
        return False

    def refused(self, _request: Any, error: ErrorCode) -> Any:
        return ShareGroupHeartbeatResponse(error_code=error)


async def _share_beaten(_request: Any) -> ShareGroupHeartbeatResult:
    return ShareGroupHeartbeatResult()


async def _beaten(_request: Any) -> ConsumerGroupHeartbeatResult:
    return ConsumerGroupHeartbeatResult()


def test_what_kraft_mode_does_not_have_is_not_served() -> None:
    """The control requests of ZooKeeper mode, delegation tokens, and what brokers ask of controllers."""
    serving = served(Controller())
    removed = {4, 5, 6, 7, 38, 39, 40, 41, apis.ALTER_PARTITION, apis.ALLOCATE_PRODUCER_IDS}
    assert removed.isdisjoint(serving.handlers)
    assert removed.isdisjoint(one.api_key for one in advertised(serving).api_keys)


@pytest.mark.parametrize(
    ("key", "first", "last"), [(apis.PRODUCE, 3, 13), (apis.FETCH, 4, 18), (apis.LIST_OFFSETS, 1, 11), (19, 2, 7)]
)
def test_removed_versions_are_refused(key: int, first: int, last: int) -> None:
    """KIP-896."""
    row = KRAFT_BROKER_APIS[key]
    assert (row.first, row.last) == (first, last)
    assert not row.has(first - 1)


def test_produce_is_advertised_from_version_0() -> None:
    """KAFKA-18659: as brokers of 4.3.1 do."""
    found = {one.api_key: (one.min_version, one.max_version) for one in advertised(served(Controller())).api_keys}
    assert found[apis.PRODUCE] == (0, 13)


def test_what_is_handed_on_has_the_versions_of_both() -> None:
    """ApiVersionManager: the intersection with the controller's."""
    controller = Controller()
    controller.known = {apis.CREATE_TOPICS: (0, 5), DESCRIBE_QUORUM: (3, 4)}
    found = {one.api_key: (one.min_version, one.max_version) for one in advertised(served(controller)).api_keys}
    assert found[apis.CREATE_TOPICS] == (2, 5)
    assert DESCRIBE_QUORUM not in found, "they have no version in common"
    assert FORWARDED & found.keys() == {apis.CREATE_TOPICS}


def test_features_are_advertised_with_the_offset_at_which_they_are_in_force() -> None:
    """finalizedFeaturesEpoch is the metadata offset; before version 4 a lowest level of 0 is left out (KAFKA-17011)."""
    found = advertised(served(Controller()))
    assert found.finalized_features_epoch == 41
    assert [(one.name, one.max_version_level) for one in found.finalized_features] == [("metadata.version", 30)]
    assert [one.name for one in found.supported_features] == ["kraft.version", "metadata.version"]
    assert [one.name for one in advertised(served(Controller()), 3).supported_features] == ["metadata.version"]
