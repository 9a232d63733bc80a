"""How a side survives failures: the gap of a failover, and how fast a follower catches up.

Both sides keep leader and ISR in the same znodes, so both are watched by the same code.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from kazoo.client import KazooClient
from measure import BrokerSide, Workload

STEADY = Workload(100, 1, "all", 0, 16)
STEADY_RATE = 200.0
KILL_AFTER_SECONDS = 4.0
AWAY = Workload(1_024, 1, "all", 200_000, 0)
LIMIT_SECONDS = 120.0


class _State:
    """The state znode of one partition."""

    def __init__(self, zookeeper: KazooClient, topic: str) -> None:
        self._zookeeper = zookeeper
        self._path = f"/brokers/topics/{topic}/partitions/0/state"

    def _read(self) -> dict[str, object]:
        data, _ = cast("tuple[bytes, object]", self._zookeeper.get(self._path))
        return cast("dict[str, object]", json.loads(data))

    def leader(self) -> int:
        return cast("int", self._read()["leader"])

    def isr(self) -> list[int]:
        return cast("list[int]", self._read()["isr"])


@contextmanager
def _state(side: BrokerSide, topic: str) -> Iterator[_State]:
    client = KazooClient(hosts=side.zookeeper())
    client.start()
    try:
        yield _State(client, topic)
    finally:
        client.stop()
        client.close()


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
    with _state(side, topic) as state:
        for _ in range(kills):
            _wait("three in-sync replicas", lambda: len(state.isr()) == 3)
            leader = state.leader()
            timer = threading.Timer(KILL_AFTER_SECONDS, side.kill, [leader])
            timer.start()
            slowest = side.latency(topic, STEADY, STEADY_RATE).max_ms / 1_000
            timer.join()
            side.restart(leader)
            yield slowest


def catch_up_rate(side: BrokerSide, topic: str) -> float:
    """MB a second at which a follower that missed 200 MB comes back into the ISR, its start-up included."""
    side.create(topic, 1)
    with _state(side, topic) as state:
        _wait("three in-sync replicas", lambda: len(state.isr()) == 3)
        follower = next(broker_id for broker_id in state.isr() if broker_id != state.leader())
        side.kill(follower)
        _wait("the follower out of the ISR", lambda: follower not in state.isr())
        side.produce(topic, AWAY)
        began = time.perf_counter()
        side.restart(follower)
        _wait("the follower back in the ISR", lambda: follower in state.isr())
        return AWAY.records * AWAY.record_bytes / 1e6 / (time.perf_counter() - began)
