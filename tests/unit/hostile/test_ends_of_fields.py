"""Every number of every request that a broker serves, at the ends of its type: a response, and a broker that goes on.

The requests are derived from the schemas (``tests/field_ends.py``) and come over a connection of a broker in memory.
None may end in an exception that its handler does not expect (UNKNOWN_SERVER_ERROR), and none may keep the event loop
busy: after each request the loop has nothing left to do within a limited number of turns.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hostile_broker import KNOWN_ERRORS, NOW_MS, TOPIC_ID, HostileBroker
from kafka_peer import Client, Listener
from tests.field_ends import ENDS, EndRequests, Number, numbers

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import (
    APIS,
    BROKER_PROTOCOL,
    CONTROLLED_SHUTDOWN,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    FETCH,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    WRITE_TXN_MARKERS,
    Protocol,
)
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame
from tidegauge.kafka.kraft.broker_apis import FORWARDED
from tidegauge.principal import Principal
from tidegauge_broker.server.cluster.ports import Features
from tidegauge_broker.server.wire.kafka.by_mode import Serving, serving_of
from tidegauge_broker.server.wire.kafka.failed_responses import errors_in
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served import HANDLERS, SERVED
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache

MOST_TURNS = 400
"""Turns of the event loop after which a request counts as one that keeps it busy."""
QUIET_TURNS = 25
"""Turns in which a broker that has nothing to do does nothing."""
OBEYED = {LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN}
"""These requests are obeyed, the highest controller epoch too: each number meets a broker of its own."""
UNKNOWN = int(ErrorCode.UNKNOWN_SERVER_ERROR)
REFUSED_AS_UNKNOWN = {"isolation_level", "match_type", "max_num_offsets"}
"""Kafka responds UNKNOWN_SERVER_ERROR to these too (IsolationLevel.forId, and exceptions of its JVM)."""
EXCEPTIONS = {
    *((WRITE_TXN_MARKERS, field, -1) for field in ("producer_id", "producer_epoch", "transaction_version")),
    *((DESCRIBE_SHARE_GROUP_OFFSETS, "partitions", one) for one in (-1, -(2**31))),
}
"""Values for which Kafka meets an exception, too: a marker without producer or version
(MemoryRecordsBuilder.validateProducerState), a share partition that can't exist (DefaultStatePersister.validate)."""
TOPICS = {"t": base64.urlsafe_b64decode(TOPIC_ID + "==")}


class _NoController:
    """The controllers of a broker in KRaft mode, which no request of these tests reaches."""

    async def forward(self, request: bytes, principal: Principal, host: str) -> bytes:
        raise AssertionError(f"a request of {len(request)} bytes is handed on for {principal} at {host}")

    def versions(self) -> Mapping[int, tuple[int, int]]:
        return {}


FEATURES = Features(1, {"group.version": 1, "share.version": 1, "transaction.version": 2}, {})
IN_ZOOKEEPER_MODE = Serving(BROKER_PROTOCOL, SERVED, HANDLERS)
IN_KRAFT_MODE = serving_of(_NoController(), lambda: FEATURES, serves_consumer_groups=True, serves_share_groups=True)
HANDLED_IN_KRAFT_MODE = sorted(IN_KRAFT_MODE.handlers.keys() - FORWARDED)
"""The controllers handle forwarded APIs (``tests/unit/server/test_quorum_controller_fuzz.py``)."""


class _Broker(Listener):
    """The Kafka listener of a hostile broker."""

    def __init__(self, broker: HostileBroker, serving: Serving = IN_ZOOKEEPER_MODE) -> None:
        super().__init__()
        self.broker = broker
        self.handlers = dict(serving.handlers)
        self.protocol, self.served = serving.protocol, serving.apis
        self._sessions = FetchSessionCache(10, itertools.count(1).__next__)

    def context(self, of: Any, header: Any) -> Any:
        return Context(self.broker.service, of.caller, self._sessions, lambda: NOW_MS, header)


class Watchdog:
    """Counts the turns of an event loop, and those in which something besides the watchdog ran."""

    async def settle(self) -> bool:
        """Turn the loop until it is quiet; return whether it is within ``MOST_TURNS``."""
        ready: Any = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        quiet = 0
        for _ in range(MOST_TURNS):
            quiet = 0 if ready else quiet + 1
            if quiet == QUIET_TURNS:
                return True
            await asyncio.sleep(0)
        return False


def unexpected(log: pytest.LogCaptureFixture) -> list[str]:
    """Return what the log has about unexpected exceptions, and forget it."""
    found = [f"{record.name}: {record.exc_info[1]!r}" for record in log.records if record.exc_info]
    log.clear()
    return found


def cases(key: int, protocol: Protocol) -> Iterator[tuple[Number, int]]:
    for number in numbers(key, protocol):
        yield from ((number, value) for value in ENDS[number.kind])


async def send(broker: _Broker, key: int, version: int, message: Any) -> tuple[Any, bool]:
    """Send a request on a connection of its own, and close it.

    Returns:
        the response, if there is one, and whether the event loop became quiet.
    """
    client, watchdog = Client(broker), Watchdog()
    protocol = broker.protocol
    client.send(joined(request_frame(key, version, 1, "ends", message, protocol=protocol)))
    is_quiet = await watchdog.settle()
    responses = client.responses()
    client.connection.connection_lost(None)
    is_quiet = is_quiet and await watchdog.settle()
    if not responses:
        return None, is_quiet
    frame = responses[0][1]
    _, body_at = read_response_header(key, version, frame, protocol=protocol)
    return decode(key, version, frame, body_at, response=True, protocol=protocol)[0], is_quiet


@pytest.mark.timeout(240)
@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: APIS[key].name)
async def test_every_number_may_have_any_end(key: int, caplog: pytest.LogCaptureFixture) -> None:
    """No unexpected exception, no loop that stays busy, no operation that stays, sound logs (KafkaApis.handle)."""
    await every_end(key, IN_ZOOKEEPER_MODE, caplog)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("key", HANDLED_IN_KRAFT_MODE, ids=lambda key: IN_KRAFT_MODE.protocol.apis[key].name)
async def test_every_number_may_have_any_end_in_kraft_mode(key: int, caplog: pytest.LogCaptureFixture) -> None:
    """The same in the versions that KRaft mode has, such as Produce 13, and of DescribeTopicPartitions."""
    await every_end(key, IN_KRAFT_MODE, caplog)


async def every_end(key: int, serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    made = EndRequests(TOPICS, serving.protocol)
    problems: list[str] = []
    broker = _Broker(await HostileBroker().begin(), serving)
    unexpected(caplog)
    for number, value in cases(key, serving.protocol):
        where = f"{serving.protocol.apis[key].name} v{number.version} {'.'.join(number.path)}={value}"
        response, is_quiet = await send(broker, key, number.version, made.at(key, number, value))
        problems += [f"{where}: {problem}" for problem in unexpected(caplog)]
        is_refused = number.path[-1] in REFUSED_AS_UNKNOWN or (key, number.path[-1], value) in EXCEPTIONS
        errors = set() if response is None else errors_in(response)
        if not errors <= KNOWN_ERRORS - (set() if is_refused else {UNKNOWN}):
            problems.append(f"{where}: errors {errors}")
        if not is_quiet:
            problems.append(f"{where}: the event loop stays busy")
        if broker.broker.waiting - broker.broker.markers_in_progress > 0:
            problems.append(f"{where}: an operation stays though its client has gone")
        if key in OBEYED:
            broker.broker.abandon()
            broker = _Broker(await HostileBroker().begin(), serving)
    broker.broker.close()
    assert not problems, "\n".join(problems)


async def test_a_loop_that_stays_busy_is_noticed() -> None:
    """Else the watchdog would prove nothing: a callback that arms itself again at once never lets the loop rest."""
    loop = asyncio.get_running_loop()
    handles: list[asyncio.Handle] = []

    def again() -> None:
        handles[:] = [loop.call_soon(again)]

    assert await Watchdog().settle()
    again()
    assert not await Watchdog().settle()
    handles[0].cancel()


def test_the_numbers_are_those_of_the_schemas() -> None:
    """Nested ones and the items of arrays too; only requests without any number are left out."""
    without = {APIS[key].name for key in HANDLERS if not any(numbers(key))}
    assert without <= {"ApiVersions", "ListGroups", "SaslHandshake", "SaslAuthenticate", "DeleteGroups"} | {
        "DescribeGroups", "Metadata", "DescribeUserScramCredentials", "DescribeTransactions", "DescribeCluster",
        "DescribeDelegationToken", "AlterClientQuotas", "LeaveGroup",
    }, without  # fmt: skip
    paths = {number.path for number in numbers(FETCH)}
    assert {("max_wait_ms",), ("session_epoch",), ("topics", "partitions", "fetch_offset")} <= paths
    assert ("forgotten_topics_data", "partitions") in paths
