"""The consumers of a scenario: processes with real Kafka clients, started, commanded and killed.

Rules:
    1. A consumer has one command at a time; one whose response is awaited later keeps the next from being sent.
    2. Every process ends with the run.
"""

from __future__ import annotations

import importlib.util
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError

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
_END_SECONDS = 10.0


class Consumer:
    """One consumer's process."""

    def __init__(self, library: str, topic: str, settings: Mapping[str, str], errors: Path) -> None:
        self._errors = errors.open("ab")
        described = json.dumps({"library": library, "topic": topic, "settings": dict(settings)})
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tidegauge_lab.scenario.consumer_process", described],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._responses: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._responses.put(json.loads(line))
        self._responses.put(None)

    def send(self, **command: Any) -> None:
        """Send a command.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, the process has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def response(self, limit_seconds: float) -> dict[str, Any] | None:
        """Return the response to the command that was sent; None if it does not come in time.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, the process has ended.
        """
        try:
            found = self._responses.get(timeout=limit_seconds)
        except queue.Empty:
            return None
        if found is None:
            raise self._ended()
        return found

    def _ended(self) -> TidegaugeError:
        return TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"the consumer's process has ended; {self._errors.name} says why"
        )

    def kill(self) -> None:
        """End the process by kill -9, and all that it has here."""
        self._process.kill()
        self._process.wait(_END_SECONDS)
        self._reader.join(_END_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # a command that the process no longer read
                    continue


class Consumers:
    """All consumers of a run.

    Args:
        servers: gives ``host:port`` of the brokers for Kafka clients.
        directory: where the clients' error output goes.
    """

    def __init__(self, servers: Callable[[], str], directory: Path) -> None:
        self._servers = servers
        self._directory = directory
        self._running: dict[str, Consumer] = {}

    def start(self, name: str, group: str, topic: str, library: str, settings: Mapping[str, str]) -> None:
        """Start a consumer.

        Raises:
            TidegaugeError: INVALID_CONFIG, its library is not installed; INVALID_REQUEST, it runs already.
        """
        if name in self._running:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there is a consumer {name} already")
        if importlib.util.find_spec(MODULES[library]) is None:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG, f"this step needs a Kafka client that is not installed: pip install {library}"
            )
        own = {"bootstrap.servers": self._servers(), "group.id": group, "client.id": name}
        errors = self._directory / f"consumer-{name}.log"
        self._running[name] = Consumer(library, topic, {**SETTINGS[library], **own, **settings}, errors)

    def __getitem__(self, name: str) -> Consumer:
        """Return a consumer that runs.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is none of this name.
        """
        if name not in self._running:
            known = ", ".join(self._running) or "none"
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"no consumer {name} runs; those that run: {known}")
        return self._running[name]

    def kill(self, name: str) -> None:
        """End a consumer by kill -9, or give back what one that has ended leaves."""
        self[name].kill()
        del self._running[name]

    def close(self) -> None:
        """End all."""
        for name in list(self._running):
            self.kill(name)
