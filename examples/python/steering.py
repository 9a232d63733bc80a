"""A client of Tidegauge's control interface in one file: copy it beside your tests.

It needs Python 3.10 and nothing else. Each method returns when its effect is there; a failed expectation raises
``Refused`` with the sentence of the server, and a wait that runs out has the actual state in ``actual``.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

Json = dict[str, Any]
_MARGIN_SECONDS = 150.0


class Refused(AssertionError):
    """The server's error: its HTTP status, its name, its sentence, and the actual state."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(f"{body['error']['name']}: {body['error']['message']}")
        self.status = status
        self.name = body["error"]["name"]
        self.actual = body.get("actual")


class Control:
    """The control interface of one cluster."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self.url = (url or os.environ.get("TIDEGAUGE_CONTROL", "http://127.0.0.1:19079")).rstrip("/")
        self._token = token or os.environ.get("TIDEGAUGE_CONTROL_TOKEN", "")

    def ask(self, method: str, path: str, body: Json | None = None) -> Json:
        """Send a request; return the response's JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        limit_seconds = _MARGIN_SECONDS + (body or {}).get("timeout_ms", 0) / 1000
        try:
            with urllib.request.urlopen(request, timeout=limit_seconds) as response:
                return dict(json.load(response))
        except urllib.error.HTTPError as problem:
            with problem:
                raise Refused(problem.code, json.load(problem)) from None

    def cluster(self) -> Json:
        """Return ``ready``, addresses, controller and brokers."""
        return self.ask("GET", "/v1/cluster")

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` for Kafka clients."""
        return str(self.cluster()["kafka_bootstrap_servers"])

    def partition(self, topic: str, partition: int = 0) -> Json:
        """Return leader, epoch, ISR and every replica."""
        return self.ask("GET", f"/v1/topics/{quote(topic)}/{partition}")

    def group(self, group: str) -> Json:
        """Return a consumer group."""
        return self.ask("GET", f"/v1/groups/{quote(group)}")

    def broker(self, target: int | str, verb: str, **fields: Any) -> Json:
        """Kill, stop, pause, resume or start 1, ``leader-of:orders-0``, ``controller``, ..."""
        return self.ask("POST", f"/v1/brokers/{quote(str(target))}/{verb}", fields or None)

    def kill(self, target: int | str) -> int:
        """Kill a broker; return its id."""
        return int(self.broker(target, "kill")["broker"])

    def start(self, target: int | str, **fields: Any) -> Json:
        """Start a broker on its old data and port."""
        return self.broker(target, "start", **fields)

    def steps(self, *steps: Json, timeout_ms: int = 120_000) -> Json:
        """Play steps of a scenario file."""
        return self.ask("POST", "/v1/steps", {"steps": list(steps), "timeout_ms": timeout_ms})

    def fault(self, *rules: Json) -> int:
        """Put rules for requests in force, such as ``{"keys": ["Produce"], "error": "NOT_ENOUGH_REPLICAS"}``."""
        return int(self.ask("POST", "/v1/faults", {"rules": list(rules)})["id"])

    def wait_fault(self, fault: int, timeout_ms: int = 30_000, **condition: int) -> Json:
        """Wait until a fault has ``hits=N``, or holds ``held=N`` responses."""
        return self.ask("POST", f"/v1/faults/{fault}/wait", {**condition, "timeout_ms": timeout_ms})

    def end_fault(self, fault: int) -> None:
        """End a fault; what it holds is released."""
        self.ask("DELETE", f"/v1/faults/{fault}")

    def wait(self, timeout_ms: int = 30_000, **condition: Any) -> Json:
        """Wait for ``isr=``, ``leader=``, ``high_watermark=``, ``in_sync=``, ``group=`` or ``ready=True``."""
        return self.ask("POST", "/v1/wait", {**condition, "timeout_ms": timeout_ms})

    def events(self, after: int = 0) -> list[Json]:
        """Return what happened after a numbered event."""
        return list(self.ask("GET", f"/v1/events?after={after}")["events"])

    def reset(self, *, topics: bool = True) -> Json:
        """All brokers up, nothing in force, and without the topics and groups of the test."""
        return self.ask("POST", "/v1/reset", {"topics": topics})
