"""docs/chaos.md names the faults and workloads that there are, and how many cases they make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.integration.chaos import EVERYWHERE, FAULTS, IN_KRAFT_MODE, IN_ZOOKEEPER_MODE
from tests.integration.chaos_coordinators import ALL_FAULTS, KAFKA_FAULTS
from tests.integration.chaos_load import WORKLOADS

PAGE = (Path(__file__).parents[3] / "docs" / "chaos.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def faults_in(title: str) -> list[str]:
    return sorted(re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^\|.*", section(title), re.MULTILINE))))


def workloads_in(title: str) -> list[str]:
    return re.findall(r"^\| `([\w-]+)` \|", section(title), re.MULTILINE)


def test_the_page_names_every_fault_and_workload() -> None:
    assert faults_in("Faults") == sorted(EVERYWHERE | IN_ZOOKEEPER_MODE | IN_KRAFT_MODE)
    assert faults_in("Faults of coordinators and of Kafka's requests") == sorted(KAFKA_FAULTS)
    assert workloads_in("Workloads") == list(WORKLOADS)


def test_the_page_counts_the_cases() -> None:
    assert f"every workload: {len(FAULTS) * len(WORKLOADS)} cases" in PAGE


def test_the_page_names_the_workloads_of_kafka_clients() -> None:
    pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
    from tests.integration import chaos_kafka  # noqa: PLC0415 - needs the package

    kinds = [*chaos_kafka.WORKLOADS, chaos_kafka.MEMBERS]
    count = len(ALL_FAULTS) - 1  # all but the damaged batch
    assert workloads_in("Workloads of Kafka clients") == kinds
    assert f"{count} faults, {count * len(kinds)} cases" in PAGE
