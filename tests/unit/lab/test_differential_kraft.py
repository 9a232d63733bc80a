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
    asked = {"topics": [{"topic_id": "none"}]}
    kafkas = {"error_code": -1, "session_id": 0, "responses": [], "lag": 0}
    ours = {"error_code": 0, "session_id": "SESSION", "responses": [{"topic": ""}], "lag": 0}
    assert rules.excuse(apis.FETCH, asked, kafkas, ours)
    assert rules.excuse(apis.FETCH, asked, kafkas, {**ours, "lag": 1}) is None
    assert rules.excuse(apis.LIST_GROUPS, asked, kafkas, ours) is None


def test_a_reason_needs_the_request_that_is_its_cause(rules: Any) -> None:
    """Kafka's broker fails over a fetch of a topic id of zeros, and over no other."""
    kafkas, ours = ({"error_code": code} for code in (-1, 0))
    topics = [{"topic_id": "t"}, {"topic_id": "none"}]
    assert rules.excuse(apis.FETCH, {"topics": topics}, kafkas, ours)
    assert rules.excuse(apis.FETCH, {"topics": topics[:1]}, kafkas, ours) is None
    assert rules.excuse(apis.FETCH, {"topics": topics}, ours, kafkas) is None, "ours must not fail"


def test_kafkas_silence_is_excused_if_a_marker_was_skipped_beside_others(rules: Any) -> None:
    """KafkaApis.handleWriteTxnMarkersRequest: a marker that is skipped last is not counted as the last one."""

    def markers(*errors: int) -> dict[str, Any]:
        return {"markers": [{"topics": [{"partitions": [{"error_code": error}]}]} for error in errors]}

    asked = {"markers": [{}, {}]}
    assert rules.excuse(apis.WRITE_TXN_MARKERS, asked, "no response", markers(47, 3))
    assert rules.excuse(apis.WRITE_TXN_MARKERS, asked, "no response", markers(47, 47)) is None
    assert rules.excuse(apis.WRITE_TXN_MARKERS, asked, "no response", markers(3, 3)) is None
    assert rules.excuse(apis.WRITE_TXN_MARKERS, asked, "connection closed", markers(47, 3)) is None
    assert rules.excuse(apis.WRITE_TXN_MARKERS, asked, markers(47, 47), markers(47, 3)) is None


@pytest.mark.parametrize(("key", "is_excused"), [(88, True), (apis.FETCH, False)])
def test_of_the_advertised_versions_those_may_differ_that_are_listed(rules: Any, key: int, *, is_excused: bool) -> None:
    token = {"api_key": 38, "min_version": 1, "max_version": 3}
    of_kafka = {"api_keys": [token, {"api_key": key, "min_version": 0, "max_version": 2}]}
    of_ours = {"api_keys": [{"api_key": key, "min_version": 0, "max_version": 1}]}
    assert (rules.excuse(apis.API_VERSIONS, {}, of_kafka, of_ours) is not None) is is_excused


def test_a_list_of_another_length_is_one_difference(rules: Any) -> None:
    [found] = rules.differences({"topics": [1, 2]}, {"topics": [1]})
    assert found == (("topics",), [1, 2], [1])
