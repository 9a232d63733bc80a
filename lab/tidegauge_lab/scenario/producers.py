"""The transactional producers of a scenario: processes with real clients (``producer_process``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tidegauge_lab.scenario.client_processes import ClientProcess, Clients
from tidegauge_lab.scenario.consumers import check_installed

SETTINGS: dict[str, dict[str, str]] = {
    "confluent-kafka": {"transaction.timeout.ms": "300000", "linger.ms": "0", "log_level": "0"},
    "tidegauge": {"transaction.timeout.ms": "300000"},
    "transactions-v2": {"transaction.timeout.ms": "300000"},
}
"""Settings that every producer has, unless its step says otherwise."""


class Producer(ClientProcess):
    """One producer's process."""

    kind = "producer"

    def __init__(self, library: str, settings: Mapping[str, str], errors: Path) -> None:
        described = {"library": library, "settings": dict(settings)}
        super().__init__("tidegauge_lab.scenario.producer_process", described, errors)


class Producers(Clients[Producer]):
    """All transactional producers of a run.

    Args:
        servers: gives ``host:port`` of the brokers by library: for Kafka clients, or for Tidegauge's own.
        directory: where the clients' error output goes.
    """

    kind = "producer"

    def __init__(self, servers: Callable[[str], str], directory: Path) -> None:
        super().__init__()
        self._servers = servers
        self._directory = directory

    def start(self, name: str, transactional_id: str, library: str, settings: Mapping[str, str]) -> None:
        """Start a producer, which at once takes over its transactional id; its first response says so.

        Raises:
            TidegaugeError: INVALID_CONFIG, its library is not installed; INVALID_REQUEST, it runs already.
        """
        self.check_new(name)
        check_installed(library)
        own = {
            "bootstrap.servers": self._servers(library),
            "transactional.id": transactional_id,
            **({"client.id": name} if library == "confluent-kafka" else {}),
        }
        errors = self._directory / f"producer-{name}.log"
        self._running[name] = Producer(library, {**SETTINGS[library], **own, **settings}, errors)
