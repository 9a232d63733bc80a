"""A user of the container, through its mapped ports, can lose a leader and no record."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from steering import Control

TOPIC = "orders"
_RECORDS = 200


def lives_through_a_killed_leader(control: Control, servers: Sequence[str]) -> None:
    """Kill the leader under a producer; every record must be there once, and every address must be what it was.

    Raises:
        AssertionError: something is not so.
    """
    bootstrap = ",".join(servers)
    assert control.bootstrap_servers == bootstrap, "brokers must advertise the mapped addresses"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(60)
    control.wait(in_sync=[TOPIC], timeout_ms=60_000)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    values = [b"%d" % number for number in range(_RECORDS)]
    for value in values[: _RECORDS // 2]:
        producer.produce(TOPIC, value)
    assert producer.flush(60) == 0
    killed = control.kill(f"leader-of:{TOPIC}-0")
    for value in values[_RECORDS // 2 :]:
        producer.produce(TOPIC, value)
    control.wait(leader={f"{TOPIC}-0": {"not": killed}}, timeout_ms=60_000)
    assert producer.flush(60) == 0
    control.start(killed)
    control.wait(isr={f"{TOPIC}-0": [0, 1, 2]}, timeout_ms=60_000)
    assert _read(bootstrap) == values
    assert control.bootstrap_servers == bootstrap, "a killed broker must come back at its mapped address"
    # The one that was killed is reached at its own port, not only through the others.
    admin = AdminClient({"bootstrap.servers": servers[killed]})
    assert killed in admin.list_topics(timeout=60).brokers


def _read(bootstrap: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    try:
        found: list[bytes | None] = []
        while len(found) < _RECORDS:
            message = consumer.poll(60)
            assert message is not None, f"only {len(found)} records in 60 s"
            assert message.error() is None, message.error()
            found.append(message.value())
        return found
    finally:
        consumer.close()
