"""Jars of Apache Kafka and of Spark's Kafka connector, from Maven Central, for benchmarks and for tests."""

from __future__ import annotations

import re
from pathlib import Path

from fetched import Unavailable
from maven import Artifact, resolve

KAFKA = "3.9.1"
KAFKA_4 = "4.3.1"
"""The newest release of Kafka 4, whose tools and clients are tried."""
KAFKA_BEFORE_BATCHES = ("0.10.0.1", "0.10.2.2")
"""Releases whose clients know no record batches; the first's ask no broker for its versions."""


def kafka_jars(version: str = KAFKA) -> Path:
    """Return the directory with Kafka's broker, tools and clients of a version.

    Raises:
        Unavailable: no Maven, or it can't reach its repository.
    """
    artifacts = (
        Artifact("org.apache.kafka", "kafka_2.13", version),
        Artifact("org.apache.kafka", "kafka-tools", version),
        Artifact("org.slf4j", "slf4j-nop", "1.7.36"),
    )
    return resolve(f"kafka-{version}", artifacts)


def broker_jars(version: str) -> Path:
    """Return the directory with a Kafka's broker and clients, without tools.

    Raises:
        Unavailable: no Maven, or it can't reach its repository.
    """
    artifacts = (
        Artifact("org.apache.kafka", "kafka_2.13", version),
        Artifact("org.slf4j", "slf4j-nop", "1.7.36"),
    )
    return resolve(f"kafka-broker-{version}", artifacts)


def kafka_classpath(version: str = KAFKA_4) -> str:
    """Return the class path of Kafka's nodes, with a logger to stderr.

    Raises:
        Unavailable: as ``kafka_jars``.
    """
    name = "slf4j-simple-1.7.36"
    logger = resolve(name, [Artifact("org.slf4j", "slf4j-simple", "1.7.36", alone=True)])
    jars = [one for one in kafka_jars(version).glob("*.jar") if not one.name.startswith("slf4j-nop")]
    return ":".join(sorted(map(str, [*jars, *logger.glob("slf4j-simple*.jar")])))


def tools_jars(version: str) -> Path:
    """Return the directory with a Kafka's tools and clients, without a broker.

    Raises:
        Unavailable: no Maven, or it can't reach its repository.
    """
    artifacts = (
        Artifact("org.apache.kafka", "kafka-tools", version),
        Artifact("org.slf4j", "slf4j-nop", "1.7.36"),
    )
    return resolve(f"kafka-tools-{version}", artifacts)


def connector_jars(version: str) -> list[Path]:
    """Return the jars of Spark's Kafka connector of a version.

    Each by itself: Spark's own POMs name a repository that not every machine reaches. The token provider, which is
    asked for no token here, need not be of the same version: not every mirror has it.

    Raises:
        Unavailable: no Maven, or its repository has no connector of this version.
    """
    major = version.split(".", maxsplit=1)[0]
    artifacts = [
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", version, alone=True),
        Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", f"[{major}.0,{version}]", alone=True),
        Artifact("org.apache.kafka", "kafka-clients", KAFKA, alone=True),
        Artifact("org.apache.commons", "commons-pool2", "2.12.0", alone=True),
    ]
    return sorted(resolve(f"spark-sql-kafka-{version}", artifacts).glob("*.jar"))


def newest_connector(spark_version: str) -> tuple[str, list[Path]]:
    """Return the connector of Spark's version, or the newest earlier one in Maven.

    Raises:
        Unavailable: it has none.
    """
    major, minor, *_ = (int(part) for part in re.findall(r"[0-9]+", spark_version))
    tried = []
    for version in (spark_version, *(f"{major}.{older}.0" for older in range(minor, -1, -1))):
        try:
            return version, connector_jars(version)
        except Unavailable as problem:
            tried.append(problem)
    raise tried[0]


SPRING_KAFKA = "4.0.0"
FLINK, FLINK_CONNECTOR = "2.2.0", "5.0.0-2.2"
DEBEZIUM = "3.6.1.Final"
_SILENT = Artifact("org.slf4j", "slf4j-nop", "2.0.17")


def streams_jars(version: str) -> Path:
    """Return the directory with Kafka Streams of a version; Unavailable as ``kafka_jars``."""
    artifacts = (Artifact("org.apache.kafka", "kafka-streams", version), Artifact("org.slf4j", "slf4j-nop", "1.7.36"))
    return resolve(f"kafka-streams-{version}", artifacts)


def connect_jars(version: str) -> Path:
    """Return the directory with Kafka Connect, its file connectors and MirrorMaker 2; Unavailable as ``kafka_jars``."""
    names = ("connect-runtime", "connect-mirror", "connect-file", "connect-json")
    return resolve(f"kafka-connect-{version}", [Artifact("org.apache.kafka", name, version) for name in names])


def spring_jars() -> Path:
    """Return the directory with Spring for Apache Kafka; Unavailable as ``kafka_jars``."""
    artifacts = (Artifact("org.springframework.kafka", "spring-kafka", SPRING_KAFKA), _SILENT)
    return resolve(f"spring-kafka-{SPRING_KAFKA}", artifacts)


def flink_jars() -> Path:
    """Return the directory with Flink and its Kafka connector; Unavailable as ``kafka_jars``."""
    names = ("flink-connector-base", "flink-clients", "flink-streaming-java", "flink-runtime")
    artifacts = (
        Artifact("org.apache.flink", "flink-connector-kafka", FLINK_CONNECTOR),
        *(Artifact("org.apache.flink", name, FLINK) for name in names),
        Artifact("org.slf4j", "slf4j-nop", "1.7.36"),
    )
    return resolve(f"flink-kafka-{FLINK_CONNECTOR}", artifacts)


def debezium_jars() -> Path:
    """Return the directory with Debezium's stores in Kafka; Unavailable as ``kafka_jars``."""
    names = ("debezium-embedded", "debezium-storage-kafka")
    artifacts = (
        *(Artifact("io.debezium", name, DEBEZIUM) for name in names),
        Artifact("org.slf4j", "slf4j-nop", "1.7.36"),
    )
    return resolve(f"debezium-{DEBEZIUM}", artifacts)
