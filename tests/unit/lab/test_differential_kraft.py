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
    asked = {"groups": [{"group_id": "", "topics": []}]}
    kafkas = {"groups": [{"group_id": "", "error_code": -1, "lag": 0}]}
    assert rules.excuse(
        apis.DESCRIBE_SHARE_GROUP_OFFSETS, asked, kafkas, {"groups": [{"group_id": "", "error_code": 0, "lag": 0}]}
    )
    lagging = {"groups": [{"group_id": "", "error_code": 0, "lag": 1}]}
    assert rules.excuse(apis.DESCRIBE_SHARE_GROUP_OFFSETS, asked, kafkas, lagging) is None
    assert (
        rules.excuse(apis.LIST_GROUPS, asked, kafkas, {"groups": [{"group_id": "", "error_code": 0, "lag": 0}]}) is None
    )


def test_a_reason_needs_the_request_that_is_its_cause(rules: Any) -> None:
    """Kafka's broker fails over a share group without a name, and over no other."""
    key = apis.DESCRIBE_SHARE_GROUP_OFFSETS
    kafkas, ours = ({"groups": [{"error_code": code}]} for code in (-1, 0))
    groups = [{"group_id": "g", "topics": []}, {"group_id": "", "topics": []}]
    assert rules.excuse(key, {"groups": groups}, kafkas, ours)
    assert rules.excuse(key, {"groups": groups[:1]}, kafkas, ours) is None
    assert rules.excuse(key, {"groups": groups}, ours, kafkas) is None, "ours must not fail"


@pytest.mark.parametrize(("key", "is_excused"), [(88, True), (apis.FETCH, False)])
def test_of_the_advertised_versions_those_may_differ_that_are_listed(rules: Any, key: int, *, is_excused: bool) -> None:
    token = {"api_key": 38, "min_version": 1, "max_version": 3}
    of_kafka = {"api_keys": [token, {"api_key": key, "min_version": 0, "max_version": 2}]}
    of_ours = {"api_keys": [{"api_key": key, "min_version": 0, "max_version": 1}]}
    assert (rules.excuse(apis.API_VERSIONS, {}, of_kafka, of_ours) is not None) is is_excused


def test_a_list_of_another_length_is_one_difference(rules: Any) -> None:
    [found] = rules.differences({"topics": [1, 2]}, {"topics": [1]})
    assert found == (("topics",), [1, 2], [1])
