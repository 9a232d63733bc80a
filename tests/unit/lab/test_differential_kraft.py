"""The comparison of brokers in KRaft mode with Apache Kafka's (``make differential KRAFT=1``): what may differ."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tidegauge.kafka import apis

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The rules' module."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("differential_kraft_rules")


def test_sentences_may_differ_and_codes_may_not(rules: Any) -> None:
    kafkas = {"results": [{"error_code": 42, "error_message": "no"}]}
    assert rules.excuse(apis.ALTER_CONFIGS, {}, kafkas, {"results": [{"error_code": 42, "error_message": None}]})
    assert (
        rules.excuse(apis.ALTER_CONFIGS, {}, kafkas, {"results": [{"error_code": 40, "error_message": "no"}]}) is None
    )


def test_a_reason_covers_its_own_field_alone(rules: Any) -> None:
    """A second difference in the same response needs a reason of its own."""
    dead = {"groups": [{"group_state": "Dead", "error_code": 69}]}
    assert rules.excuse(apis.SHARE_GROUP_DESCRIBE, {}, {"groups": [{"group_state": "", "error_code": 69}]}, dead)
    assert rules.excuse(apis.SHARE_GROUP_DESCRIBE, {}, {"groups": [{"group_state": "", "error_code": 0}]}, dead) is None
    assert rules.excuse(apis.LIST_GROUPS, {}, {"groups": [{"group_state": "", "error_code": 69}]}, dead) is None


def test_a_list_of_another_length_is_one_difference(rules: Any) -> None:
    [found] = rules.differences({"topics": [1, 2]}, {"topics": [1]})
    assert found == (("topics",), [1, 2], [1])
