"""A request at the CONTROLLER listener, and its response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge_broker.server.wire.kafka.error_forms import AT_TOP, Form, refusal

Respond = Callable[[Any], None]
"""Sends the message of a response; a response to a closed connection is dropped."""
Refuse = Callable[[ErrorCode, str], None]


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was read.

    Attributes:
        key: of its API.
        version: of its message; -1: the body of an ApiVersions of an unknown version was not read.
        message: the request.
        respond: sends the response.
        refuse: sends the response to a request that fails as a whole, with the error and its sentence.
        principal: the client's.
        host: the client's address.
        client_id: as its request has it.
        is_open: returns whether the connection is there still; a large request of one that has closed is dropped.
        is_large: whether its frame may hold so many items that others would wait for it; such a request may be
            responded to and refused in any thread.
    """

    key: int
    version: int
    message: Any
    respond: Respond
    refuse: Refuse
    principal: Principal = ANONYMOUS
    host: str = ""
    client_id: str = ""
    is_open: Callable[[], bool] = lambda: True
    is_large: bool = False


class Served(NamedTuple):
    """An API that the listener serves.

    Attributes:
        key: its key.
        handle: takes a request.
        form: of the response to a request that fails as a whole.
        is_forwarded: whether brokers may send it inside an Envelope for their clients (KIP-590).
    """

    key: int
    handle: Callable[[Call], None]
    form: Form = AT_TOP
    is_forwarded: bool = False

    def refusal(self, version: int, request: Any, error: ErrorCode, message: str) -> Any:
        """Return the response to a request that fails as a whole."""
        return refusal(self.form, self.key, version, request, error, message, KRAFT_PROTOCOL)
