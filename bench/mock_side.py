"""librdkafka's mock cluster as a further column: brokers as threads of the client's process, in memory, no disk.

It speaks the protocol and keeps records, but replicates nothing; it says what a test double in one process costs.
Needs the package ``confluent-kafka``, which Tidegauge itself does not use.
"""

from __future__ import annotations

import importlib
import time
import uuid
from typing import Any

from measure import Workload

NAME = "librdkafka mock"
POLL_SECONDS = 1.0
BATCH = 10_000
MOST_PARTITIONS = 4  # of a topic that the mock creates by itself


class Unavailable(Exception):
    """The library is not installed; the text says so."""


def _library() -> Any:
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as problem:
        raise Unavailable("the package confluent-kafka is not installed") from problem


def run(workload: Workload) -> tuple[float, float]:
    """Return the records written and read per second.

    Raises:
        Unavailable: the library is missing.
    """
    library = _library()
    producer = library.Producer(
        {
            "test.mock.num.brokers": 3,
            "bootstrap.servers": "mock",
            "acks": workload.acks,
            "linger.ms": 5,
            "batch.size": 65_536,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    metadata = producer.list_topics(timeout=10)
    addresses = ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
    produced = _produce(producer, topic, workload)
    return produced, _consume(library, addresses, topic, workload)


def _produce(producer: Any, topic: str, workload: Workload) -> float:
    value = b"x" * workload.record_bytes
    began = time.perf_counter()
    for number in range(workload.records):
        producer.produce(topic, value)
        if number % BATCH == 0:
            producer.poll(0)
    left = producer.flush(60)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")
    return workload.records / (time.perf_counter() - began)


def _consume(library: Any, addresses: str, topic: str, workload: Workload) -> float:
    """Of what is left: the mock keeps a few MB of each partition and forgets the rest."""
    consumer = library.Consumer({"bootstrap.servers": addresses, "group.id": "bench"})
    places = [library.TopicPartition(topic, number) for number in range(min(workload.partitions, MOST_PARTITIONS))]
    kept = 0
    for place in places:
        low, high = consumer.get_watermark_offsets(place, timeout=10)
        place.offset, kept = low, kept + high - low
    consumer.assign(places)
    began = time.perf_counter()
    read = 0
    try:
        while read < kept:
            found = consumer.consume(BATCH, POLL_SECONDS)
            if not found:
                raise RuntimeError(f"the mock gave {read} of {kept} records")
            read += len(found)
        return read / (time.perf_counter() - began)
    finally:
        consumer.close()
