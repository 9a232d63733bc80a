"""Kafka clients that are not Python, as child processes: each line of a producer's stdin is a record.

A consumer prints a line for each record. Requirements of a program (jars, modules, packages) are fetched once into the
directory of bench/fetched.py; if they can't be had, ``Unavailable`` names the missing part.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

from tests.neighbours import provide

from tidegauge.java import java_program

HERE = Path(__file__).parent
BENCH = HERE.parents[1] / "bench"
for _name in ("fetched", "maven", "jars"):
    provide(_name, BENCH / f"{_name}.py")
import fetched as _fetched  # noqa: E402 - a neighbour that was just provided
import jars as _jars  # noqa: E402 - the same

Unavailable: type[Exception] = _fetched.Unavailable
KAFKA: str = _jars.KAFKA
KAFKA_4: str = _jars.KAFKA_4
KAFKA_BEFORE_BATCHES: tuple[str, ...] = _jars.KAFKA_BEFORE_BATCHES
FETCH_SECONDS = 400
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PLAIN = os.environ | {"NO_COLOR": "1"}


@dataclass(frozen=True, slots=True)
class Program:
    """A client that produces and consumes.

    Attributes:
        client: its name in docs/clients.md.
        version: of the client.
        produce: the command that sends stdin's lines, with {servers} and {topic} replaced; () if it can't.
        consume: the command that reads {count} records of partition 0 without a group, or () if it can't.
        consume_group: the command that reads {count} records as a member of the group {group}, or () if it can't.
        prints_offsets: whether a consumer's line is "offset value", not the value alone.
        prints_acknowledged: whether the producer prints "offset value" for each acknowledged record.
        is_idempotent: whether its producer is; else a record that it sends again may be there twice.
        environment: variables of its processes besides those of the tests.
    """

    client: str
    version: str
    produce: Sequence[str]
    consume: Sequence[str]
    consume_group: Sequence[str]
    prints_offsets: bool = True
    prints_acknowledged: bool = True
    is_idempotent: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)


def filled(command: Sequence[str], **values: object) -> list[str]:
    """Return the command with its placeholders replaced."""
    return [re.sub(r"\{(\w+)\}", lambda name: str(values[name[1]]), word) for word in command]


def tool(version: str, name: str) -> list[str]:
    """Return the command of a tool of Kafka's, by its class name.

    Raises:
        Unavailable: no Maven or no Java, or its repository does not have this version.
    """
    return [java_program(), *JVM, "-cp", f"{_jars.kafka_jars(version)}/*", tool_class(version, name)]


def old_tool(version: str, name: str) -> list[str]:
    """Return the command of an old Kafka's tool; raise as ``tool``."""
    return [java_program(), *JVM, "-cp", f"{_jars.tools_jars(version)}/*", f"org.apache.kafka.tools.{name}"]


def tool_class(version: str, name: str) -> str:
    """Return a tool's class, which may have moved since 3.9."""
    moved = {
        "ConsoleConsumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "ReassignPartitionsCommand": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "ConfigCommand": "kafka.admin.ConfigCommand",
        "DumpLogSegments": "kafka.tools.DumpLogSegments",
        "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    }
    if version.startswith("3."):
        moved["ConsoleProducer"] = "kafka.tools.ConsoleProducer"
    return moved.get(name, f"org.apache.kafka.tools.{name}")


def console(version: str) -> Program:
    """Return kafka-console-producer.sh and kafka-console-consumer.sh of a version.

    The producer's own default of three retries is over before an election.
    """
    consumer = [*tool(version, "ConsoleConsumer"), "--bootstrap-server", "{servers}", "--topic", "{topic}"]
    consumer += ["--max-messages", "{count}", "--timeout-ms", "120000"]
    producer = [*tool(version, "ConsoleProducer"), "--bootstrap-server", "{servers}", "--topic", "{topic}"]
    return Program(
        client="Java: console producer and consumer",
        version=version,
        produce=[*producer, "--message-send-max-retries", "1000000"],
        consume=[*consumer, "--partition", "0", "--offset", "earliest"],
        consume_group=[*consumer, "--group", "{group}", "--from-beginning"],
        prints_offsets=False,
        prints_acknowledged=False,
    )


def go_client(name: str) -> Program:
    """Return the program in tests/clients/go with this name.

    Raises:
        Unavailable: there is no Go, or its module proxy can't be reached.
    """
    binary = str(go_programs() / name)
    pinned = (HERE / "go" / "go.mod").read_text(encoding="utf-8")
    version = re.search(rf"/{name}\S* v(\S+)$", pinned, re.MULTILINE)
    assert version is not None
    consume = [binary, "consume", "{servers}", "{topic}", "{count}"]
    return Program(
        client={"franz": "Go: franz-go", "kafka-go": "Go: kafka-go", "sarama": "Go: sarama"}[name],
        version=version[1],
        produce=[binary, "produce", "{servers}", "{topic}"],
        consume=consume,
        consume_group=[*consume, "{group}"],
        is_idempotent=name != "kafka-go",
    )


def go_programs() -> Path:
    """Return the directory with the built programs of tests/clients/go."""
    sources = sorted(path for path in (HERE / "go").rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    return go_build(f"go-clients-{digest}", HERE / "go")


def go_build(name: str, module: Path) -> Path:
    """Return the cache's directory ``name`` with a Go module's programs."""

    def build(directory: Path) -> None:
        # A network file system or an unusual umask may make the sources unreadable for VCS stamping, hence no stamps.
        run([which("go"), "build", "-trimpath", "-buildvcs=false", "-o", f"{directory}/", "./..."], module)

    built: Path = _fetched.kept(name, build)
    return built


def rust_client(name: str) -> Program:
    """Return a program in Rust: rskafka, which knows no groups, or rdkafka.

    Raises:
        Unavailable: there is no Rust, or its registry can't be reached.
    """
    source = HERE / {"rskafka": "rust", "rdkafka": "rdkafka"}[name]
    pinned = (source / "Cargo.lock").read_text(encoding="utf-8")
    version = re.search(rf'name = "{name}"\nversion = "(.+)"', pinned)
    assert version is not None
    digest = hashlib.sha256((pinned + (source / "src" / "main.rs").read_text(encoding="utf-8")).encode()).hexdigest()

    def build(directory: Path) -> None:
        command = [which("cargo"), "build", "--locked", "--quiet", "--target-dir", str(directory / "target")]
        run(command, source)
        shutil.copy(directory / "target" / "debug" / f"{name}-program", directory)
        shutil.rmtree(directory / "target")

    binary: Path = _fetched.kept(f"rust-{name}-{digest[:12]}", build) / f"{name}-program"
    consume = [str(binary), "consume", "{servers}", "{topic}", "{count}"]
    has_groups = name == "rdkafka"
    return Program(
        client={"rskafka": "Rust: rskafka", "rdkafka": "Rust: rust-rdkafka"}[name],
        version=version[1],
        produce=[str(binary), "produce", "{servers}", "{topic}"],
        consume=() if has_groups else consume,
        consume_group=[*consume, "{group}"] if has_groups else (),
        is_idempotent=has_groups,
    )


NODE_CLIENTS = {
    "kafkajs": ("kafkajs", HERE / "js", "JavaScript: kafkajs"),
    "confluent": ("@confluentinc/kafka-javascript", HERE / "js" / "confluent", "JavaScript: Confluent's client"),
    "platformatic": ("@platformatic/kafka", HERE / "js" / "platformatic", "JavaScript: @platformatic/kafka"),
}
"""Clients for Node.js: the package, the directory of its program, its name in docs/clients.md."""


def node_client(name: str) -> Program:
    """Return the program of one of NODE_CLIENTS.

    Raises:
        Unavailable: there is no Node.js or npm, its registry can't be reached, or what is native can't be compiled.
    """
    _, directory, client = NODE_CLIENTS[name]
    command = [which("node"), "--no-warnings", str(directory / "client.js")]
    return Program(
        client=client,
        version=node_version(name),
        produce=[*command, "produce", "{servers}", "{topic}"],
        consume=(),
        consume_group=[*command, "consume", "{servers}", "{topic}", "{count}", "{group}"],
        is_idempotent=name != "platformatic",  # its program makes another producer after a standstill
        environment={"NODE_PATH": str(node_modules(name))},
    )


def node_version(name: str) -> str:
    """Return the version of a client for Node.js that is pinned."""
    package, directory, _ = NODE_CLIENTS[name]
    return str(json.loads((directory / "package.json").read_text(encoding="utf-8"))["dependencies"][package])


def node_modules(name: str) -> Path:
    """Return a directory for NODE_PATH that has a client for Node.js.

    Confluent's has C++ in it: with Node.js's headers beside the program it is compiled here, else npm gets them, or a
    binary, from where they are published.
    """
    _, source, _ = NODE_CLIENTS[name]
    install = [which("npm"), "install", "--no-audit", "--no-fund", "--no-package-lock"]
    headers = Path(which("node")).resolve().parents[1]
    build = dict[str, str]()
    if name != "confluent":
        install += ["--ignore-scripts"]
    elif (headers / "include" / "node" / "node.h").exists():
        build = {
            "npm_config_nodedir": str(headers),
            "npm_config_build_from_source": "true",
            "CKJS_LINKING": "dynamic",  # else it downloads the sources of OpenSSL, curl and zlib
        }

    def fetch(directory: Path) -> None:
        shutil.copy(source / "package.json", directory)
        run(install, directory, build)

    where: Path = _fetched.kept(f"{name}-{node_version(name)}", fetch)
    return where / "node_modules"


def kafkajs() -> Program:
    """Return kafkajs's program; raises as ``node_client``."""
    return node_client("kafkajs")


def kcat() -> Program:
    """Return the machine's kcat, which runs once for each record.

    Raises:
        Unavailable: it is not installed.
    """
    program = which("kcat")
    shown = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"Version (\S+) .*librdkafka (\S+)", shown)
    produce = f'{program} -b "$0" -P -t "$1" -X enable.idempotence=true || exit'
    consume = ["-o", "beginning", "-c", "{count}", "-q", "-u", "-f", r"%o %s\n"]
    return Program(
        client="C: kcat",
        version=f"{version[1]} (librdkafka {version[2]})" if version else "unknown",
        produce=["sh", "-c", f"while read -r line; do echo $line | {produce}; done", "{servers}", "{topic}"],
        consume=[program, "-b", "{servers}", "-C", "-t", "{topic}", "-p", "0", *consume],
        consume_group=[program, "-b", "{servers}", *consume, "-G", "{group}", "{topic}"],
        prints_acknowledged=False,
    )


@dataclass(frozen=True, slots=True)
class Attempts:
    """A client that tries credentials: lines "mechanism user password topic" in, a line of what came of each out.

    Attributes:
        client: its name in docs/clients.md.
        version: of the client.
        command: of the process; {servers} is replaced.
        environment: variables of the process besides the tests'.
        mechanisms: that it can use.
    """

    client: str
    version: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    mechanisms: Sequence[str] = MECHANISMS


def go_attempts(name: str) -> Attempts:
    """Return the attempts of a program in tests/clients/go; raises as ``go_client``."""
    made = go_client(name)
    return Attempts(made.client, made.version, [made.produce[0], "attempts", "{servers}"])


def kafkajs_attempts() -> Attempts:
    """Return tests/clients/js/attempts.js; raises as ``kafkajs``."""
    made = kafkajs()
    return Attempts(
        made.client, made.version, [made.produce[0], str(HERE / "js" / "attempts.js"), "{servers}"], made.environment
    )


def kcat_attempts() -> Attempts:
    """Return kcat, with a process for each attempt; raise as ``kcat``."""
    made = kcat()
    return Attempts(made.client, made.version, ["sh", str(HERE / "kcat_attempts.sh"), "{servers}"])


def java_attempts(version: str) -> Attempts:
    """Return tests/clients/java/Attempts.java with the clients of a version of Kafka; raises as ``tool``.

    SCRAM of 0.10 needs a class that Java 11 has no more (javax.xml.bind.DatatypeConverter).
    """
    is_old = version in KAFKA_BEFORE_BATCHES
    jars = _jars.tools_jars(version) if is_old else _jars.kafka_jars(version)
    client = "Java: Kafka's clients before record batches" if is_old else "Java: kafka-clients"
    program = str(HERE / "java" / "Attempts.java")
    command = [java_program(), *JVM, "-cp", f"{jars}/*", program, "{servers}"]
    return Attempts(client, version, command, mechanisms=("PLAIN",) if is_old else MECHANISMS)


def java_program_of(version: str, name: str) -> list[str]:
    """Return the command of a program of tests/clients/java; raise as ``tool``."""
    return [java_program(), *JVM, "-cp", f"{_jars.kafka_jars(version)}/*", str(HERE / "java" / f"{name}.java")]


def python_attempts(name: str) -> Attempts:
    """Return tests/clients/python_attempts.py with one of its clients: confluent, aiokafka or kafka-python."""
    package = {"confluent": "confluent-kafka"}.get(name, name)
    number = package_version(package)
    if name == "confluent":
        import confluent_kafka  # noqa: PLC0415 - only its own attempts load the C library

        number = f"{number} (librdkafka {confluent_kafka.libversion()[0]})"
    return Attempts(f"Python: {package}", number, [sys.executable, str(HERE / "python_attempts.py"), name, "{servers}"])


def connector_jars(spark_version: str) -> tuple[str, list[Path]]:
    """Return version and jars of Spark's Kafka connector.

    Raises:
        Unavailable: no Maven, or its repository has no connector of this major version.
    """
    found: tuple[str, list[Path]] = _jars.newest_connector(spark_version)
    return found


def kafka_jars(version: str) -> Path:
    """Return the directory with Kafka's jars; raise as ``tool``."""
    found: Path = _jars.kafka_jars(version)
    return found


def kafka_classpath() -> str:
    """Return the class path of Kafka 4's nodes; raise as ``tool``."""
    found: str = _jars.kafka_classpath(KAFKA_4)
    return found


def fetched_into(name: str, fetch: Callable[[Path], None]) -> Path:
    """Return the cache's directory ``name``, which ``fetch`` fills if new."""
    found: Path = _fetched.kept(name, fetch)
    return found


def which(name: str) -> str:
    """Return the path of an installed program, or raise Unavailable."""
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed")
    return found


def run(command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a command that fetches or builds; Unavailable with its last line where it fails."""
    variables = PLAIN | dict(environment or {})
    try:
        done: Any = subprocess.run(
            command, cwd=directory, env=variables, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{Path(command[0]).name} {command[1]} did not end in {FETCH_SECONDS} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise Unavailable(f"{Path(command[0]).name} {command[1]} failed: {lines[-1] if lines else done.returncode}")
