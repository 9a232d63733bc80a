"""How a side survives failures: the gap of a failover, and how fast a follower catches up.

Leader and ISR are read from the brokers' metadata by one and the same client, with ZooKeeper and without.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from measure import BrokerSide, Workload

STEADY = Workload(100, 1, "all", 0, 16)
STEADY_RATE = 200.0
KILL_AFTER_SECONDS = 4.0
AWAY = Workload(1_024, 1, "all", 200_000, 0)
LIMIT_SECONDS = 120.0
ASK_SECONDS = 2.0


class _Partition:
    """Partition 0 of a topic, as the brokers' metadata have it."""

    def __init__(self, side: BrokerSide, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": side.kafka_bootstrap, "log_level": 0})
        self._topic = topic

    def _read(self) -> tuple[int, list[int]]:
        with contextlib.suppress(KafkaException, KeyError):  # no broker responded in time, or it has no partition yet
            found = self._admin.list_topics(self._topic, timeout=ASK_SECONDS).topics[self._topic].partitions[0]
            return found.leader, list(found.isrs)
        return -1, []

    def leader(self) -> int:
        """Return its leader; -1: none, or no broker responds."""
        return self._read()[0]

    def isr(self) -> list[int]:
        """Return its ISR; empty if no broker responds."""
        return self._read()[1]


def _wait(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not in {LIMIT_SECONDS} s: {what}")
        time.sleep(0.02)


def failover_gaps(side: BrokerSide, kills: int) -> Iterator[float]:
    """Kill the leader under a steady load, again and again; the slowest acknowledgement of each run, in seconds.

    A record sent right after the kill waits for the whole gap, so the slowest one tells how long nothing was
    acknowledged.
    """
    topic = "failover"
    side.create(topic, 1)
    partition = _Partition(side, topic)
    for _ in range(kills):
        _wait("three in-sync replicas", lambda: len(partition.isr()) == 3)
        leader = partition.leader()
        timer = threading.Timer(KILL_AFTER_SECONDS, side.kill, [leader])
        timer.start()
        slowest = side.latency(topic, STEADY, STEADY_RATE).max_ms / 1_000
        timer.join()
        side.restart(leader)
        yield slowest


def controller_gaps(side: BrokerSide, kills: int) -> Iterator[float]:
    """Kill the active controller, again and again; seconds from each kill to a topic that is created.

    One client asks for the topic until it is there: with a timeout of its own for each request, as requests that reach
    the dead one get no response.
    """
    for number in range(kills):
        _wait("an active controller", lambda: side.active_controller() != -1)
        active = side.active_controller()
        admin = AdminClient({"bootstrap.servers": side.kafka_bootstrap, "log_level": 0})
        admin.list_topics(timeout=LIMIT_SECONDS)  # it knows its brokers
        topic = f"after-{number}-{time.monotonic_ns()}"
        side.kill(active)
        yield creation_seconds(admin, topic)
        side.restart(active)
        _wait(
            "all brokers", lambda admin=admin: len(admin.list_topics(timeout=LIMIT_SECONDS).brokers) == len(side.pids())
        )


def creation_seconds(admin: AdminClient, topic: str) -> float:
    """Ask for a topic until it is there; return how many seconds that takes."""
    began = time.perf_counter()
    _wait("a topic is created", lambda: _is_created(admin, topic))
    return time.perf_counter() - began


def _is_created(admin: AdminClient, topic: str) -> bool:
    try:
        admin.create_topics([NewTopic(topic, 1, 2)], request_timeout=ASK_SECONDS)[topic].result()
    except KafkaException as problem:
        return problem.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    return True


def catch_up_rate(side: BrokerSide, topic: str) -> float:
    """MB a second at which a follower that missed 200 MB comes back into the ISR, its start-up included."""
    side.create(topic, 1)
    partition = _Partition(side, topic)
    _wait("three in-sync replicas", lambda: len(partition.isr()) == 3)
    leader = partition.leader()
    follower = next(broker_id for broker_id in partition.isr() if broker_id != leader)
    side.kill(follower)
    _wait("the follower out of the ISR", lambda: follower not in (partition.isr() or [follower]))
    side.produce(topic, AWAY)
    began = time.perf_counter()
    side.restart(follower)
    _wait("the follower back in the ISR", lambda: follower in partition.isr())
    return AWAY.records * AWAY.record_bytes / 1e6 / (time.perf_counter() - began)
