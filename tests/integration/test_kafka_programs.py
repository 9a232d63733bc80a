"""Kafka clients in Go, JavaScript, Java and C: their records arrive once and in order, through failovers.

Each runs as two child processes, a producer and a consumer, while the leader is killed, comes back, and the next one is
stopped and started. A program that is not on the machine and can't be fetched is skipped, with its requirements.
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
    "kafkajs": programs.kafkajs,
    "kcat": programs.kcat,
    "console-3": lambda: programs.console(KAFKA),
    "console-4": lambda: programs.console(KAFKA_4),
}
LONG = {"console-4", "kcat", "franz-go", "sarama"}
PARAMS = [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in MAKERS]
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


@pytest.fixture
def run(program: Program, cluster: LocalCluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    topic = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    made = Run(cluster, topic, tmp_path, program.environment)
    yield made
    made.close()


def lines_of(program: Program, consumer: Child) -> list[str]:
    found = consumer.end()
    return found if program.prints_offsets else [f"{offset} {value}" for offset, value in enumerate(found)]


@pytest.mark.kafka_client("produces and consumes an assigned partition through a killed and a restarted leader")
def test_a_client_produces_and_consumes_through_failovers(
    program: Program, run: Run, record_property: Callable[[str, object], None]
) -> None:
    """The idempotent producer of each; each record once and in order, also for the consumer that reads meanwhile."""
    producer = run.start(program.produce)
    if program.consume:
        consumer = run.start(program.consume, count=len(VALUES))
        run.through_failovers(producer, lambda: len(consumer.lines()))
        assert lines_of(program, consumer) == NUMBERED
    else:
        record_property("what", "produces through a killed and a restarted leader")
        run.through_failovers(producer, run.high_watermark)
    acknowledged = producer.end()
    assert acknowledged == (NUMBERED if program.prints_acknowledged else [])
    assert run.high_watermark() == len(VALUES)


@pytest.mark.long
@pytest.mark.kafka_client("consumes in a group through a killed and a restarted leader")
@pytest.mark.parametrize("program", ["franz-go", "sarama", "kafkajs"], indirect=True)
def test_a_group_consumes_through_failovers(program: Program, run: Run, tmp_path: Path) -> None:
    """Each record arrives at least once: uncommitted ones are read again when a member rejoins."""
    producer = run.start(program.produce)
    consumer = run.start(program.consume_group, count=len(VALUES), group=f"readers-{tmp_path.name}")
    run.through_failovers(producer, lambda: len(set(consumer.lines())))
    assert list(dict.fromkeys(lines_of(program, consumer))) == NUMBERED
    producer.end()
