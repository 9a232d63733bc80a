"""The comparison with Apache Kafka (``make differential``): what may differ, and that nothing else passes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("differential_rules")


def test_a_difference_is_reported_with_both_values(rules: Any) -> None:
    verdict = rules.compare({"a": "1", "b": "x"}, {"a": "2", "b": "x"})
    assert verdict.differences == ["a\n    Kafka:     1\n    Tidegauge: 2"]
    assert verdict.compared == 2


def test_what_only_one_side_has_is_a_difference(rules: Any) -> None:
    assert rules.compare({"a": "1"}, {}).differences == ["a\n    Kafka:     1\n    Tidegauge: not there"]
    assert rules.compare({}, {"a": "1"}).differences == ["a\n    Kafka:     not there\n    Tidegauge: 1"]


def test_ids_ports_and_times_are_not_compared_and_all_else_is(rules: Any) -> None:
    path = "step: znode /brokers/ids/1"
    theirs = {f"{path} timestamp": '"1763737000000"', f"{path} port": "9092", f"{path} version": "5"}
    ours = {f"{path} timestamp": '"1763737999999"', f"{path} port": "19092", f"{path} version": "4"}
    assert rules.compare(theirs, ours).differences == [f"{path} version\n    Kafka:     5\n    Tidegauge: 4"]


def test_the_producers_of_a_snapshot_may_come_in_any_order_and_no_other(rules: Any) -> None:
    line = "s: dump broker-0/t-0/5.snapshot line"
    of_log = "s: dump broker-0/t-0/0.log line"
    theirs = {f"{line} 0": "lastOffset: 4", f"{line} 1": "lastOffset: 2", f"{of_log} 0": "a", f"{of_log} 1": "b"}
    ours = theirs | {f"{line} 0": "lastOffset: 2", f"{line} 1": "lastOffset: 4"}
    assert rules.compare(theirs, ours).differences == []
    assert rules.compare(theirs, ours | {f"{line} 1": "lastOffset: 3"}).differences
    assert rules.compare(theirs, theirs | {f"{of_log} 0": "b", f"{of_log} 1": "a"}).differences


def test_a_known_difference_is_known_by_both_values_and_reported_with_its_reason(
    rules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "KNOWN", (rules.Known("^s: size$", r"\d+", None, "no such file here"),))
    verdict = rules.compare({"s: size": "12"}, {})
    assert verdict.differences == []
    assert verdict.known == {"no such file here": 1}
    assert rules.compare({"s: size": "twelve"}, {}).differences
    assert rules.compare({"s: size": "12"}, {"s: size": "13"}).differences


def test_a_rule_that_nothing_needs_is_reported(rules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "KNOWN", (rules.Known("^never$", None, "x", "out of date"),))
    verdict = rules.compare({"a": "1"}, {"a": "1"})
    assert "out of date" in verdict.idle
    assert "nothing needed this rule any more: out of date" in verdict.text()
