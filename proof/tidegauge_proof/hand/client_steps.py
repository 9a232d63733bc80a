"""The steps of scenarios about transactions and groups, as a story does them: actions, then time until they are done.

Names of clients, groups, ids and records are the scenario's. They become numbers in actions, and the cluster's settings
keep the names (``Settings.names``), so that the page shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidegauge_proof.hand.actions import ActionError
from tidegauge_proof.hand.request_holds import APIS

if TYPE_CHECKING:
    from tidegauge_proof.hand.story import Story

Said = tuple[list[str], list[str]]
Json = Mapping[str, Any]
_FENCED = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_CLIENTS_NAMES = {
    "_FENCED": _FENCED,
    "CommitFailedError": frozenset({"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"}),
}
"""Errors of client libraries, and the brokers' errors after which they are raised."""
_PRODUCER_SETTINGS = frozenset({"transaction.timeout.ms", "socket.timeout.ms", "request.timeout.ms"})
_CONSUMER_SETTINGS = frozenset(
    {
        "session.timeout.ms",
        "max.poll.interval.ms",
        "group.instance.id",
        "enable.auto.commit",
        "auto.commit.interval.ms",
        "isolation.level",
    }
)
_SETTLING_MS = (100, 400, 500, 500, 500, 1_000, 1_000, 1_000, 1_000, 2_000, 2_000, 5_000, 5_000, 5_000, 10_000, 20_000)
"""How much time goes on, piece by piece, until something is so."""
_CONTROL = frozenset({"COMMIT", "ABORT"})


def unplayable_client_step(name: str, value: Any) -> str:
    """Return why a step about clients can't be played; empty if it can."""
    if name == "start_producer":
        other = set(value.get("settings", {})) - _PRODUCER_SETTINGS
    elif name == "start_consumer":
        other = set(value.get("settings", {})) - _CONSUMER_SETTINGS
    elif name in {"hold_requests", "inject_error"}:
        if value["rpc"] not in APIS:
            return f"holds {value['rpc']}"
        other = set() if name == "hold_requests" or value.get("after_effect") else {"an error"}
    else:
        return ""
    return f"sets {min(other)}" if other else ""


def steps() -> dict[str, Callable[[Story, Any], Said]]:
    """Return the steps by their verbs."""
    return {name: _step(name) for name in _VERBS}


def _step(name: str) -> Callable[[Story, Any], Said]:
    return lambda story, value: getattr(ClientSteps(story), name)(value)


class ClientSteps:
    """The steps; each is named as its verb, and returns sentences about its actions and its failures.

    Args:
        story: that is played.
    """

    def __init__(self, story: Story) -> None:
        self._story = story
        self._cluster = story.cluster
        self._clients = story.cluster.processes
        if self._clients is None:
            raise ActionError("this cluster has no coordinators")

    def _act(self, kind: str, *values: int) -> str:
        return self._story.act_once(kind, *values)

    def _number(self, kind: str, name: str) -> int:
        return self._story.number_of(kind, str(name))

    def _until(self, holds: Callable[[], bool], words: str) -> Said:
        """Let time go on until something holds."""
        return self._story.settled(holds, words, _SETTLING_MS)

    # Producers

    def start_producer(self, value: Json) -> Said:
        """Start a producer, and wait for its producer id."""
        number = self._number("producer", value["producer"])
        settings = value.get("settings", {})
        request_ms = settings.get("socket.timeout.ms") or settings.get("request.timeout.ms") or 0
        times = (int(settings.get("transaction.timeout.ms", 0)), int(request_ms))
        said = self._act("start_producer", number, self._number("transactional id", value["transactional_id"]), *times)
        return self._ended([said], self._clients.producers[number], value)

    def begin_transaction(self, value: Any) -> Said:
        """Begin a transaction."""
        return [self._act("begin_transaction_of", self._producer(value))], []

    def _producer(self, value: Any) -> int:
        return self._number("producer", value["producer"] if isinstance(value, Mapping) else value)

    def send(self, value: Json) -> Said:
        """Send a batch in a transaction."""
        names = _list(value["values"])
        partition = self._partition(value)
        self._story.name_records(partition, names)
        number = self._producer(value)
        said = self._act("send_in_transaction", len(names), number, partition)
        return self._ended([said], self._clients.producers[number], value)

    def send_offsets(self, value: Json) -> Said:
        """Commit offsets in a transaction."""
        number, group = self._producer(value), self._number("group", value["group"])
        said = [self._act("send_offsets", number, group, _index(at), offset) for at, offset in value["offsets"].items()]
        return self._ended(said, self._clients.producers[number], value)

    def commit_transaction(self, value: Any) -> Said:
        """Commit a transaction."""
        return self._end(value, 1)

    def abort_transaction(self, value: Any) -> Said:
        """Abort a transaction."""
        return self._end(value, 0)

    def _end(self, value: Any, commit: int) -> Said:
        number = self._producer(value)
        said = self._act("end_transaction", number, commit)
        return self._ended([said], self._clients.producers[number], value)

    def wait_producer(self, value: Any) -> Said:
        """Wait for what a producer is about to do."""
        return self._ended([], self._clients.producers[self._producer(value)], value)

    def kill_producer(self, value: Any) -> Said:
        """Kill a producer."""
        return [self._act("kill_producer", self._producer(value))], []

    def pause_client(self, value: Any) -> Said:
        """Pause a producer's process."""
        return [self._act("pause_producer", self._producer(value))], []

    def resume_client(self, value: Any) -> Said:
        """Resume a producer's process."""
        return [self._act("resume_producer", self._producer(value))], []

    def _ended(self, said: list[str], process: Any, value: Any) -> Said:
        """Wait until a process has done what it does, unless the scenario does not; compare its outcome."""
        wanted: Json = value if isinstance(value, Mapping) else {}
        if wanted.get("answer") == "later":
            return said, []
        waited, wrong = self._until(lambda: process.outcome != "", f"an outcome of {process.name}")
        if wrong:
            return said, wrong
        expected, found = wanted.get("error", "") or "ok", process.outcome
        return said + waited, [] if found in _CLIENTS_NAMES.get(expected, {expected}) else [
            f"{process.name}: expected {expected}, found {found}"
        ]

    # Transactions as they are

    def wait_transaction(self, value: Json) -> Said:
        """Let time go on until a transaction is in a state."""
        wanted = f"the transaction {value['transactional_id']} as expected"
        return self._until(lambda: not self._differing(value, is_exact=False), wanted)

    def expect_transaction(self, value: Json) -> Said:
        """Compare a transaction with the expected state."""
        return _compared(self._differing(value, is_exact=True))

    def _differing(self, value: Json, *, is_exact: bool) -> list[str]:
        found = self._story.view["transactions"].get(value["transactional_id"])
        if found is None:
            return [f"there is no transactional id {value['transactional_id']}"]
        wrong = []
        if "state" in value and found["state"] != value["state"]:
            wrong.append(f"state: expected {value['state']}, found {found['state']}")
        epoch = found["producerEpoch"]
        if "epoch" in value and (epoch != value["epoch"] if is_exact else epoch < value["epoch"]):
            wrong.append(f"epoch: expected {value['epoch']}, found {epoch}")
        partitions = sorted(one["partition"] for one in found["partitions"])
        if "partitions" in value and partitions != sorted(value["partitions"]):
            wrong.append(f"partitions: expected {value['partitions']}, found {partitions}")
        return wrong

    def expect_producers(self, value: Json) -> Said:
        """Compare the open transactions of a leader with the expected ones."""
        starts = [start for start, _, _ in self._open(value)]
        return _compared([] if starts == value["starts"] else [f"starts: expected {value['starts']}, found {starts}"])

    def expect_hanging(self, value: Json) -> Said:
        """Compare the transactions that are open at a leader and not at their coordinator (KIP-664)."""
        partition = f"orders-{self._partition(value)}"
        kept = {
            one["producerId"]
            for one in self._story.view["transactions"].values()
            if partition in [each["partition"] for each in one["partitions"]]
        }
        starts = [start for start, producer_id, _ in self._open(value) if producer_id not in kept]
        return _compared([] if starts == value["starts"] else [f"starts: expected {value['starts']}, found {starts}"])

    def _open(self, value: Json) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = self._clients.open_transactions(self._partition(value))
        return found

    def abort_hanging(self, value: Json) -> Said:
        """Abort a hanging transaction."""
        return [self._act("abort_hanging", self._partition(value), value["start"])], []

    def expect_read(self, value: Json) -> Said:
        """Read a partition, and compare."""
        is_committed = int(value["isolation_level"] == "read_committed")
        said = self._act("read_partition", self._partition(value), is_committed)
        found = [self._cluster.label(number) for number in self._clients.read]
        expected = [str(one) for one in _list(value["values"])]
        return [said], [] if found == expected else [f"expected {expected}, found {found}"]

    def _partition(self, value: Json) -> int:
        return _index(value["partition"]) if "partition" in value else 0

    # Consumers and groups

    def start_consumer(self, value: Json) -> Said:
        """Start a consumer."""
        settings = value.get("settings", {})
        instance = settings.get("group.instance.id")
        auto_commit = 1 if value.get("library") == "kafka-python" else 2
        said = self._act(
            "start_consumer",
            self._number("consumer", value["consumer"]),
            self._number("group", value["group"]),
            int(settings.get("session.timeout.ms", 0)),
            int(settings.get("max.poll.interval.ms", 0)),
            self._number("instance", instance) if instance else 0,
            auto_commit if str(settings.get("enable.auto.commit", "false")).lower() == "true" else 0,
            int(settings.get("isolation.level") == "read_committed"),
        )
        return [said], []

    def _consumer(self, value: Any) -> int:
        return self._number("consumer", value["consumer"] if isinstance(value, Mapping) else value)

    def consume(self, value: Json) -> Said:
        """Take records, and compare them."""
        number, names = self._consumer(value), [str(one) for one in _list(value["values"])]
        said = self._act("take_records", len(names), number, int(bool(value.get("busy"))))
        process = self._clients.consumers[number]
        done, wrong = self._ended([said], process, {})
        found = [self._cluster.label(one) for one in process.got]
        return done, wrong or ([] if found == names else [f"expected {names}, found {found}"])

    def commit(self, value: Any) -> Said:
        """Commit what a consumer has got."""
        number = self._consumer(value)
        said = self._act("commit_of_consumer", number)
        return self._ended([said], self._clients.consumers[number], value)

    def wait_commit(self, value: Any) -> Said:
        """Wait for the response to a commit."""
        return self._ended([], self._clients.consumers[self._consumer(value)], value)

    def poll(self, value: Any) -> Said:
        """Let a busy consumer poll again."""
        return [self._act("poll_of_consumer", self._consumer(value))], []

    def kill_consumer(self, value: Any) -> Said:
        """Kill a consumer."""
        return [self._act("kill_consumer", self._consumer(value))], []

    def close_consumer(self, value: Any) -> Said:
        """Close a consumer."""
        return [self._act("close_consumer", self._consumer(value))], []

    def wait_group(self, value: Json) -> Said:
        """Let time go on until a group is in a state."""
        return self._until(lambda: not self._group_differs(value), f"the group {value['group']} as expected")

    def expect_group(self, value: Json) -> Said:
        """Compare a group with the expected state."""
        return _compared(self._group_differs(value))

    def _group_differs(self, value: Json) -> list[str]:
        group = self._story.view["groups"].get(value["group"])
        if group is None:
            return [f"there is no group {value['group']}"]
        rows = {one["partition"]: one for one in group["partitions"]}
        found: dict[str, Any] = {
            "state": group["state"],
            "members": len(group["members"]),
            "generation": group["generation"],
            "assignment": {one["instance"] or one["client"]: one["partitions"] for one in group["members"]},
            "committed": {at: one["committed"] for at, one in rows.items() if one["committed"] is not None},
            "lag": sum(self._end_of(at) - one["committed"] for at, one in rows.items() if one["committed"] is not None),
        }
        return [
            f"{key}: expected {value[key]}, found {found[key]}"
            for key in found
            if key in value and value[key] != found[key]
        ]

    def _end_of(self, at: str) -> int:
        partition = self._cluster.data[_index(at)]
        stored = partition.brokers.get(partition.state_now.leader)
        return 0 if stored is None or stored.partition is None else stored.partition.high_watermark

    # Holds

    def hold_requests(self, value: Json) -> Said:
        """Hold requests of an API at a broker."""
        numbers = (APIS.index(value["rpc"]), int(bool(value.get("after_effect"))), int(value.get("times") == 1))
        return [self._act("hold_requests", value["broker"], *numbers)], []

    def release_requests(self, value: Any) -> Said:
        """Release what brokers hold."""
        return [self._act("release_requests", one) for one in _list(value)], []

    def inject_error(self, value: Json) -> Said:
        """Lose the next response of an API."""
        return [self._act("break_response", value["broker"], APIS.index(value["rpc"]))], []

    def wait_held(self, value: Json) -> Said:
        """Let time go on until a broker holds something."""
        broker = value["broker"]
        holds = self._cluster.coordination.holds
        return self._until(lambda: bool(holds.held_at(broker)), f"a request that broker {broker} holds")


def without_markers(records: list[Json]) -> list[Json]:
    """Return the records of clients in a log of the view."""
    return [one for one in records if one["value"] not in _CONTROL]


def _compared(wrong: list[str]) -> Said:
    return ([] if wrong else ["As expected."]), wrong


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _index(at: str) -> int:
    return int(at.rpartition("-")[2])


_VERBS = tuple(name for name in vars(ClientSteps) if not name.startswith("_"))
