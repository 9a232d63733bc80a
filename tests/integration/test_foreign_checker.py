"""Histories under a checker that others wrote (tests/foreign_checker.py): planted anomalies, and what real clients did.

It needs cargo and crates.io, from which adya is built once. Elle itself is on Clojars alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.waiting import until

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

import confluent_kafka
from tests.clients.copier_history import History
from tests.clients.programs import Unavailable
from tests.foreign_checker import anomalies, checker
from tests.integration.copiers import COPIERS_SETTINGS, LIMIT_SECONDS, PARTITIONS, Cell, Copiers, bounce_broker
from tests.integration.copies_reader import reading
from tests.planted_anomalies import PLANTED
from tests.unit.accountant.transaction_histories import Writer

from tidegauge_lab.accountant.reading.client_history import read_client_histories
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]
SETTINGS = COPIERS_SETTINGS
CELL = Cell(clean=False, brokers=True, ordered=True, grouped=True)


@pytest.fixture(scope="module", autouse=True)
def adya() -> None:
    try:
        checker()
    except Unavailable as problem:
        pytest.skip(f"adya can't be had here: {problem}")


@pytest.mark.parametrize("name", PLANTED)
def test_it_convicts_what_its_model_has_a_place_for(name: str, tmp_path: Path) -> None:
    history, path = Writer(), tmp_path / "h.jsonl"
    PLANTED[name].write(history)
    path.write_text(history.text())
    assert anomalies(read_client_histories([path]), tmp_path) == PLANTED[name].seen


def final_poll(servers: str, topic: str, path: Path) -> None:
    """Read all of a topic, as one look at the end."""
    history = History(str(path), "final")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.partition.eof": True, "log_level": 2}
        | {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    places = [confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
    consumer.assign(places)
    number = history.invoke("poll")
    records: list[list[object]] = []
    ends: dict[str, int] = {}

    def is_read() -> bool:
        for one in consumer.consume(500, timeout=0.5):
            if one.error() is None:
                records.append([one.topic(), one.partition(), one.offset(), one.value().decode()])
            else:
                ends[f"{topic}-{one.partition()}"] = one.offset()
        return len(ends) == PARTITIONS

    until(is_read, LIMIT_SECONDS, "the topic is read")
    history.end(number, records=records, ends=ends)
    history.close()
    consumer.close()


def test_a_real_clients_history_is_serializable(brokers: LocalCluster, tmp_path: Path) -> None:
    """Copiers of librdkafka in a group, through kills of brokers and copiers; and one record less is seen."""
    brokers.up(LIMIT_SECONDS)
    path = tmp_path / "history.jsonl"
    copiers = Copiers(brokers, CELL, ("confluent", "confluent"), tmp_path, history=path, name="foreign", rate=50)
    servers = ",".join(brokers.kafka_bootstrap_servers)
    with copiers.running(), reading(copiers.target, servers, path):
        with copiers.writing(100):
            for turn in range(3):
                before = copiers.transactions()
                until(lambda: copiers.transactions() >= before + 3, LIMIT_SECONDS, "copiers are at work")  # noqa: B023
                bounce_broker(brokers, turn, copiers.target, clean=False)
            for number in range(PARTITIONS):
                copiers.bounce(number)
        copiers.finish()
    final_poll(servers, copiers.target, path)
    history = read_client_histories([path])
    assert anomalies(history, tmp_path) == set()
    [last] = [poll for poll in history.polls if poll.ends]
    last.records = [*last.records[:5], *last.records[6:]]
    assert "incompatible-order" in anomalies(history, tmp_path)
