"""The client of the probe: connections to brokers, requests, and the facts that are noted.

Responses are shown field by field. Values that differ by run (ids, ports, times) are replaced by a word (``WORDS``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.waiting import until

from tidegauge.kafka.apis import API_VERSIONS, APIS, BROKER_PROTOCOL, Protocol, message_class
from tidegauge.kafka.fields import wires_of
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame

Facts = dict[str, str]
LIMIT_SECONDS = 30.0
SILENCE_SECONDS = 1.0
CLOSED = "closed"
SILENT = "no response"
CLIENT_ID = "probe"
KEYS = {api.name: key for key, api in APIS.items()}
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
"""The random part of a member's id."""
WORDS: Mapping[str, Callable[[Any], Any]] = {
    "topic_id": lambda value: "ID" if any(value) else "none",
    "host": lambda value: "HOST" if value else "",
    "port": lambda value: "PORT" if value > 0 else value,
    "cluster_id": lambda value: "ID" if value else value,
    "session_id": lambda value: "SESSION" if value else 0,
    "producer_id": lambda value: "ID" if value >= 0 else value,
    "member_id": lambda value: UUID.sub("ID", value),
    "leader": lambda value: UUID.sub("ID", str(value)),
    "total_bytes": lambda value: "BYTES" if value > 0 else value,
    "usable_bytes": lambda value: "BYTES" if value > 0 else value,
    "node_id": lambda value: "NODE" if value >= 0 else value,
    "log_dir": lambda value: "DIRECTORY" if value else value,
    "last_timestamp": lambda value: "TIME" if value > 0 else value,
    "transaction_start_time_ms": lambda value: "TIME" if value > 0 else value,
}
"""Placeholder for a field of this name, if its value is not the same in each run."""


_NONE_GIVEN = object()


class Peer:
    """One connection. A broker that does not respond gives a value: ``CLOSED``, ``SILENT``."""

    def __init__(self, host: str, port: int, client_id: str = CLIENT_ID, protocol: Protocol = BROKER_PROTOCOL) -> None:
        self._socket = socket.create_connection((host, port), LIMIT_SECONDS)
        self._client_id, self._protocol = client_id, protocol
        self._keys = KEYS if protocol is BROKER_PROTOCOL else {api.name: key for key, api in protocol.apis.items()}
        self._count = 0

    def close(self) -> None:
        self._socket.close()

    def send(self, version: int, request: Any) -> int:
        """Send a request; return its correlation id."""
        self._count += 1
        key = self._keys[type(request).__name__.removesuffix("Request")]
        frame = request_frame(key, version, self._count, self._client_id, request, protocol=self._protocol)
        self.send_bytes(joined(frame))
        return self._count

    def send_bytes(self, data: bytes) -> None:
        """Send what need not be a request; a broker may have closed already."""
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(data)

    def frame(self, seconds: float = LIMIT_SECONDS) -> bytes | None:
        """Return the next frame; None: the connection is closed.

        Raises:
            TimeoutError: nothing came.
        """
        self._socket.settimeout(seconds)
        header = self._exactly(4)
        return None if header is None else self._exactly(struct.unpack(">i", header)[0])

    def _exactly(self, count: int) -> bytes | None:
        found = b""
        while len(found) < count:
            try:
                part = self._socket.recv(count - len(found))
            except ConnectionError:
                return None
            if not part:
                return None
            found += part
        return found

    def receive(self, version: int, request: Any, seconds: float = LIMIT_SECONDS) -> Any:
        """Return the response to a request of this class, or its absence."""
        key = self._keys[type(request).__name__.removesuffix("Request")]
        try:
            frame = self.frame(seconds)
        except TimeoutError:
            return SILENT
        if frame is None:
            return CLOSED
        view = memoryview(frame)
        _, at = read_response_header(key, version, view, self._protocol)
        return decode(key, version, view, at, response=True, protocol=self._protocol)[0]

    def ask(self, version: int, request: Any, seconds: float = LIMIT_SECONDS) -> Any:
        """Send a request and return its response."""
        self.send(version, request)
        return self.receive(version, request, seconds)


class Probe:
    """Asks the brokers of one cluster, and notes what they respond.

    Args:
        addresses: host and port of each broker's Kafka listener.
        say: called with the name of each part of the probe, as it begins.
        protocol: what the brokers serve.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        say: Callable[[str], None] = lambda _: None,
        protocol: Protocol = BROKER_PROTOCOL,
    ) -> None:
        self.say = say
        self._protocol = protocol
        self.facts: Facts = {}
        self._peers: dict[int, Peer] = {}
        self._addresses = dict(enumerate(addresses))
        self._first = Peer(*addresses[0])
        served = self._first.ask(0, message("ApiVersions")).api_keys
        self.versions = {one.api_key: (one.min_version, one.max_version) for one in served}
        metadata = self._first.ask(12, message("Metadata", topics=[]))
        self._addresses = {one.node_id: (one.host, one.port) for one in metadata.brokers}
        self.controller = metadata.controller_id
        self.brokers = sorted(self._addresses)

    def close(self) -> None:
        for peer in (self._first, *self._peers.values()):
            peer.close()

    def serves(self, *names: str) -> bool:
        """Whether the cluster advertises these APIs."""
        return all(KEYS[name] in self.versions for name in names)

    @property
    def other(self) -> int:
        """A broker that is not the controller."""
        return next(broker for broker in self.brokers if broker != self.controller)

    def new_peer(self, broker: int, client_id: str = CLIENT_ID) -> Peer:
        """Return a connection of the caller's own."""
        return Peer(*self._addresses[broker], client_id, self._protocol)

    def ask(self, broker: int, version: int, request: Any) -> Any:
        """Ask a broker on a connection that is kept, and opened again when it was closed."""
        peer = self._peers.get(broker) or self.new_peer(broker)
        self._peers[broker] = peer
        response = peer.ask(version, request)
        if isinstance(response, str):
            self._peers.pop(broker).close()
        return response

    def note(self, name: str, value: Any) -> None:
        """Keep a fact."""
        assert name not in self.facts, f"two facts are named {name}"
        self.facts[name] = shown(value)

    def case(
        self, name: str, broker: int, version: int, request: Any, pick: Callable[[Any], Any] = lambda found: found
    ) -> Any:
        """Ask, and note what ``pick`` takes of the response; CLOSED and SILENT are noted as such."""
        response = self.ask(broker, version, request)
        self.note(name, response if isinstance(response, str) else pick(response))
        return response

    def topic(self, name: str) -> Any:
        """Return a topic's metadata once every broker knows a leader of every partition."""
        request = message("Metadata", topics=[{"name": name}], allow_auto_topic_creation=False)
        found: list[Any] = []

        def is_led() -> bool:
            found[:] = [self.ask(broker, 12, request).topics[0] for broker in self.brokers]
            return all(one.error_code == 0 and all(p.leader_id >= 0 for p in one.partitions) for one in found)

        self.wait_for(is_led, f"{name} has leaders")
        return found[0]

    def wait_for(self, holds: Callable[[], bool], what: str = "the change is visible") -> None:
        """Wait until something holds."""
        until(holds, timeout=LIMIT_SECONDS, what=what)

    def again(self, ask: Callable[[], Any], *codes: int) -> Any:
        """Ask until the error is none of these, which stand for work in progress."""
        found: list[Any] = []

        def is_over() -> bool:
            found[:] = [ask()]
            return found[0].error_code not in codes

        self.wait_for(is_over, "the work in progress is over")
        return found[0]


def message(name: str, /, **fields: Any) -> Any:
    """Return a request of this API; its structs are given as dictionaries."""
    return built(message_class(KEYS[name], response=False), fields)


def response(name: str, /, **fields: Any) -> Any:
    """Return a response of this API, likewise."""
    return built(message_class(KEYS[name], response=True), fields)


def built(kind: type, values: Mapping[str, Any]) -> Any:
    """Return a message of a class; its structs are given as dictionaries."""
    wires = wires_of(kind)
    return kind(**{name: _value(wires[name].item, value) for name, value in values.items()})


def _value(item: Any, value: Any) -> Any:
    if not isinstance(item, type) or value is None:
        return value
    return [built(item, one) for one in value] if isinstance(value, list) else built(item, value)


def shown(value: Any) -> str:
    """Return a value as text; of a message non-default fields and error codes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = []
        for field in dataclasses.fields(value):
            content = getattr(value, field.name)
            word = WORDS.get(field.name)
            text = shown(content if word is None else word(content))
            default = _default(field)
            shown_as = word or (lambda value: value)
            is_left_out = (not content and default == ()) or (
                default is not _NONE_GIVEN and shown_as(content) == shown_as(default)
            )
            if field.name.endswith("error_code") or not is_left_out:
                parts.append(f"{field.name}={text}")
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, (list, tuple)):
        left, right = "[]" if isinstance(value, list) else "()"
        return left + ", ".join(map(shown, value)) + right
    if isinstance(value, memoryview):
        return repr(bytes(value))
    return value if isinstance(value, str) else repr(value)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return _NONE_GIVEN if field.default_factory is dataclasses.MISSING else field.default_factory()


def header(key: int, version: int, client_id: str | None = CLIENT_ID) -> bytes:
    """Return a frame that ends with its header, of version 1."""
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    data = struct.pack(">hhi", key, version, 1) + name
    return struct.pack(">i", len(data)) + data


NULL_CLIENT_ID = header(API_VERSIONS, 0, None)
