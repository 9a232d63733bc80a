"""What a button of the page does to the lab's cluster: the same calls as the verbs of the command line.

An action is JSON: ``{"action": "kill", "broker": 1}``, ``{"action": "isolate", "broker": 1, "ends": "brokers"}``,
``{"action": "step", "broker": 1, "partition": "orders-0"}``. Every declared fault is an action of its name, with its
parameters beside it. ``broker`` is ``"zookeeper"`` for processes of the lab's
own ZooKeeper. Two are about topics: ``{"action": "create-topic", "topic": "orders", "partitions": 3, "replicas": 3}``
and ``{"action": "produce", "topic": "orders", "count": 100}``, which writes the numbers 0 to 99 with acks=all as
`tidegauge produce --count 100` does. ``read_action`` is pure; ``do`` gives a sentence when the effect is there, or
raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.model import Plane, WantedFault
from tidegauge.faults.table import FAULTS, ISOLATE, kind_of
from tidegauge.partition import TopicPartition, topic_name_problem
from tidegauge_client.admin import Admin
from tidegauge_client.cluster_file import BootstrapServers, load_cluster_file
from tidegauge_client.producer import Producer
from tidegauge_lab.cli.common import called
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster, Outcome, Target
from tidegauge_lab.switches import Switches

PROCESS_ACTIONS = ("kill", "stop", "pause", "resume", "start")
FETCH_ACTIONS = ("hold", "release", "step")
TOPIC_ACTIONS = ("create-topic", "produce")
MOST_RECORDS = 100_000
MOST_PARTITIONS = 200
MOST_REPLICAS = 100
DELIVERY_TIMEOUT_MS = 20_000
TOPIC_TIMEOUT_MS = 2_000
_DONE = {"kill": "killed", "stop": "stopped", "pause": "paused", "resume": "resumed", "start": "started"}
_SO_ALREADY = {"kill": "down", "stop": "down", "pause": "paused", "resume": "up", "start": "up"}


@dataclass(frozen=True, slots=True)
class Action:
    """One press of a button."""

    name: str
    target: Target
    partition: TopicPartition | None = None
    fault: WantedFault | None = None


@dataclass(frozen=True, slots=True)
class TopicAction:
    """A topic to create, or records to write to one.

    Attributes:
        partitions: of a new topic.
        replicas: of each of them.
        count: how many records; 0 for a new topic.
    """

    topic: str
    partitions: int = 0
    replicas: int = 0
    count: int = 0


def read_action(value: object) -> Action | TopicAction:
    """Read an action.

    Raises:
        TidegaugeError: INVALID_REQUEST, it is none.
    """
    if not isinstance(value, Mapping):
        raise _invalid("an action is a JSON object")
    if value.get("action") in TOPIC_ACTIONS:
        return _read_topic_action(value)
    name, target = value.get("action"), value.get("broker")
    is_broker = isinstance(target, int) and not isinstance(target, bool) and target >= 0
    if name in PROCESS_ACTIONS:
        if not is_broker and target != ZOOKEEPER:
            raise _invalid(f"{name} needs a broker's id, or {ZOOKEEPER!r}")
        return Action(str(name), target if isinstance(target, int) else ZOOKEEPER)
    if name not in {"heal", *FAULTS, *FETCH_ACTIONS}:
        raise _invalid(f"there is no action {name!r}")
    if not is_broker or not isinstance(target, int):
        raise _invalid(f"{name} needs a broker's id")
    if name in FETCH_ACTIONS:
        try:
            return Action(str(name), target, TopicPartition.parse(str(value.get("partition"))))
        except ValueError as problem:
            raise _invalid(str(problem)) from None
    return Action(str(name), target, fault=_read_fault(value, target) if name in FAULTS else None)


def _read_fault(value: Mapping[str, object], broker_id: int) -> WantedFault:
    """Read a declared fault: its parameters stand beside ``action`` and ``broker``; ``ends`` is ``from``."""
    kind = kind_of(str(value["action"]))
    values = {key: one for key, one in value.items() if key not in {"action", "broker", "ends"}}
    if kind is ISOLATE:
        values.setdefault("from", value.get("ends", Plane.BROKERS.value))
    wanted = kind.wanted(values)
    if problem := wanted.problem(broker_id):
        raise _invalid(problem)
    return wanted


def _read_topic_action(value: Mapping[str, object]) -> TopicAction:
    topic = value.get("topic")
    if not isinstance(topic, str):
        raise _invalid("the action needs a topic's name")
    if problem := topic_name_problem(topic):
        raise _invalid(problem)
    if value["action"] == "produce":
        return TopicAction(topic, count=_number(value, "count", MOST_RECORDS))
    return TopicAction(topic, _number(value, "partitions", MOST_PARTITIONS), _number(value, "replicas", MOST_REPLICAS))


def _number(value: Mapping[str, object], name: str, most: int) -> int:
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most:
        raise _invalid(f"{name} must be a whole number from 1 to {most}")
    return number


def _invalid(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_REQUEST, sentence)


async def do(directory: Path, action: Action | TopicAction) -> str:
    """Do it to the cluster in the directory; gives one sentence.

    Raises:
        TidegaugeError: it can't be done.
    """
    if isinstance(action, TopicAction):
        servers = load_cluster_file(directory).bootstrap_servers
        return await (_produce(servers, action) if action.count else _create(servers, action))
    if action.name in PROCESS_ACTIONS:
        return await asyncio.to_thread(_to_process, LocalCluster(directory), action)
    async with Switches.of_cluster(load_cluster_file(directory)) as switches:
        assert isinstance(action.target, int), "read_action saw to it"
        if action.partition is None:
            return await _to_network(switches, action.target, action)
        return await _to_follower(switches, action.target, action.partition, action.name)


def _to_process(cluster: LocalCluster, action: Action) -> str:
    verbs: dict[str, Callable[[Target], list[Outcome]]] = {
        "kill": cluster.kill,
        "stop": cluster.stop,
        "pause": cluster.pause,
        "resume": cluster.resume,
        "start": cluster.start,
    }
    outcome = verbs[action.name](action.target)[0]
    name = called(outcome.process)
    who = name[0].upper() + name[1:]
    return f"{who} {_DONE[action.name]}" if outcome.changed else f"{who} is {_SO_ALREADY[action.name]} already"


async def _create(servers: BootstrapServers, wanted: TopicAction) -> str:
    async with Admin(servers) as admin:
        await admin.create_topic(wanted.topic, partitions=wanted.partitions, replication_factor=wanted.replicas)
        await admin.wait_for_topic(wanted.topic)
    return f"Created topic {wanted.topic}"


async def _produce(servers: BootstrapServers, wanted: TopicAction) -> str:
    """Write the records; the first failure is the error, with how many were acknowledged."""
    async with Producer(
        servers, acks="all", delivery_timeout_ms=DELIVERY_TIMEOUT_MS, request_timeout_ms=DELIVERY_TIMEOUT_MS // 2
    ) as producer:
        await producer.partitions_for(wanted.topic, timeout_ms=TOPIC_TIMEOUT_MS)
        sent = [await producer.send(wanted.topic, b"%d" % number) for number in range(wanted.count)]
        results = await asyncio.gather(*sent, return_exceptions=True)
    failures = [one for one in results if isinstance(one, BaseException)]
    acknowledged = f"{wanted.count - len(failures)} of {wanted.count} records were acknowledged"
    if failures:
        first = failures[0]
        code = first.code if isinstance(first, TidegaugeError) else ErrorCode.UNKNOWN_SERVER_ERROR
        raise TidegaugeError(code, f"{wanted.topic}: {acknowledged}; the first failure: {first}")
    return f"{wanted.topic}: {acknowledged}"


async def _to_network(switches: Switches, broker_id: int, action: Action) -> str:
    if action.fault is not None:
        return f"Broker {broker_id}: {(await switches.set_fault(broker_id, action.fault)).text}"
    ended = await switches.heal(broker_id)
    return f"Broker {broker_id} healed" if ended else f"Broker {broker_id} had nothing to heal"


async def _to_follower(switches: Switches, broker_id: int, at: TopicPartition, name: str) -> str:
    if name == "step":
        return (await switches.step_fetch(at, broker_id)).text
    change = switches.hold_fetch if name == "hold" else switches.release_fetch
    changed = bool(await change(at, [broker_id]))
    done, already = ("held", "held") if name == "hold" else ("released", "free")
    return f"{at} on broker {broker_id} {done}" if changed else f"{at} on broker {broker_id} is {already} already"
