"""The consumers of a scenario: processes with real Kafka clients (``consumer_process``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.scenario.client_processes import ClientProcess, Clients

MODULES = {"confluent-kafka": "confluent_kafka", "kafka-python": "kafka"}
SETTINGS = {
    "confluent-kafka": {
        "partition.assignment.strategy": "range",
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": "500",
        "log_level": "0",
    },
    "kafka-python": {
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": "500",
        "retry.backoff.ms": "100",
    },
}
"""Settings that every consumer has, unless its step says otherwise."""
CLASSIC_ALONE = ("partition.assignment.strategy", "heartbeat.interval.ms", "session.timeout.ms")
"""Settings that a client refuses with ``group.protocol=consumer`` (KIP-848), as the coordinator decides on them."""


def settings_of(library: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a consumer.

    Its own take the place of common ones; common ones that its protocol refuses are left out.

    Args:
        library: the client's name.
        own: by Kafka's names.
    """
    common = SETTINGS[library]
    if own.get("group.protocol") == "consumer":
        common = {name: value for name, value in common.items() if name not in CLASSIC_ALONE}
    return {**common, **own}


def check_installed(library: str) -> None:
    """Refuse a Kafka client that is not there.

    Raises:
        TidegaugeError: INVALID_CONFIG, with the command that installs it.
    """
    if library in MODULES and importlib.util.find_spec(MODULES[library]) is None:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG, f"this step needs a Kafka client that is not installed: pip install {library}"
        )


class Consumer(ClientProcess):
    """One consumer's process."""

    kind = "consumer"

    def __init__(self, library: str, topic: str, settings: Mapping[str, str], errors: Path) -> None:
        described = {"library": library, "topic": topic, "settings": dict(settings)}
        super().__init__("tidegauge_lab.scenario.consumer_process", described, errors)


class Consumers(Clients[Consumer]):
    """All consumers of a run.

    Args:
        servers: gives ``host:port`` of the brokers for Kafka clients.
        directory: where the clients' error output goes.
    """

    kind = "consumer"

    def __init__(self, servers: Callable[[], str], directory: Path) -> None:
        super().__init__()
        self._servers = servers
        self._directory = directory

    def start(self, name: str, group: str, topic: str, library: str, settings: Mapping[str, str]) -> None:
        """Start a consumer.

        Raises:
            TidegaugeError: INVALID_CONFIG, its library is not installed; INVALID_REQUEST, it runs already.
        """
        self.check_new(name)
        check_installed(library)
        own = {"bootstrap.servers": self._servers(), "group.id": group, "client.id": name}
        errors = self._directory / f"consumer-{name}.log"
        self._running[name] = Consumer(library, topic, settings_of(library, {**own, **settings}), errors)
