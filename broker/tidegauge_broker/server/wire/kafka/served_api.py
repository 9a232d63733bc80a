"""All that a broker says of an API of Kafka that it serves, in one value; the module of its handler has it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegauge.kafka.apis import BROKER_PROTOCOL, Protocol
from tidegauge_broker.server.wire.kafka import error_forms
from tidegauge_broker.server.wire.kafka.authorization.asking import Guard
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Handler
from tidegauge_broker.server.wire.kafka.turns import LARGE_FRAME_BYTES


class ServedApi(NamedTuple):
    """An API that is served. Name, versions and names in faults come from the codec's row.

    Attributes:
        key: of the codec's row (``tidegauge.kafka.apis``).
        handle: its handler.
        guard: refuses what the principal may not do; None: the API needs nothing to be allowed.
        form: of the response to a request that fails as a whole.
        only_reads: whether its requests change nothing; then an injected error is put into the real response.
        divisible: fields of the request that list topics, and fields of a topic that list partitions (empty: none), if
            Kafka treats them one by one: an injected error of some leaves the others.
        division: how a large request is handled in portions; None: it is handled whole.
        large_from_bytes: frames above this size are decoded and handled in slices.
        is_counted: whether a response may be many times larger than its request, so that it counts while it waits to
            be written.
        is_small: whether requests are frequent, and their responses have at most as many items (except fetch sessions,
            where most have few): such a response is encoded at once.
        is_measured_by_service: whether its metrics need more than its response.
        is_exempt: whether no client quota applies (``KafkaApis``: ``sendResponseExemptThrottle``).
        protocol: the protocol to which its messages belong.
    """

    key: int
    handle: Handler
    guard: Guard | None
    form: error_forms.Form = error_forms.AT_TOP
    only_reads: bool = False
    divisible: tuple[tuple[str, str], ...] = ()
    division: Division | None = None
    large_from_bytes: int = LARGE_FRAME_BYTES
    is_counted: bool = False
    is_small: bool = False
    is_measured_by_service: bool = False
    is_exempt: bool = False
    protocol: Protocol = BROKER_PROTOCOL

    @property
    def name(self) -> str:
        """Name of the API, as Kafka's protocol guide calls it."""
        return self.protocol.apis[self.key].name

    def refusal(self, version: int, request: Any, error: int, message: str | None = None) -> Any:
        """Return the response to a failed request; ``error_forms`` has the rules.

        Args:
            version: of the request, and of the response.
            request: the decoded message; None if it was not read, for ApiVersions.
            error: number of the error.
            message: the sentence for the client; None: none, or the error's general meaning.

        Returns:
            None if the request has no response (Produce with acks=0).
        """
        return error_forms.refusal(self.form, self.key, version, request, error, message, self.protocol)
