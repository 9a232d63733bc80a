"""The APIs that a broker serves, and advertises: those whose handler modules say so. No other table names them.

Without ``authorizer.class.name`` there are no guards: handlers are called as they are.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from tidegauge.kafka import apis
from tidegauge_broker.server.cluster.ports import AccessLists
from tidegauge_broker.server.wire.kafka import handlers as rooms
from tidegauge_broker.server.wire.kafka.authorization.asking import Ask
from tidegauge_broker.server.wire.kafka.handlers import api_versions
from tidegauge_broker.server.wire.kafka.request import Context, Handler
from tidegauge_broker.server.wire.kafka.responses import Response
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


def declared() -> Iterator[ServedApi]:
    """Yield the ``API`` or the ``SERVED_APIS`` of each module of handlers; what several share has neither."""
    for found in pkgutil.iter_modules(rooms.__path__, f"{rooms.__name__}."):
        module = import_module(found.name)
        if hasattr(module, "API"):
            yield module.API
        yield from getattr(module, "SERVED_APIS", ())


SERVED: dict[int, ServedApi] = {api.key: api for api in sorted(declared(), key=lambda api: api.key)}
_OWN = sorted([key for key in SERVED if key not in apis.EXTENSIONS] + [apis.API_VERSIONS])
SERVED[apis.API_VERSIONS] = api_versions.api_for(_OWN)
"""The APIs and extensions, by key; ``by_mode`` has the additional ones of KRaft mode."""
HANDLERS: dict[int, Handler] = {key: SERVED[key].handle for key in _OWN}
"""Without the extensions."""


def handlers_with(extensions: frozenset[int]) -> dict[int, Handler]:
    """Return the handlers with some of ``apis.EXTENSIONS``, advertised too."""
    if not extensions:
        return HANDLERS
    keys = sorted({*_OWN, *extensions})
    return {key: SERVED[key].handle for key in keys} | {apis.API_VERSIONS: api_versions.handler_for(keys)}


def guarded(
    handlers: Mapping[int, Handler], acls: AccessLists | None, served: Mapping[int, ServedApi] = SERVED
) -> dict[int, Handler]:
    """Return the handlers behind their guards, if there is an authorizer."""
    if acls is None:
        return dict(handlers)
    return {
        key: partial(_guard, acls, served[key], handler) if served[key].guard else handler
        for key, handler in handlers.items()
    }


def _guard(acls: AccessLists, api: ServedApi, handler: Handler, request: Any, context: Context) -> Response:
    assert api.guard is not None, "guarded leaves such handlers as they are"
    return api.guard(request, Ask(acls, context, api.key, api.form), handler)
