"""The limit of open connections, and which connections wait (Kafka's ConnectionQuotas.waitForConnectionSlot)."""

from __future__ import annotations

import asyncio

from tidegauge.settings import INT_MAX, parse_broker_settings
from tidegauge_broker.server.wire.connection_slots import ConnectionSlots


def taking(slots: ConnectionSlots, *listeners: str) -> ConnectionSlots:
    for name in listeners:
        slots.take(name)
    return slots


def test_a_broker_without_a_limit_takes_every_connection() -> None:
    slots = taking(ConnectionSlots(), *["A"] * 10_000)
    assert (slots.is_free("A"), slots.excess(), slots.taken("A")) == (True, 0, 10_000)


def test_the_brokers_limit_counts_over_all_listeners() -> None:
    slots = taking(ConnectionSlots(3), "A", "A")
    assert [slots.is_free(name) for name in "AB"] == [True, True]
    slots.take("B")
    assert [slots.is_free(name) for name in "AB"] == [False, False]
    slots.release("A")
    assert slots.is_free("B")


def test_connections_that_another_wire_counts_take_slots_too() -> None:
    slots = taking(ConnectionSlots(3, others=lambda: {"GRPC": 2}), "A")
    assert not slots.is_free("A")


def test_a_listeners_own_limit_holds_up_that_listener_alone() -> None:
    slots = taking(ConnectionSlots(of_listener=lambda name: 1 if name == "A" else INT_MAX), "A", "B")
    assert not slots.is_free("A")
    assert slots.is_free("B")


def test_the_inter_broker_listener_is_not_held_up_by_the_brokers_limit() -> None:
    """ConnectionQuotas.protectedListener; a limit of its own holds."""
    slots = taking(ConnectionSlots(2, lambda name: 2 if name == "BROKERS" else INT_MAX, "BROKERS"), "A", "A")
    assert not slots.is_free("A")
    assert slots.is_free("BROKERS")
    taking(slots, "BROKERS", "BROKERS")
    assert not slots.is_free("BROKERS")


def test_what_the_protected_listener_has_above_the_limit_others_must_give_up() -> None:
    """Processor.closeExcessConnections; the protected listener's own connections stay."""
    slots = taking(ConnectionSlots(3, protected="BROKERS"), "A", "A", "A", "BROKERS", "BROKERS")
    assert slots.excess() == 2
    slots.release("A")
    assert slots.excess() == 1
    taking(slots, "BROKERS", "BROKERS", "BROKERS")
    assert slots.excess() == 2, "all that A has left"
    assert taking(ConnectionSlots(1, others=lambda: {"GRPC": 5}), "A").excess() == 1


async def test_who_waits_for_a_slot_gets_the_one_that_is_released() -> None:
    slots = taking(ConnectionSlots(1), "A")
    waiting = [asyncio.ensure_future(slots.until_free(name)) for name in "AB"]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    slots.release("A")
    await asyncio.gather(*waiting)


def test_a_listener_has_the_brokers_limit_unless_it_has_its_own() -> None:
    """ConnectionQuotas.addListener reads the broker's values with the listener's over them."""
    values, _ = parse_broker_settings({"max.connections": "7", "listener.name.external.max.connections": "2"})
    assert values.of_listener("EXTERNAL", "max.connections", values.integer("max.connections")) == 2
    assert values.of_listener("PLAINTEXT", "max.connections", values.integer("max.connections")) == 7
