"""Frameworks that copy a topic, as child processes; tests/integration/test_kafka_applications.py tries them.

Each program is called with SERVERS SOURCE SINK GROUP DIRECTORY and works until SIGTERM. What it needs is fetched once
into the directory of bench/fetched.py; where that can't be had, ``Unavailable`` says what is missing.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.clients.programs import HERE, JVM, fetched_into, run

from tidegauge.java import java_program

# tests.clients.programs has provided this neighbour.
import jars as _jars  # isort: skip

SPRING_KAFKA: str = _jars.SPRING_KAFKA
FLINK: str = _jars.FLINK
DEBEZIUM: str = _jars.DEBEZIUM
FLINK_CONNECTOR: str = _jars.FLINK_CONNECTOR
OPEN = ("--add-opens", "java.base/java.util=ALL-UNNAMED", "--add-opens", "java.base/java.lang=ALL-UNNAMED")
"""Packages that Flink looks into."""
PYTHON_PACKAGES = {"quixstreams": "3.28.1", "faust-streaming": "0.15.3", "faststream[kafka]": "0.7.8"}
WORDS = ("{servers}", "{source}", "{sink}", "{group}", "{directory}")


@dataclass(frozen=True, slots=True)
class Application:
    """A framework's program that copies a topic.

    Attributes:
        client: its name in docs/clients.md.
        version: of the framework.
        command: of one process; WORDS are replaced.
        environment: variables of its processes besides those of the tests.
        is_exactly_once: whether it promises that; else a record may be copied again.
        has_state: whether it writes "number value", the number from a store of its own.
        instances: how many processes share the work.
        may_hang: whether it is known to stand still for ever when a coordinator dies, by a defect of its client.
        retries: whether it writes what it refused once to the topic SINK-retried.
    """

    client: str
    version: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    is_exactly_once: bool = True
    has_state: bool = False
    instances: int = 1
    retries: bool = False
    may_hang: bool = False


def streams(version: str) -> Application:
    """Return Kafka Streams of a version: two instances, of which one has the standby of the other's store."""
    command = _java(_jars.streams_jars(version), "StreamsCopier")
    return Application("Java: Kafka Streams", version, command, has_state=True, instances=2)


def spring() -> Application:
    """Return Spring for Apache Kafka, with transactions and retry topics."""
    command = _java(_jars.spring_jars(), "SpringCopier")
    return Application("Java: Spring for Apache Kafka", SPRING_KAFKA, command, retries=True)


def flink() -> Application:
    """Return Flink's Kafka connector in a cluster within its process."""
    command = _java(_jars.flink_jars(), "FlinkCopier", "-Xmx700m", *OPEN)
    return Application("Java: Flink's Kafka connector", f"{FLINK_CONNECTOR} (Flink {FLINK})", command)


def quix() -> Application:
    """Return Quix Streams, exactly once, with a store; librdkafka, its client, may hang (docs/clients.md)."""
    made = _python("quixstreams", "quix_copier", "Python: Quix Streams", has_state=True)
    return replace(made, may_hang=True)


def faust() -> Application:
    """Return Faust as it is maintained today, at least once."""
    return _python("faust-streaming", "faust_copier", "Python: Faust (faust-streaming)", is_exactly_once=False)


def faststream() -> Application:
    """Return FastStream on aiokafka, at least once."""
    return _python("faststream[kafka]", "faststream_copier", "Python: FastStream", is_exactly_once=False)


APPLICATIONS: Mapping[str, Callable[[], Application]] = {
    "streams-3": lambda: streams(_jars.KAFKA),
    "streams-4": lambda: streams(_jars.KAFKA_4),
    "spring": spring,
    "flink": flink,
    "quix": quix,
    "faust": faust,
    "faststream": faststream,
}


def _java(jars: Path, name: str, *options: str) -> list[str]:
    """Return the command of a program in tests/clients/java: the jars of what it needs, then WORDS."""
    return [java_program(), *JVM, *options, "-cp", f"{jars}/*", str(HERE / "java" / f"{name}.java"), *WORDS]


def _python(
    package: str, program: str, client: str, *, is_exactly_once: bool = True, has_state: bool = False
) -> Application:
    """Return a program in tests/clients/python with its package, which is installed beside this environment."""
    requirement = f"{package}=={PYTHON_PACKAGES[package]}"
    digest = hashlib.sha256(f"{requirement} {sys.version_info[:2]}".encode()).hexdigest()[:12]

    def install(directory: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--target", str(directory), requirement], directory)

    packages = fetched_into(f"python-{digest}", install)
    return Application(
        client,
        PYTHON_PACKAGES[package],
        [sys.executable, "-X", "faulthandler", str(HERE / "python" / f"{program}.py"), *WORDS],
        {"PYTHONPATH": str(packages)},
        is_exactly_once,
        has_state,
    )


def connect_worker(version: str) -> list[str]:
    """Return the command of a worker of Kafka Connect, without its file of settings; Unavailable as ``tool``."""
    jars = _jars.connect_jars(version)
    return [java_program(), *JVM, "-cp", f"{jars}/*", "org.apache.kafka.connect.cli.ConnectDistributed"]


def debezium_stores() -> list[str]:
    """Return the command of Debezium's stores, without servers and name; Unavailable as ``tool``."""
    return [java_program(), *JVM, "-cp", f"{_jars.debezium_jars()}/*", str(HERE / "java" / "DebeziumStores.java")]
