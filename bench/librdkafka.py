"""librdkafka through the package ``confluent-kafka``, as a client of any cluster that serves Kafka's clients.

Tidegauge itself does not use the package. ``alone`` runs a function in a process of its own: the library's threads and
sockets end with it.
"""

from __future__ import annotations

import importlib
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from fetched import Unavailable
from measure import Workload

Result = TypeVar("Result")
POLL_SECONDS = 1.0
BATCH = 10_000
BLOCK_BYTES = 65_536
READS = 10
"""So often a topic is read: once would be a tenth of a second, mostly of connecting."""
SILENCE_SECONDS = 60.0
"""A consumer that gets nothing for that long has failed."""


def library() -> Any:
    """Return the package.

    Raises:
        Unavailable: it is not installed.
    """
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as problem:
        raise Unavailable("the package confluent-kafka is not installed") from problem


def producer_settings(bootstrap: str, workload: Workload) -> dict[str, object]:
    """Return a producer's settings: the linger and batch size of all clients here."""
    return {
        "bootstrap.servers": bootstrap,
        "acks": workload.acks,
        "linger.ms": 5,
        "batch.size": 65_536,
        "queue.buffering.max.messages": 10_000_000,
        "queue.buffering.max.kbytes": 1_000_000,
    }


def write(producer: Any, topic: str, workload: Workload) -> float:
    """Write all records; return records a second, to the last acknowledgement."""
    value = b"x" * workload.record_bytes
    failed: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    began = time.perf_counter()
    for number in range(workload.records):
        producer.produce(topic, value, on_delivery=delivered)
        if number % BATCH == 0:
            producer.poll(0)
    left = producer.flush(60)
    seconds = time.perf_counter() - began
    if left or failed:
        raise RuntimeError(f"{left + len(failed)} records were not acknowledged: {failed[:1]}")
    return workload.records / seconds


def read(consumer: Any, places: Sequence[Any], records: int) -> float:
    """Read so many records from these places on; return records a second."""
    consumer.assign(list(places))
    began = heard = time.perf_counter()
    count = 0
    while count < records:
        found = consumer.consume(min(BATCH, records - count), POLL_SECONDS)  # it waits for as many as it is asked for
        for message in found:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
        now = time.perf_counter()
        heard = now if found else heard
        if now - heard > SILENCE_SECONDS:
            raise RuntimeError(f"{count} of {records} records came")
        count += len(found)
    return count / (time.perf_counter() - began)


def produce(bootstrap: str, topic: str, workload: Workload) -> float:
    """Write all records to a cluster; return records a second."""
    return write(library().Producer(producer_settings(bootstrap, workload)), topic, workload)


def one_at_a_time(bootstrap: str, topic: str, workload: Workload) -> list[float]:
    """Write each record when the one before is acknowledged; return how long each took in ms."""
    producer = library().Producer(producer_settings(bootstrap, workload) | {"linger.ms": 0})
    value = b"x" * workload.record_bytes
    took_ms: list[float] = []
    for _ in range(workload.records):
        began = time.perf_counter()
        producer.produce(topic, value)
        if producer.flush(60):
            raise RuntimeError("a record was not acknowledged")
        took_ms.append((time.perf_counter() - began) * 1_000)
    return took_ms


def write_evenly(bootstrap: str, topic: str, workload: Workload) -> None:
    """Write all records by turns to all partitions, a batch to each: the same topic on every side, for its readers.

    A producer that picks partitions by itself leaves some short, others by chance; see ``measure.READ_SHARE``.
    """
    producer = library().Producer(producer_settings(bootstrap, workload))
    value = b"x" * workload.record_bytes
    block = max(1, BLOCK_BYTES // workload.record_bytes)
    for number in range(workload.records):
        producer.produce(topic, value, partition=number // block % workload.partitions)
        if number % BATCH == 0:
            producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("records were not acknowledged")


def consumer_settings(bootstrap: str) -> dict[str, object]:
    """Return a consumer's settings.

    A partition of which 100,000 records wait in the client (``queued.min.messages``) is by default not fetched for a
    second (``fetch.queue.backoff.ms``), so that the faster broker would seem the slower one.
    """
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 1,
    }


def consume(bootstrap: str, topic: str, workload: Workload) -> float:
    """Read so many records from a topic's beginning, by assignment, ``READS`` times; return records a second."""
    consumer = library().Consumer(consumer_settings(bootstrap))
    try:
        places = [library().TopicPartition(topic, number, 0) for number in range(workload.partitions)]
        return statistics.harmonic_mean([read(consumer, places, workload.records) for _ in range(READS)])
    finally:
        consumer.close()


def alone(work: Callable[[str, str, Workload], Result], bootstrap: str, topic: str, workload: Workload) -> Result:
    """Do ``produce``, ``consume``, ``write_evenly`` or ``one_at_a_time`` in a process of its own.

    Raises:
        Unavailable: the library is missing.
    """
    library()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, bootstrap, topic, workload).result()
