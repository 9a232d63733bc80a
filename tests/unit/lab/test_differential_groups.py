"""The comparison of kafka-consumer-groups' output: only equal output passes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The runner's module."""
    monkeypatch.syspath_prepend(str(BENCH))
    pytest.importorskip("confluent_kafka")
    pytest.importorskip("aiokafka")
    return importlib.import_module("differential_groups")


def test_each_command_that_prints_something_else_is_shown_with_its_lines(groups: Any) -> None:
    kafka = {"00 --list": ["exit 0", "app"], "01 --describe": ["exit 0", "app  0  10"], "02 --delete": ["exit 0"]}
    ours = {"00 --list": ["exit 0", "app"], "01 --describe": ["exit 0", "app  0   9"]}
    assert groups.differences(kafka, kafka) == []
    assert groups.differences(kafka, ours) == [
        "01 --describe",
        "    Kafka:     app  0  10",
        "    Tidegauge: app  0   9",
        "02 --delete",
        "    Kafka:     exit 0",
        "    Tidegauge: not run",
    ]


def test_lines_in_another_order_are_a_difference(groups: Any) -> None:
    assert groups.differences({"00": ["a", "b"]}, {"00": ["b", "a"]}) == ["00"]
