"""The options and columns of the sink, read once and rejected with a sentence.

Contract: pure. Columns and sentences are those of Spark's Kafka sink: ``value`` is required; ``key``, ``topic``,
``partition`` and ``headers`` are optional; all others are not written. Option ``topic`` takes precedence over the
column ``topic``. Producer settings have the prefix ``kafka.``, as there.

Some options are additions: ``idempotent`` (a stream: true, a batch: false). With it each record carries a header that
names query, micro-batch and task, and a micro-batch that is run again writes only what is missing. ``idempotentName``
tells several writes of one micro-batch apart, ``idempotentLookback`` bounds the search for an earlier attempt.

Source: ``KafkaWriter.validateQuery``, ``KafkaRowWriter`` of Spark; ``ProducerConfig``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import topic_name_problem
from tidegauge_spark.options import (
    SecurityProperties,
    duration_ms,
    flag,
    parse_bootstrap_servers,
    security_properties,
    whole_number,
)

REFUSED = {
    "kafka.key.serializer": "keys are strings or bytes, as the column has them",
    "kafka.value.serializer": "values are strings or bytes, as the column has them",
    "kafka.transactional.id": "there are no transactions here",
}
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
COLUMN_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (HEADERS_TYPE,),
}
NUMBERS = {
    "kafka.linger.ms": "linger_ms",
    "kafka.batch.size": "batch_size_bytes",
    "kafka.request.timeout.ms": "request_timeout_ms",
    "kafka.delivery.timeout.ms": "delivery_timeout_ms",
    "kafka.max.request.size": "max_request_size_bytes",
    "kafka.buffer.memory": "buffer_memory_bytes",
    "kafka.max.block.ms": "max_block_ms",
    "kafka.retry.backoff.ms": "retry_backoff_ms",
}
"""Kafka's producer settings and the client's names for them."""
DEFAULT_LINGER_MS = 20
"""A task writes at full speed: larger batches are worth a short wait."""
NAME = re.compile(r"[A-Za-z0-9._-]+")
DEFAULT_LOOKBACK_MS = 7 * 24 * 3600 * 1000


class WriteOptions(NamedTuple):
    """All options of one sink.

    Attributes:
        bootstrap_servers: bootstrap addresses.
        topic: of all records; empty: each row names its own.
        producer: keyword arguments of the client's producer.
        is_idempotent: whether a micro-batch that is run again must write nothing twice.
        lookback_ms: how far back the records of an earlier attempt are looked for.
        name: of this write among those of its micro-batch; empty: it has none.
        security: how connections are protected.
    """

    bootstrap_servers: tuple[str, ...]
    topic: str
    producer: tuple[tuple[str, Any], ...]
    is_idempotent: bool
    lookback_ms: int
    security: SecurityProperties = SecurityProperties()
    name: str = ""


def _refuse(message: str, code: ErrorCode = ErrorCode.INVALID_CONFIG) -> TidegaugeError:
    return TidegaugeError(code, message)


def check_columns(types: Mapping[str, str], topic: str) -> None:
    """Check the sink's rules on columns; ``types`` has Spark's names of their types.

    Raises:
        TidegaugeError: INVALID_REQUEST, a column is missing or has the wrong type.
    """
    if not topic and "topic" not in types:
        raise _refuse(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.",
            ErrorCode.INVALID_REQUEST,
        )
    if "value" not in types:
        raise _refuse("Required attribute 'value' not found", ErrorCode.INVALID_REQUEST)
    for name, allowed in COLUMN_TYPES.items():
        if name in types and types[name] not in allowed:
            raise _refuse(
                f"{name} attribute unsupported type {types[name]}. {name} must be a(n) {' or '.join(allowed)}: cast it",
                ErrorCode.INVALID_REQUEST,
            )


def _acks(options: Mapping[str, str]) -> str | int:
    text = str(options.get("kafka.acks", "all")).lower()
    known: dict[str, str | int] = {"all": "all", "-1": "all", "1": 1, "0": 0}
    if text not in known:
        raise _refuse(f"kafka.acks is {text!r}; it must be all, 1 or 0")
    return known[text]


def parse_write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Read the options of a batch or a streaming writer.

    Raises:
        TidegaugeError: INVALID_CONFIG or INVALID_TOPIC_EXCEPTION with a sentence about it.
    """
    options = {name.lower(): value for name, value in given.items()}
    for name, why in REFUSED.items():
        if name in options:
            raise _refuse(f"Option '{name}' is not supported: {why}")
    servers = options.get("kafka.bootstrap.servers") or options.get("bootstrap.servers")
    if not servers:
        raise _refuse("Option 'kafka.bootstrap.servers' must be specified for a tidegauge sink: host:port,host:port")
    topic = str(options.get("topic", "")).strip()
    problem = topic_name_problem(topic) if topic else None
    if problem:
        raise _refuse(problem, ErrorCode.INVALID_TOPIC_EXCEPTION)
    acks = _acks(options)
    producer: dict[str, Any] = {"acks": acks, "linger_ms": DEFAULT_LINGER_MS}
    producer["compression"] = str(options.get("kafka.compression.type", "none")).lower()
    for name, keyword in NUMBERS.items():
        number = whole_number(options, name, None, 0)
        if number is not None:
            producer[keyword] = number
    is_idempotent = flag(options, "idempotent", streaming)
    if is_idempotent and acks != "all":
        raise _refuse("idempotent=true needs kafka.acks=all: what is not acknowledged by all may be lost or come late")
    name = str(options.get("idempotentname", "")).strip()
    if name and not NAME.fullmatch(name):
        raise _refuse(f"idempotentName is {name!r}; it must be letters, digits, '.', '_' and '-'")
    return WriteOptions(
        bootstrap_servers=parse_bootstrap_servers(servers),
        topic=topic,
        producer=tuple(producer.items()),
        is_idempotent=is_idempotent,
        lookback_ms=duration_ms(options, "idempotentLookback", DEFAULT_LOOKBACK_MS),
        security=security_properties(options),
        name=name,
    )
