"""Decisions about many partitions are made in a thread, so that votes, fetches and heartbeats go on meanwhile.

The decisions are the same; events that arrive meanwhile are taken in behind them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.one_controller import OneController, controller_at, until

from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages import create_topics
from tidegauge.kafka.metadata_records.no_op_record import NoOpRecord
from tidegauge_broker.server.quorum.controller.events import WriteEvent
from tidegauge_broker.server.quorum.metadata_store import MetadataStore
from tidegauge_controller.metadata.decisions import topics
from tidegauge_controller.metadata.decisions.view import Decision
from tidegauge_controller.metadata.records import made
from tidegauge_controller.raft import events

MANY, FEW = 1_000, 999


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[OneController]:
    async with controller_at(tmp_path) as found:
        await found.register(0)
        yield found


class Paused:
    """A decision that waits in its thread until the test lets it go on."""

    def __init__(self, one: OneController, partitions: int | None = MANY, *, has_records: bool = True) -> None:
        self._records = [made(NoOpRecord())] if has_records else []
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.thread_id = 0
        self.response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._one = one
        one.controller.write(
            WriteEvent("test", self._decide, self._done, lambda error, _: self._done(error), partitions=partitions)
        )

    def _done(self, response: Any) -> None:
        self.response.set_result(response)

    def _decide(self, *_: Any) -> Decision[str]:
        self.thread_id = threading.get_ident()
        self.begun.set()
        if self.thread_id != threading.main_thread().ident:
            assert self.may_go_on.wait(60)
        return Decision(self._records, "decided")


async def test_from_a_thousand_partitions_on_a_decision_is_made_in_a_thread(one: OneController) -> None:
    for count, is_large in [(0, False), (FEW, False), (MANY, True), (None, False)]:
        paused = Paused(one, count)
        paused.may_go_on.set()
        assert await paused.response == "decided"
        assert (paused.thread_id != threading.main_thread().ident) == is_large, count


async def test_what_may_be_about_all_partitions_is_large_if_there_are_many(one: OneController) -> None:
    """A heartbeat that fences, a look at unclean elections: the image says how many there are."""
    assert (await one.create("t", partitions=MANY)).topics[0].error_code == 0
    paused = Paused(one, None)
    paused.may_go_on.set()
    assert await paused.response == "decided"
    assert paused.thread_id != threading.main_thread().ident


async def test_a_large_topic_is_decided_and_encoded_in_threads_with_the_same_records(
    one: OneController, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, int] = {}
    decide, encode = topics.create_topics, MetadataStore.encoded

    def decided(*arguments: Any, **more: Any) -> Any:
        seen["decided"] = threading.get_ident()
        return decide(*arguments, **more)

    def encoded(batch: Any) -> bytes:
        if batch.end_offset - batch.base_offset > FEW:
            seen["encoded"] = threading.get_ident()
        return encode(batch)

    monkeypatch.setattr(topics, "create_topics", decided)
    monkeypatch.setattr(MetadataStore, "encoded", staticmethod(encoded))
    message = create_topics.CreateTopicsRequest(topics=[create_topics.CreatableTopic("t", 9_999, 1)], timeout_ms=60_000)
    assert (await one.ask(apis.CREATE_TOPICS, message)).topics[0].error_code == 0
    assert seen.keys() == {"decided", "encoded"}
    assert threading.main_thread().ident not in seen.values()
    topic = one.controller.image.topic_named("t")
    assert topic is not None
    assert [(number, one_.replicas) for number, one_ in topic.partitions.items()] == [(at, (0,)) for at in range(9_999)]


async def test_heartbeats_that_arrive_meanwhile_are_noted_behind_the_decision(one: OneController) -> None:
    """The thread walks the contacts; a broker's session lasts by new heartbeats all the same."""
    paused = Paused(one)
    await asyncio.to_thread(paused.begun.wait)
    active = one.controller.active
    assert active is not None
    epoch = active.image.brokers[0].epoch
    before = dict(active.heartbeats._contacts)
    beaten = one.heartbeat(0, epoch)
    assert active.heartbeats._contacts == before
    assert not beaten.done(), "it waits for its turn"
    paused.may_go_on.set()
    await paused.response
    await beaten
    assert active.heartbeats._contacts[0, epoch] >= before[0, epoch]
    assert one.controller._late_contacts is None


@pytest.mark.parametrize("has_records", [True, False])
async def test_a_leadership_that_is_lost_meanwhile_costs_the_decision(has_records: bool, one: OneController) -> None:
    """Nothing is proposed for an epoch that is over, nor responded to: its caller looks for the active controller."""
    paused = Paused(one, has_records=has_records)
    await asyncio.to_thread(paused.begun.wait)
    active = one.controller.active
    assert active is not None
    one.driver.give(events.Resign(active.epoch))
    await until(lambda: one.controller.active is not active)
    end = active.next_offset
    paused.may_go_on.set()
    assert await paused.response == ErrorCode.NOT_CONTROLLER
    assert active.next_offset == end
