"""Clients' actions as steps of a scenario file (``scenario_file``): producers, consumers, holds, readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge_proof.hand.actions import Action
from tidegauge_proof.hand.request_holds import APIS
from tidegauge_proof.hand.settings import Settings

Step = tuple[str, Any]
_TOPIC = "story"


def topics_of(settings: Settings, config: dict[str, Any]) -> list[str]:
    """Return the lines of a placed cluster's topics.

    Args:
        settings: of the cluster.
        config: of the data topic.
    """
    data = [list(one) for one in settings.data_assignments]
    internal = {"cleanup.policy": "compact"}
    transactions = internal | (
        {"min.insync.replicas": settings.min_insync_transactions} if settings.min_insync_transactions else {}
    )
    found = [_line({"name": _TOPIC, "assignment": data if len(data) > 1 else data[0], "config": config})]
    for name, placed, given in (
        ("__transaction_state", settings.transactions_at, transactions),
        ("__consumer_offsets", settings.offsets_at, internal),
    ):
        if placed:
            brokers = [int(digit) - 1 for digit in str(placed)]
            found.append(_line({"name": name, "assignment": brokers, "config": given}))
    return [f"  - {one}" for one in found]


def step_of(action: Action, settings: Settings, cluster: Any, first: int, played: Any) -> str:
    """Return an action of a client as a step.

    Args:
        action: that was done.
        settings: with the names of clients.
        cluster: after the action.
        first: number of the record that the partition's clients sent next before it.
        played: the cluster after all actions.
    """
    verb, value = _STEPS[action.kind](_Asked(action, settings, cluster, first, played))
    return f"{verb}: {_line(value)}"


_OF_PRODUCERS = frozenset(
    {
        "begin_transaction_of",
        "send_in_transaction",
        "send_offsets",
        "end_transaction",
    }
)
_OF_CONSUMERS = frozenset({"take_records", "commit_of_consumer", "poll_of_consumer"})


def client_of(action: Action) -> tuple[str, int] | None:
    """Return the kind and number of an action's client.

    None: it is no action of a client that waits for responses.
    """
    if action.kind in _OF_PRODUCERS:
        return "producer", action.value("client")
    return ("consumer", action.value("client")) if action.kind in _OF_CONSUMERS else None


def waits_for(action: Action, cluster: Any) -> tuple[str, int] | None:
    """Return the client that still waits for its response, if any."""
    client = client_of(action)
    if client is None or action.kind in {"take_records", "poll_of_consumer"}:
        return None
    return None if _process(client, cluster).outcome == "ok" else client


def step_that_waits(client: tuple[str, int], settings: Settings, cluster: Any) -> str:
    """Return the step that waits for a client's response."""
    kind, number = client
    verb = "wait_producer" if kind == "producer" else "wait_commit"
    outcome = _process(client, cluster).outcome
    found = {kind: settings.name(kind, number)}
    if outcome not in {"ok", ""}:
        found["error"] = outcome
    return f"{verb}: {_line(found)}"


def _process(client: tuple[str, int], cluster: Any) -> Any:
    kind, number = client
    return (cluster.processes.producers if kind == "producer" else cluster.processes.consumers)[number]


class _Asked:
    """An action, and what its step needs to know."""

    def __init__(self, action: Action, settings: Settings, cluster: Any, first: int, played: Any) -> None:
        self.action, self.settings, self.cluster, self.first, self.played = action, settings, cluster, first, played

    def value(self, name: str) -> int:
        """Return a number of the action."""
        return self.action.value(name)

    def name(self, kind: str, parameter: str = "client") -> str:
        """Return the name of a client, a group or an id."""
        return self.settings.name(kind, self.value(parameter))

    @property
    def partition(self) -> str:
        """The partition by its name in the file."""
        return f"{_TOPIC}-{self.value('partition')}"

    def values(self) -> list[str]:
        """Return the names of the records that were sent."""
        return [self.cluster.label(self.first + place) for place in range(self.value("count"))]

    def taken(self) -> list[str]:
        """Return the names of the records that this action has brought."""
        client = self.value("client")
        place = len(self.cluster.processes.taken[client]) - 1
        return [self.cluster.label(number) for number in self.played.processes.taken[client][place]]

    def open_end(self, kind: str) -> dict[str, str]:
        """Return that the outcome is awaited later, unless the client has it."""
        clients = self.cluster.processes.producers if kind == "producer" else self.cluster.processes.consumers
        return {} if clients[self.value("client")].outcome == "ok" else {"answer": "later"}


def _start_producer(one: _Asked) -> Step:
    times = {"transaction.timeout.ms": one.value("timeout_ms"), "socket.timeout.ms": one.value("request_ms")}
    if one.settings.transactions_v2:
        times = {"request.timeout.ms": one.value("request_ms")}
    given = {name: ms for name, ms in times.items() if ms}
    found: dict[str, Any] = {
        "producer": one.name("producer"),
        "transactional_id": one.name("transactional id", "id"),
    }
    if one.settings.transactions_v2:
        found["library"] = "transactions-v2"
    return "start_producer", found | ({"settings": given} if given else {})


def _start_consumer(one: _Asked) -> Step:
    given: dict[str, Any] = {
        "session.timeout.ms": one.value("session_ms"),
        "max.poll.interval.ms": one.value("max_poll_ms"),
    }
    given = {name: ms for name, ms in given.items() if ms}
    if one.value("instance"):
        given["group.instance.id"] = one.name("instance", "instance")
    if one.value("committed"):
        given["isolation.level"] = "read_committed"
    found: dict[str, Any] = {"consumer": one.name("consumer"), "group": one.name("group", "group")}
    if one.value("auto_commit"):
        given |= {"enable.auto.commit": True, "auto.commit.interval.ms": 100}
        found |= {"library": "kafka-python"} if one.value("auto_commit") == 1 else {}
    return "start_consumer", found | ({"settings": given} if given else {})


def _take(one: _Asked) -> Step:
    if not one.taken():
        return "poll", one.name("consumer")
    found: dict[str, Any] = {"consumer": one.name("consumer"), "values": one.taken()}
    return "consume", found | ({"busy": True} if one.value("busy") else {})


def _held(one: _Asked) -> Step:
    found: dict[str, Any] = {"broker": one.value("broker"), "rpc": APIS[one.value("api")]}
    found |= {"after_effect": True} if one.value("after") else {}
    return "hold_requests", found | ({"times": 1, "outlives_connection": True} if one.value("once") else {})


def _of_producer(verb: str) -> Callable[[_Asked], Step]:
    return lambda one: (verb, {"producer": one.name("producer")} | one.open_end("producer"))


def _named(verb: str, kind: str) -> Callable[[_Asked], Step]:
    return lambda one: (verb, one.name(kind))


_STEPS: dict[str, Callable[[_Asked], Step]] = {
    "start_producer": _start_producer,
    "begin_transaction_of": _named("begin_transaction", "producer"),
    "send_in_transaction": lambda one: (
        "send",
        {"producer": one.name("producer"), "values": one.values(), "partition": one.partition}
        | one.open_end("producer"),
    ),
    "send_offsets": lambda one: (
        "send_offsets",
        {
            "producer": one.name("producer"),
            "group": one.name("group", "group"),
            "offsets": {one.partition: one.value("offset")},
        },
    ),
    "end_transaction": lambda one: _of_producer("commit_transaction" if one.value("commit") else "abort_transaction")(
        one
    ),
    "kill_producer": _named("kill_producer", "producer"),
    "pause_producer": _named("pause_client", "producer"),
    "resume_producer": _named("resume_client", "producer"),
    "start_consumer": _start_consumer,
    "take_records": _take,
    "commit_of_consumer": lambda one: ("commit", {"consumer": one.name("consumer")} | one.open_end("consumer")),
    "poll_of_consumer": _named("poll", "consumer"),
    "kill_consumer": _named("kill_consumer", "consumer"),
    "close_consumer": _named("close_consumer", "consumer"),
    "hold_requests": _held,
    "release_requests": lambda one: ("release_requests", one.value("broker")),
    "break_response": lambda one: (
        "inject_error",
        {
            "broker": one.value("broker"),
            "rpc": APIS[one.value("api")],
            "grpc_status": "UNAVAILABLE",
            "after_effect": True,
        },
    ),
    "read_partition": lambda one: (
        "expect_read",
        {
            "isolation_level": "read_committed" if one.value("committed") else "read_uncommitted",
            "partition": one.partition,
            "values": [one.cluster.label(number) for number in one.cluster.processes.read],
        },
    ),
    "abort_hanging": lambda one: ("abort_hanging", {"partition": one.partition, "start": one.value("start")}),
}
KINDS_WITH_A_STEP = frozenset(_STEPS)


def _line(value: Any) -> str:
    """Return plain values on one line, as YAML has them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_line(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_line, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
