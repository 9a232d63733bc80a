"""The check of the lab about addresses: a bootstrap server that works, and brokers that send clients elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.evidence import Evidence
from tidegauge_lab.labs.model import Finding, no, yes

ORDERS = TopicPartition("orders", 0)


def advertised_listeners(evidence: Evidence) -> Iterator[Finding]:
    """Look whether each broker can be reached at its advertised address, and whether a record came that way."""
    if not evidence.kafka_addresses:
        yield no("No broker responds to Kafka clients", "start the brokers")
        return
    elsewhere = {one: at for one, at in evidence.kafka_addresses.items() if one not in evidence.kafka_reachable}
    if elsewhere:
        named = ", ".join(f"broker {one} at {at}" for one, at in sorted(elsewhere.items()))
        yield no(
            f"A client that has reached a bootstrap server is sent to {named}, where the cluster does not respond",
            "let the brokers advertise the addresses at which they listen",
        )
        return
    yield yes(
        "Each broker can be reached at its advertised address: "
        + ", ".join(f"{one} at {at}" for one, at in sorted(evidence.kafka_addresses.items()))
    )
    restarted = list(evidence.of("broker", state="starting"))
    if len(restarted) < 2 * len(evidence.processes):
        yield no("The brokers have not been restarted since the lab began", "start this lab again")
        return
    yield yes("Each of them was restarted for it: a broker reads its listeners when it starts")
    if not (records := evidence.leaders_records(ORDERS)):
        yield no("orders-0 is empty", "write a record with a Kafka client")
        return
    yield yes(f"A client has found the leader of orders-0: its log end offset is {records[-1].offset + 1}")
