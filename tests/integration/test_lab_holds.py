"""Held followers and their steps on real brokers (broker/tidegauge_broker/server/lab/holds.py).

One cluster for all tests, controller on broker 0. No follower leaves an ISR by its lag here, so that values after a
step are the ones of the rule and not of the clock.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.forwarder import Forwarder
from tests.labs import make_topic
from tests.typed import Typed, typed
from tests.waiting import until_async

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client import Producer
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Direction, Plane, Step, Switches, Until
from tidegauge_lab.switches.wire import BrokerSilentError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
SETTINGS = {"replica.lag.time.max.ms": "600000", "auto.leader.rebalance.enable": "false"}


async def produce(brokers: LocalCluster, at: TopicPartition, value: bytes) -> None:
    """One record in a batch of its own, acknowledged by the leader."""
    async with Producer(brokers.bootstrap_servers, acks=1, idempotence=False) as producer:
        await (await producer.send(at.topic, value, partition=at.partition))


async def offsets(lab: Switches, at: TopicPartition, *broker_ids: int) -> list[tuple[int, int]]:
    """LEO and HW on these brokers."""
    found = [(await lab.observe(broker_id, [at.topic]))[at] for broker_id in broker_ids]
    return [(one.log_end_offset, one.high_watermark) for one in found]


def changes(step: Step) -> dict[str, str]:
    return {f"{change.broker_id} {change.attribute}": f"{change.before}->{change.after}" for change in step.changes}


async def led_by(lab: Switches, at: TopicPartition, leader: int) -> None:
    async def leads() -> bool:
        return (await lab.observe(leader, [at.topic]))[at].role == "leader"

    await until_async(leads, limit=150)


async def test_the_walk_through_of_two_replicas_one_round_at_a_time(brokers: LocalCluster, lab: Switches) -> None:
    """Each round changes leader and follower as in the table of docs/guide/03-one-round-late.md."""
    at = await make_topic(brokers, "walk", [1, 2])
    assert await lab.hold_fetch(at, [2]) == [2]
    assert await lab.hold_fetch(at, [2]) == [], "it is so already"
    await lab.step_fetch(at, 2)  # now the leader knows the follower's LEO of 0
    await produce(brokers, at, b"m1")
    assert await offsets(lab, at, 1, 2) == [(1, 0), (0, 0)]
    first = await lab.step_fetch(at, 2)
    assert changes(first) == {"2 LEO": "0->1", "2 epochs": "-->0@0"}
    assert first.response.records_bytes > 0
    file = brokers.file
    async with Switches({2: file.broker(2).address}, file.security) as only:  # the leader's word comes with the round
        second = await only.step_fetch(at, 2)
    assert changes(second) == {"2 HW": "0->1", "1 HW": "0->1", "1 remote LEO of 2": "0->1"}
    assert (second.leader, second.error, second.response_withheld) == (1, ErrorCode.NONE, False)
    assert changes(await lab.step_fetch(at, 2)) == {}
    assert await lab.release_fetch(at, [2]) == [2]
    await produce(brokers, at, b"m2")

    async def followed() -> bool:
        return await offsets(lab, at, 1, 2) == [(2, 2), (2, 2)]

    await until_async(followed)


async def test_a_produce_wakes_a_fetch_that_waits_and_the_response_is_held_back_until_the_next_step(
    brokers: LocalCluster, lab: Switches
) -> None:
    """A fetch in purgatory: it is taken first, then the record comes (DelayedFetch)."""
    at = await make_topic(brokers, "purgatory", [1, 2])
    await lab.hold_fetch(at, [2])
    taken = await lab.step_fetch(at, 2, until=Until.REQUEST)
    assert taken.response_withheld
    assert taken.leader == 1
    assert (await lab.list_faults(2)).held == {at: 1}
    await produce(brokers, at, b"m1")
    assert await offsets(lab, at, 1, 2) == [(1, 0), (0, 0)]
    responded = await lab.step_fetch(at, 2)
    assert responded.response.fetch.fetch_offset == 0, "the same round"
    assert changes(responded) == {"2 LEO": "0->1", "2 epochs": "-->0@0"}
    # One that nothing wakes has its wait, counted from when the response is asked for, and brings nothing new.
    assert changes(await lab.step_fetch(at, 2, until=Until.REQUEST)) == {"1 HW": "0->1", "1 remote LEO of 2": "0->1"}
    assert changes(await lab.step_fetch(at, 2)) == {"2 HW": "0->1"}


async def test_held_from_the_start_over_the_leaders_death_and_released_by_a_restart(
    brokers: LocalCluster, lab: Switches
) -> None:
    """A response dies with the leader that keeps it; the hold goes on under the next leader; `start --held`."""
    at = await make_topic(brokers, "survives", [1, 2, 0])
    await lab.hold_fetch(at, [0])
    await produce(brokers, at, b"m1")
    taken = await lab.step_fetch(at, 0, until=Until.REQUEST)
    assert taken.response_withheld

    async def followed() -> bool:
        return await offsets(lab, at, 2) == [(1, 0)]

    await until_async(followed)
    brokers.kill(1)  # its membership lasts on, so no other leader is there yet
    lost = await lab.step_fetch(at, 0)
    assert lost.error is ErrorCode.NETWORK_EXCEPTION
    assert changes(lost) == {}
    await led_by(lab, at, 2)

    async def knows() -> bool:
        return (await lab.observe(0, [at.topic]))[at].leader_id == 2

    await until_async(knows)
    assert await offsets(lab, at, 0) == [(0, 0)], "held still"
    step = await lab.step_fetch(at, 0)
    assert (step.leader, step.error) == (2, ErrorCode.NONE)
    assert await offsets(lab, at, 0) == [(1, 0)]
    brokers.start(1, held=[at])
    assert at in (await lab.list_faults(1)).held
    await produce(brokers, at, b"m2")
    assert (await offsets(lab, at, 1))[0][0] <= 1, "it has not fetched m2"
    with pytest.raises(TidegaugeError, match="is up already"):
        brokers.start(1, held=[at])
    brokers.kill(1, expire=True)
    brokers.start(1)
    assert not (await lab.list_faults(1)).held


@pytest.mark.zookeeper_mode("it parts the controller, which is a broker, from a follower")
async def test_a_refused_step_says_so_at_once(brokers: LocalCluster, lab: Switches) -> None:
    """A follower that has not heard of the newer epoch is fenced (KIP-320), and asked for no more until it hears."""
    leader = brokers.status()["controller"]["broker"]
    dies, follower = (broker_id for broker_id in (0, 1, 2) if broker_id != leader)
    at = await make_topic(brokers, "fenced", [leader, dies, follower])
    await lab.hold_fetch(at, [follower])
    await lab.isolate(follower, [leader], Direction.IN)
    brokers.kill(dies, expire=True)

    async def shrunk() -> bool:
        return list((await lab.observe(leader, [at.topic]))[at].isr) == [leader, follower]

    await until_async(shrunk, limit=150)
    for _ in range(2):
        refused = await lab.step_fetch(at, follower)
        assert refused.error is ErrorCode.FENCED_LEADER_EPOCH
        assert changes(refused) == {}
    await lab.heal(follower)

    async def heard() -> bool:
        return (await lab.observe(follower, [at.topic]))[at].leader_epoch == 1

    await until_async(heard, limit=150)
    assert (await lab.step_fetch(at, follower)).error is ErrorCode.NONE


async def test_the_verbs_print_what_a_round_changed_and_refuse_with_a_sentence(
    brokers: LocalCluster, lab: Switches
) -> None:
    at = await make_topic(brokers, "verbs", [2, 1, 0])

    async def verb(*arguments: str) -> Typed:
        return await asyncio.to_thread(typed, *arguments, "--dir", brokers.directory)

    refused = await verb("step-fetch", str(at))
    assert (refused.code, refused.stdout) == (1, "")
    assert "hold-fetch verbs-0" in refused.stderr
    held = await verb("hold-fetch", str(at))
    assert (held.code, held.stdout) == (0, "Held verbs-0 on broker 0.\nHeld verbs-0 on broker 1.\n")
    await produce(brokers, at, b"m1")
    stepped = await verb("step-fetch", str(at), "--broker", "1", "--rounds", "2")
    lines = stepped.stdout.splitlines()
    assert lines[0].startswith("Broker 1 asked broker 2 for verbs-0 from offset 0")
    assert any(line.split() == ["broker", "1", "(follower):", "LEO", "0", "->", "1"] for line in lines)
    assert any(line.split()[-3:] == ["-", "->", "0"] or line.split()[-3:] == ["0", "->", "1"] for line in lines)
    as_json = json.loads((await verb("step-fetch", str(at), "--broker", "1", "-o", "json")).stdout)
    assert as_json["steps"][0]["fetch_offset"] == 1
    assert as_json["steps"][0]["error"] is None
    leader = await verb("step-fetch", str(at), "--broker", "2")
    assert leader.code == 1
    assert "leads verbs-0" in leader.stderr
    shown = await verb("faults")
    assert shown.stdout.splitlines() == [f"Broker {one}: fetches of verbs-0 are held" for one in (0, 1)]
    unknown = await verb("hold-fetch", "nothing-0")
    assert (unknown.code, unknown.stderr.split()[0]) == (1, "UNKNOWN_TOPIC_OR_PARTITION")
    wrong = await verb("step-fetch", "verbs", "--until", "request")
    assert wrong.code == 2
    cleared = await verb("faults", "--clear")
    assert cleared.stdout == "Released verbs-0 on broker 0.\nReleased verbs-0 on broker 1.\n"
    empty = await verb("faults")
    assert (empty.code, empty.stdout) == (0, "")


async def test_a_partition_stops_steps_too(brokers: LocalCluster, lab: Switches) -> None:
    """A stepped round is a fetch between brokers: it does not pass a partition between them."""
    at = await make_topic(brokers, "cut", [1, 2])
    await lab.hold_fetch(at, [2])
    await lab.isolate(2, Plane.BROKERS, Direction.OUT)
    assert (await lab.step_fetch(at, 2)).error is ErrorCode.NETWORK_EXCEPTION
    await lab.heal(2)
    await lab.isolate(1, [2], Direction.IN)
    assert (await lab.step_fetch(at, 2)).error is ErrorCode.NETWORK_EXCEPTION
    await lab.heal(1)
    assert (await lab.step_fetch(at, 2)).error is ErrorCode.NONE


async def test_a_release_does_not_wait_for_a_leader_that_is_frozen(brokers: LocalCluster, lab: Switches) -> None:
    at = await make_topic(brokers, "frozen", [1, 2])
    await lab.hold_fetch(at, [2])
    assert (await lab.step_fetch(at, 2, until=Until.REQUEST)).response_withheld
    brokers.pause(1)
    assert await lab.release_fetch(at, [2]) == [2]
    brokers.resume(1)
    assert not (await lab.list_faults(2)).held
    await produce(brokers, at, b"m")

    async def followed() -> bool:
        return (await offsets(lab, at, 2))[0][0] == 1

    await until_async(followed, limit=150)


async def test_a_broker_that_does_not_take_the_first_connection_in_time_is_asked_again(brokers: LocalCluster) -> None:
    """Rule 6 of ``Switches``: the machine may have stood still; a broker that is silent twice is taken to be paused."""
    port = brokers.file.broker(1).port
    with Forwarder(port, silent=1) as late, Forwarder(port, silent=100) as silent:
        async with Switches({1: f"127.0.0.1:{late.port}"}) as lab:
            assert not (await lab.list_faults(1)).faults
        assert late.taken > 1
        async with Switches({1: f"127.0.0.1:{silent.port}"}) as lab:
            with pytest.raises(BrokerSilentError):
                await lab.list_faults(1)
        assert silent.taken > 1
