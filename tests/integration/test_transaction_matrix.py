"""Exactly once through bounces: the matrix of Kafka's system test ``transactions_test`` (KIP-98, KIP-447).

Two copiers read committed data, write it and their offsets in transactions, and abort a third of them, while brokers or
copiers are bounced, hard or cleanly. The copy then has each record once. One copier is of librdkafka and one of
kafka-clients (Java), in one group if there is one. Two cells with librdkafka alone: test_kafka_transactions.py.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.clients.programs import KAFKA, Unavailable, kafka_jars
from tests.integration.copiers import COPIERS_SETTINGS, LIMIT_SECONDS, PARTITIONS, Cell, Copiers, bounce_broker

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
SETTINGS = COPIERS_SETTINGS
CELLS = [Cell(*choice) for choice in itertools.product((False, True), repeat=4)]
BOUNCES = 3
"""Of each copier, or of all brokers in turn."""


@pytest.mark.kafka_client(
    "copiers from consume to produce (KIP-447), a third aborted, beside librdkafka's: "
    "16 cells of Kafka's transactions_test",
    client="Java: kafka-clients",
    version=KAFKA,
)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_copies_are_exactly_once_through_bounces(brokers: LocalCluster, cell: Cell, tmp_path: Path) -> None:
    """Records are written as long as there are bounces, so that each happens while transactions are in progress."""
    try:
        kafka_jars(KAFKA)
    except Unavailable as problem:
        pytest.skip(f"kafka-clients can't be had here: {problem}")
    brokers.up(LIMIT_SECONDS)
    copiers = Copiers(brokers, cell, ("confluent", "java"), tmp_path)
    with copiers.running():
        with copiers.writing(200):
            for turn in range(BOUNCES):
                before = copiers.transactions()
                until(lambda: copiers.transactions() >= before + 3, LIMIT_SECONDS, "copiers are at work")  # noqa: B023
                if cell.brokers:
                    bounce_broker(brokers, turn, copiers.target, clean=cell.clean)
                else:
                    for number in range(PARTITIONS):
                        copiers.bounce(number)
        copiers.finish()
    copiers.check()
