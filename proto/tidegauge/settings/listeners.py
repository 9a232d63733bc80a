"""The listeners that a broker's settings describe, and which of their addresses may change while it runs.

Of Kafka's three listener settings that are dynamic only ``advertised.listeners`` is so here: a broker binds its
listeners once, at its start. Addresses may change; the names have to fit ``listeners``, and the listeners that
brokers use among themselves are the same ones as before.
Pure. Source: DynamicListenerConfig.validateReconfiguration, KafkaConfig.validateValues.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.listeners import Listeners, parse_listeners, resolve_listeners
from tidegauge.settings.model import Values

ADVERTISED = "advertised.listeners"


def listeners_of(values: Values) -> Listeners:
    """Return the listeners that a broker's settings describe.

    Raises:
        TidegaugeError: INVALID_CONFIG, one of the settings is malformed or does not fit the others.
    """
    return resolve_listeners(
        values.text("listeners"),
        values[ADVERTISED],
        values["inter.broker.listener.name"],
        values["listener.security.protocol.map"],
        values["security.inter.broker.protocol"],
        values["listener.wire.protocol.map"],
        values["control.plane.listener.name"],
    )


def check_advertised(static: Values, wanted: Values) -> None:
    """Check that a broker that was started with ``static`` can advertise the listeners of ``wanted``.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    if not wanted.text(ADVERTISED):
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, "There must be at least one broker advertised listener.")
    before = listeners_of(static)
    advertised = {listener.name for listener in parse_listeners(wanted.text(ADVERTISED), ADVERTISED)}
    if before.added is not None:
        advertised.add(before.added.name)
    for listener, use in (
        (before.inter_broker, "brokers use it among themselves"),
        (before.control_plane, "the controller and the brokers reach each other through it"),
        (before.grpc_among_brokers, "brokers reach each other through it for what only gRPC has"),
    ):
        if listener.name not in advertised:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"Advertised listener must be specified for inter-broker listener {listener.name}: {use}",
            )
    listeners_of(wanted)
