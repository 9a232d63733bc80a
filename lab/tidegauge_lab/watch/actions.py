"""Actions of the page's buttons and form on the lab's cluster: the same as the verbs of the command line.

An action is JSON: the name of a declared fault or action, its target, and its parameters beside them:
``{"action": "kill", "broker": 1}``, ``{"action": "isolate", "broker": 1, "from": "brokers"}``,
``{"action": "step_fetch", "broker": 1, "partition": "orders-0"}``. ``broker`` is ``"zookeeper"`` for the process of the
lab's own ZooKeeper. Two are about topics: ``{"action": "create-topic", "topic": "orders", "partitions": 3, "replicas":
3}`` and ``{"action": "produce", "topic": "orders", "count": 100}``, which writes the numbers 0 to 99 with acks=all as
`tidegauge produce --count 100` does. ``read_action`` is pure; ``do`` returns a sentence when the effect is true, or
raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.actions import WantedAction
from tidegauge.faults.requests import FaultRequest, read_request
from tidegauge.partition import topic_name_problem
from tidegauge_client.admin import Admin
from tidegauge_client.cluster_file import BootstrapServers, load_cluster_file
from tidegauge_client.producer import Producer
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.performing import perform

TOPIC_ACTIONS = ("create-topic", "produce")
MOST_RECORDS = 100_000
MOST_PARTITIONS = 200
MOST_REPLICAS = 100
DELIVERY_TIMEOUT_MS = 20_000
TOPIC_TIMEOUT_MS = 2_000


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


Action = WantedAction | FaultRequest | TopicAction


def read_action(value: object) -> Action:
    """Read an action.

    Raises:
        TidegaugeError: INVALID_REQUEST, it is none.
    """
    if not isinstance(value, Mapping):
        raise _invalid("an action is a JSON object")
    if value.get("action") in TOPIC_ACTIONS:
        return _read_topic_action(value)
    values = {str(name): one for name, one in value.items() if name not in {"action", "broker"}}
    return read_request(value.get("action"), value.get("broker"), values)


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


async def do(directory: Path, action: Action) -> str:
    """Do it to the cluster in the directory; return one sentence.

    Raises:
        TidegaugeError: it can't be done.
    """
    if isinstance(action, TopicAction):
        servers = load_cluster_file(directory).bootstrap_servers
        return await (_produce(servers, action) if action.count else _create(servers, action))
    return (await perform(LocalCluster(directory), action)).text


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
