"""A service that returns what a test says, and the context of a request to a handler."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

from tidegauge.kafka.apis import APIS, BROKER_PROTOCOL, Protocol, message_class
from tidegauge.kafka.frames import RequestHeader, decode, encode, joined
from tidegauge.kafka.header_tags import NO_TAGS, Tags
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.responses import Encoded, Held, Pending
from tidegauge_broker.server.wire.kafka.served import SERVED
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache

KEYS = {api.name: key for key, api in APIS.items()}


class FakeService(SimpleNamespace):
    """Has the methods and attributes that the test gives; notes the arguments of each call."""

    def __init__(self, **responses: Any) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        for name, response in responses.items():
            setattr(self, name, self._method(name, response) if callable(response) else response)

    def _method(self, name: str, response: Any) -> Any:
        def called(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, arguments, named))
            return response(*arguments, **named)

        return called


async def ask(
    service: Any,
    name: str,
    version: int,
    request: Any,
    client_id: str | None = "test",
    tags: Tags = NO_TAGS,
    principal: Principal = ANONYMOUS,
    protocol: Protocol = BROKER_PROTOCOL,
) -> Any:
    """Return a handler's response, encoded and decoded in a client's version."""
    key = KEYS[name]
    sent = memoryview(joined(encode(key, version, request, protocol)))
    request, _ = decode(key, version, sent, protocol=protocol)
    context = Context(
        service,
        Caller("test", "PLAINTEXT", principal=principal),
        FetchSessionCache(10, lambda: 1),
        lambda: 0,
        RequestHeader(key, version, 1, client_id, 0, tags),
    )
    response = SERVED[key].handle(request, context)
    if isinstance(response, Pending):
        response = response.respond(await response.future)
    elif inspect.isawaitable(response):
        response = await response
    if isinstance(response, Held):
        response = response.message
    if isinstance(response, Encoded):
        return decode(key, response.version, memoryview(joined(response.body)), response=True)[0]
    assert isinstance(response, message_class(key, response=True))
    encoded = memoryview(joined(encode(key, version, response, protocol)))
    return decode(key, version, encoded, response=True, protocol=protocol)[0]


def versions(name: str) -> range:
    """Return all versions of an API."""
    api = APIS[KEYS[name]]
    return range(api.first, api.last + 1)
