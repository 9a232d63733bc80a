"""The APIs of Kafka's protocol that a broker serves, their versions and handlers, by its cluster's mode.

In KRaft mode requests that change the cluster's metadata are handed on to the active controller (``FORWARDED``). Their
content is not judged here, except for settings of brokers (``forwarded_configs``): the controller knows their users.
ApiVersions of such an API has the versions that the controller serves as well.
Source: ``ApiVersionManager``, ``ForwardingManagerImpl``, ``KafkaApis.forwardToController``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import (
    API_VERSIONS,
    BROKER_PROTOCOL,
    INITIALIZE_SHARE_GROUP_STATE,
    OF_CONSUMER_GROUPS,
    READ_SHARE_GROUP_STATE_SUMMARY,
    SHARE_APIS,
    Api,
    Protocol,
)
from tidegauge.kafka.frames import codec_of, encode, joined
from tidegauge.kafka.kraft.broker_apis import ADVERTISED_FROM, FORWARDED, KRAFT_BROKER_APIS, KRAFT_BROKER_PROTOCOL
from tidegauge.kafka.kraft.features import GROUP_VERSION, SHARE_VERSION
from tidegauge.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tidegauge.kafka.releases import release_of
from tidegauge_broker.server.cluster.ports import Features, Forwarding
from tidegauge_broker.server.wire.kafka.authorization.asking import Ask
from tidegauge_broker.server.wire.kafka.callers import is_of_broker
from tidegauge_broker.server.wire.kafka.client_software import is_valid
from tidegauge_broker.server.wire.kafka.handlers import (
    as_of_kafka_4,
    describe_topic_partitions,
    forwarded_configs,
    list_config_resources,
)
from tidegauge_broker.server.wire.kafka.handlers.api_versions import handler_for
from tidegauge_broker.server.wire.kafka.request import CloseConnection, Context, Handler
from tidegauge_broker.server.wire.kafka.responses import Encoded
from tidegauge_broker.server.wire.kafka.served import SERVED, handlers_with
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN, run_in_turns

_LENGTH_BYTES = 4
_WITH_ZERO_MINIMA = 4
"""The version of ApiVersions from which features may have 0 as the lowest level (KAFKA-17011)."""


class Serving(NamedTuple):
    """The APIs that a broker's listeners serve.

    Attributes:
        protocol: the APIs and their versions.
        apis: the description of each API that has a handler.
        handlers: by key.
        of_clients: the view of clients, if the broker passes for a release; None: all of it.
    """

    protocol: Protocol
    apis: Mapping[int, ServedApi]
    handlers: Mapping[int, Handler]
    of_clients: Protocol | None = None


def serving_of(
    forwarding: Forwarding | None,
    features: Callable[[], Features | None],
    *,
    serves_consumer_groups: bool,
    serves_share_groups: bool,
    as_kafka: str = "",
) -> Serving:
    """Return what a broker serves.

    Args:
        forwarding: hands requests on to the controller; None: the broker is in ZooKeeper mode.
        features: returns the features that are in force.
        serves_consumer_groups: whether groups of the consumer protocol are served (KIP-848).
        serves_share_groups: whether groups of the share protocol are served (KIP-932).
        as_kafka: the release that it passes for: its clients see no more than that has; empty: none.

    Raises:
        TidegaugeError: INVALID_CONFIG, it can't pass for this release.
    """
    release = release_of(as_kafka, is_kraft=forwarding is not None)
    extensions = frozenset(
        {*(OF_CONSUMER_GROUPS if serves_consumer_groups else ()), *(SHARE_APIS if serves_share_groups else ())}
    )
    if forwarding is None:
        found = handlers_with(extensions)
        if release is None:
            return Serving(BROKER_PROTOCOL, SERVED, found)
        of_clients = release.served(BROKER_PROTOCOL)
        seen = handler_for(sorted(found.keys() & of_clients.apis.keys()), of_clients.apis)
        return Serving(BROKER_PROTOCOL, SERVED, found | _versions_by_caller(found, seen), of_clients)
    known = {
        **SERVED,
        **{one.key: one for one in as_of_kafka_4.KRAFT_VARIANTS},
        **{one.key: one for one in (describe_topic_partitions.KRAFT_API, list_config_resources.KRAFT_API)},
    }
    apis = {key: _served(key, known.get(key)) for key in KRAFT_BROKER_APIS if key in known or key in FORWARDED}
    off = frozenset() if serves_consumer_groups else OF_CONSUMER_GROUPS
    apis |= {key: _with_feature(features, apis[key], is_off=key in off) for key in _FEATURE_OF.keys() & apis.keys()}
    keys = sorted(apis)
    handlers: dict[int, Handler] = {
        key: partial(_forward, forwarding, apis[key]) if key in FORWARDED else apis[key].handle for key in keys
    }
    handlers |= {
        key: forwarded_configs.handler_of(key, partial(_forward, forwarding, apis[key]))
        for key in forwarded_configs.JUDGED_FIRST
    }
    handlers[API_VERSIONS] = partial(_api_versions, [KRAFT_BROKER_APIS[key] for key in keys], forwarding, features)
    if release is None:
        return Serving(KRAFT_BROKER_PROTOCOL, apis, handlers)
    of_clients = release.served(KRAFT_BROKER_PROTOCOL)
    rows = [of_clients.apis[key] for key in keys if key in of_clients.apis]
    seen = partial(_api_versions, rows, forwarding, features)
    return Serving(KRAFT_BROKER_PROTOCOL, apis, handlers | _versions_by_caller(handlers, seen), of_clients)


def _versions_by_caller(handlers: Mapping[int, Handler], seen: Handler) -> dict[int, Handler]:
    """Return the handler of ApiVersions: all for brokers, ``seen`` for others."""
    whole = handlers[API_VERSIONS]

    def handle(request: Any, context: Context) -> Any:
        return (whole if is_of_broker(context.header) else seen)(request, context)

    return {API_VERSIONS: handle}


def _served(key: int, known: ServedApi | None) -> ServedApi:
    """Return an API's description in KRaft mode, where the controller judges."""
    if known is None:
        return ServedApi(key, _nowhere, guard=None, protocol=KRAFT_BROKER_PROTOCOL)
    found = known._replace(protocol=KRAFT_BROKER_PROTOCOL)
    return found._replace(guard=None, division=None) if key in FORWARDED else found


def _nowhere(request: Any, context: Context) -> Coroutine[Any, Any, Any]:
    """Handle nothing: the API is handed on."""
    raise AssertionError(f"API {context.header.key} is handed on, and {request!r} with it")


async def _forward(forwarding: Forwarding, api: ServedApi, request: Any, context: Context) -> Any:
    """Return the controller's response, or an error in the API's form."""
    header, caller = context.header, context.caller
    codec = codec_of(header.key, header.version, KRAFT_BROKER_PROTOCOL)
    body = await run_in_turns(codec.encode_in_slices(request, ITEMS_PER_TURN))
    frame = joined(codec.framed_request(header.correlation_id, header.client_id, body))[_LENGTH_BYTES:]
    try:
        response = memoryview(await forwarding.forward(frame, caller.principal, caller.host))
    except TidegaugeError as problem:
        if problem.code is ErrorCode.UNSUPPORTED_VERSION:
            raise CloseConnection(f"the controller does not serve {api.name} v{header.version}") from None
        return await asyncio.to_thread(api.refusal, header.version, request, problem.code, problem.message)
    _, body_at, _ = codec.read_response_header(response)
    return await run_in_turns(codec.decode_in_slices(response, body_at, ITEMS_PER_TURN, response=True))


_FEATURE_OF: Mapping[int, str] = {
    **dict.fromkeys(OF_CONSUMER_GROUPS, GROUP_VERSION),
    **{
        key: SHARE_VERSION
        for key in SHARE_APIS
        if not INITIALIZE_SHARE_GROUP_STATE <= key <= READ_SHARE_GROUP_STATE_SUMMARY
    },
}
"""The feature that must be at level 1 at least, by API. APIs for states of share partitions need none."""


def _with_feature(features: Callable[[], Features | None], api: ServedApi, *, is_off: bool) -> ServedApi:
    """Return an API that is refused first while its feature is off.

    Args:
        features: returns the features that are in force.
        api: its description.
        is_off: whether the broker's own settings switch its protocol off.

    Source: ``KafkaApis.isConsumerGroupProtocolEnabled`` and ``isShareGroupProtocolEnabled``.
    """
    name, guard = _FEATURE_OF[api.key], api.guard

    def refusal(request: Any, context: Context) -> Any:
        found = features()
        if is_off or found is None or found.finalized.get(name, 0) < 1:
            return api.refusal(context.header.version, request, ErrorCode.UNSUPPORTED_VERSION, None)
        return None

    def handle(request: Any, context: Context) -> Any:
        refused = refusal(request, context)
        return api.handle(request, context) if refused is None else refused

    def guarded(request: Any, ask: Ask, handler: Handler) -> Any:
        assert guard is not None
        refused = refusal(request, ask.context)
        return guard(request, ask, handler) if refused is None else refused

    return api._replace(handle=handle, guard=None if guard is None else guarded)


def _api_versions(
    rows: list[Api],
    forwarding: Forwarding,
    features: Callable[[], Features | None],
    request: ApiVersionsRequest | None,
    context: Context,
) -> Encoded:
    version = context.version
    if request is None:
        row = KRAFT_BROKER_APIS[API_VERSIONS]
        known = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(API_VERSIONS, row.first, row.last)])
        return Encoded(encode(API_VERSIONS, 0, known), 0)
    if not is_valid(context.header, request):
        return Encoded(encode(API_VERSIONS, version, ApiVersionsResponse(ErrorCode.INVALID_REQUEST)), version)
    response = ApiVersionsResponse(api_keys=list(_ranges(rows, forwarding.versions())))
    found = features()
    if found is not None:
        response.finalized_features_epoch = found.epoch
        response.finalized_features = [
            FinalizedFeatureKey(name, level, level) for name, level in sorted(found.finalized.items()) if level > 0
        ]
        response.supported_features = [
            SupportedFeatureKey(name, lowest, highest)
            for name, (lowest, highest) in sorted(found.supported.items())
            if lowest > 0 or version >= _WITH_ZERO_MINIMA
        ]
    return Encoded(encode(API_VERSIONS, version, response), version)


def _ranges(rows: list[Api], controllers: Mapping[int, tuple[int, int]]) -> Iterator[ApiVersion]:
    """Yield the versions of each API; of one that is handed on only those that the controller serves too."""
    for row in rows:
        key = row.key
        first, last = ADVERTISED_FROM.get(key, row.first), row.last
        if key in FORWARDED and controllers:
            lowest, highest = controllers.get(key, (0, -1))
            first, last = max(first, lowest), min(last, highest)
        if first <= last:
            yield ApiVersion(key, first, last)
