"""Try credentials with a Kafka client in Python, in a process of its own.

    python_attempts.py CLIENT SERVERS

CLIENT is ``confluent``, ``aiokafka`` or ``kafka-python``. Each line of stdin is ``mechanism user password topic``; for
each a line says what came of writing a record and reading it: ``done``, or the error.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import KafkaError

LIMIT_SECONDS = 60.0


class Reasons(logging.Handler):
    """Log lines of a client about refused credentials: its exception says only that it found no broker."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep lines about authentication."""
        self.last += record.getMessage() + " | "


REASONS = Reasons()


def with_confluent(servers: str, mechanism: str, user: str, password: str, topic: str) -> str:
    """Write and read with librdkafka, which tells of refused credentials by ``error_cb`` alone."""
    outcomes: list[str] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "error_cb": lambda error: outcomes.append(str(error)) if error.name() == "_AUTHENTICATION" else None,
    }
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, b"confluent", on_delivery=lambda error, _: outcomes.append(str(error) if error else "done"))
    while not outcomes:
        producer.poll(0.1)
    if outcomes[0] != "done":
        producer.purge()
        return outcomes[0]
    consumer = confluent_kafka.Consumer(settings | {"group.id": "unused", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    record = consumer.poll(LIMIT_SECONDS)
    consumer.close()
    assert record is not None
    return str(record.error()) if record.error() else "done"


def with_kafka_python(servers: str, mechanism: str, user: str, password: str, topic: str) -> str:
    """Write and read with kafka-python."""
    settings = {
        "bootstrap_servers": servers.split(","),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
        "bootstrap_timeout_ms": 10000,
    }
    try:
        producer = kafka.KafkaProducer(**settings, acks="all")
        producer.send(topic, b"kafka-python").get(LIMIT_SECONDS)
        producer.close()
        consumer = kafka.KafkaConsumer(**settings, enable_auto_commit=False)
        at = kafka.TopicPartition(topic, 0)
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        assert consumer.poll(LIMIT_SECONDS * 1000)
        consumer.close()
    except kafka.errors.KafkaError as problem:
        return f"{problem!r} {REASONS.last}"
    return "done"


def with_aiokafka(servers: str, mechanism: str, user: str, password: str, topic: str) -> str:
    """Write and read with aiokafka."""
    settings: dict[str, Any] = {
        "bootstrap_servers": servers.split(","),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }

    async def attempt() -> None:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"aiokafka")
        async with aiokafka.AIOKafkaConsumer(**settings) as consumer:
            at = aiokafka.TopicPartition(topic, 0)
            consumer.assign([at])
            await consumer.seek_to_beginning(at)
            await consumer.getone()

    async def within_the_limit() -> str:
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await attempt()
        except KafkaError as problem:
            return f"{problem!r} {REASONS.last}"
        return "done"

    return asyncio.run(within_the_limit())


CLIENTS: dict[str, Callable[..., str]] = {
    "confluent": with_confluent,
    "aiokafka": with_aiokafka,
    "kafka-python": with_kafka_python,
}

if __name__ == "__main__":
    client, servers = sys.argv[1:]
    logging.getLogger().addHandler(REASONS)
    for line in sys.stdin:
        REASONS.last = ""
        print(CLIENTS[client](servers, *line.split()).replace("\n", " "), flush=True)
