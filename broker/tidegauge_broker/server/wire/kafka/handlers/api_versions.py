"""ApiVersions (18), versions 0-4: which APIs, in which versions, this broker serves.

A version that is not known is responded to in version 0 with UNSUPPORTED_VERSION and the versions of ApiVersions alone;
its body is not read (KIP-511). From version 3 on a client software name or version that is empty or contains other than
letters, digits, dots and dashes gets INVALID_REQUEST and no list.
Source: ``KafkaApis.handleApiVersionsRequest``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.apis import API_VERSIONS, APIS, Api
from tidegauge.kafka.frames import encode
from tidegauge.kafka.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidegauge_broker.server.wire.kafka.client_software import is_valid
from tidegauge_broker.server.wire.kafka.request import Context, Handler
from tidegauge_broker.server.wire.kafka.responses import Encoded
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


def handler_for(served: Sequence[int], rows: Mapping[int, Api] = APIS) -> Handler:
    """Return the handler for these API keys, in these rows' versions."""

    @functools.cache
    def versions(version: int) -> Encoded:
        keys = [ApiVersion(key, rows[key].first, rows[key].last) for key in served]
        response = ApiVersionsResponse(api_keys=keys, finalized_features_epoch=0)
        return Encoded(encode(API_VERSIONS, version, response), version)

    def handle(request: ApiVersionsRequest | None, context: Context) -> Encoded:
        api = rows[API_VERSIONS]
        if request is None or not api.has(context.version):
            keys = [ApiVersion(API_VERSIONS, api.first, api.last)]
            response = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, keys)
            return Encoded(encode(API_VERSIONS, 0, response), 0)
        version = context.version
        if not is_valid(context.header, request):
            response = ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
            return Encoded(encode(API_VERSIONS, version, response), version)
        return versions(version)

    return handle


def api_for(served: Sequence[int]) -> ServedApi:
    """Return the API of a broker that serves these keys."""
    return ServedApi(apis.API_VERSIONS, handler_for(served), guard=None, only_reads=True)
