"""Kafka clients in Go, JavaScript, Rust, Java and C: what they send arrives once and in order, through failovers.

Each runs as two child processes, a producer and a consumer, while the leader is killed, comes back, and the next one is
stopped and started; a group's coordinator is killed, too. Each is tried in ZooKeeper mode and in KRaft mode. What is
not on the machine and can't be fetched is skipped, with what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients import programs
from tests.clients.programs import KAFKA, KAFKA_4, Program, Unavailable
from tests.clients.runs import VALUES, Child, Run

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
MAKERS: dict[str, Callable[[], Program]] = {
    "franz-go": lambda: programs.go_client("franz"),
    "sarama": lambda: programs.go_client("sarama"),
    "kafka-go": lambda: programs.go_client("kafka-go"),
    "kafkajs": programs.kafkajs,
    "confluent-js": lambda: programs.node_client("confluent"),
    "platformatic": lambda: programs.node_client("platformatic"),
    "rskafka": lambda: programs.rust_client("rskafka"),
    "rust-rdkafka": lambda: programs.rust_client("rdkafka"),
    "kcat": programs.kcat,
    "console-3": lambda: programs.console(KAFKA),
    "console-4": lambda: programs.console(KAFKA_4),
}
OFTEN = {"kafkajs", "console-3"}
PARAMS = [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.long]) for name in MAKERS]
GROUPS = ["franz-go", "sarama", "kafka-go", "kafkajs", "confluent-js", "platformatic", "rust-rdkafka"]
MODES = [pytest.param("zookeeper"), pytest.param("kraft", marks=[pytest.mark.long])]
NUMBERED = [f"{offset} {value}" for offset, value in enumerate(VALUES)]


@pytest.fixture(params=PARAMS)
def program(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Program:
    try:
        made = MAKERS[request.param]()
    except Unavailable as problem:
        pytest.skip(f"{request.param} can't be had here: {problem}")
    record_property("client", made.client)
    record_property("version", made.version)
    return made


@pytest.fixture(params=MODES)
def cluster_of_mode(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> LocalCluster:
    """The file's cluster in each mode; that one is started of which a test is chosen."""
    record_property("mode", request.param)
    shared: LocalCluster = request.getfixturevalue({"zookeeper": "cluster", "kraft": "kraft_cluster"}[request.param])
    return shared


@pytest.fixture
def run(
    program: Program, cluster_of_mode: LocalCluster, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Run]:
    topic = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    made = Run(cluster_of_mode, topic, tmp_path, program.environment)
    yield made
    made.close()


def lines_of(program: Program, child: Child) -> list[str]:
    """Return a consumer's lines; of a producer that is not idempotent a value's first alone, numbered again."""
    found = child.end()
    if not program.is_idempotent:
        found = list(dict.fromkeys(line.partition(" ")[2] for line in found))
    numbered = program.prints_offsets and program.is_idempotent
    return found if numbered else [f"{offset} {value}" for offset, value in enumerate(found)]


@pytest.mark.kafka_client("produces and consumes an assigned partition through a killed and a restarted leader")
def test_a_client_produces_and_consumes_through_failovers(
    program: Program, run: Run, record_property: Callable[[str, object], None]
) -> None:
    """Each record once and in order, also for the consumer that reads meanwhile; at least once if not idempotent."""
    producer = run.start(program.produce)
    if program.consume:
        consumer = run.start(program.consume, count=len(VALUES))
        run.through_failovers(producer, lambda: len(set(consumer.values())))
        assert lines_of(program, consumer) == NUMBERED
    else:
        record_property("what", "produces through a killed and a restarted leader")
        run.through_failovers(producer, run.high_watermark)
    acknowledged = lines_of(program, producer) if program.prints_acknowledged else producer.end()
    assert acknowledged == (NUMBERED if program.prints_acknowledged else [])
    assert run.high_watermark() == len(VALUES) or not program.is_idempotent


@pytest.mark.long
@pytest.mark.kafka_client("consumes in a group through a killed coordinator, a killed and a restarted leader")
@pytest.mark.parametrize("program", GROUPS, indirect=True)
def test_a_group_consumes_through_failovers(program: Program, run: Run, tmp_path: Path) -> None:
    """Each record at least once: a member that joins again reads again from the last committed offset."""
    group = f"readers-{tmp_path.name}"
    producer = run.start(program.produce)
    consumer = run.start(program.consume_group, count=len(VALUES), group=group)
    run.through_failovers(producer, lambda: len(set(consumer.values())), group)
    assert list(dict.fromkeys(lines_of(program, consumer))) == NUMBERED
    producer.end()
