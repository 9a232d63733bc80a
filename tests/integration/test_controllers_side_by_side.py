"""The same story at a controller of ours and at one of Apache Kafka 4.3.1: equal responses, equal records.

Needs Maven, or the jars that it brought before; if they can't be had, the test says so and is skipped.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.integration.controller_story import Teller
from tests.integration.quorum_nodes import KAFKA, OURS, QuorumNode, kafka_classpath, quorum_of
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_BY_CHANCE = {"incarnationId", "port", "features"}
"""Fields of a controller's registration that each process has its own of; ours reads no metadata.version below 25."""


def is_same(ours: Any, kafkas: Any) -> bool:
    """Whether two responses say the same; a sentence of ours may say more behind Kafka's."""
    if isinstance(ours, dict) and isinstance(kafkas, dict):
        return ours.keys() == kafkas.keys() and all(is_same(ours[key], kafkas[key]) for key in ours)
    if isinstance(ours, list) and isinstance(kafkas, list):
        return len(ours) == len(kafkas) and all(map(is_same, ours, kafkas))
    if isinstance(ours, str) and isinstance(kafkas, str) and kafkas:
        return ours.startswith(kafkas)
    return bool(ours == kafkas)


def batches(node: QuorumNode) -> list[list[str]]:
    """The metadata records of a log, batch by batch; the order within a batch hangs on maps."""
    found: list[list[str]] = []
    names: dict[str, str] = {}
    for line in node.dump().splitlines():
        if line.startswith("baseOffset"):
            found.append([])
        payload = re.search(r" payload: (.*)$", line)
        if payload is not None:
            record = json.loads(payload[1])
            if record["type"] == "TOPIC_RECORD":
                names[record["data"]["topicId"]] = record["data"]["name"]
            by_chance = _BY_CHANCE if record["type"] == "REGISTER_CONTROLLER_RECORD" else set()
            found[-1].append(json.dumps(plain(record, names, by_chance), sort_keys=True))
    return [sorted(batch) for batch in found]


def plain(value: Any, names: dict[str, str], by_chance: set[str]) -> Any:
    """A record with topics' names for their ids, and lists of features and endpoints in one order."""
    if isinstance(value, dict):
        return {key: plain(one, names, by_chance) for key, one in value.items() if key not in by_chance}
    if isinstance(value, list):
        found = [plain(one, names, by_chance) for one in value]
        return sorted(found, key=repr) if found and isinstance(found[0], dict) else found
    return names.get(value, value) if isinstance(value, str) else value


def registration(node: QuorumNode) -> bool:
    return "REGISTER_CONTROLLER_RECORD" in node.dump()


def test_one_story_gets_equal_responses_and_leaves_equal_records(tmp_path: Path):
    """KIP-631: brokers, topics, ISRs, settings, elections, moves, features, quotas, credentials, departures."""
    classpath = kafka_classpath()
    heard: dict[str, list[tuple[str, Any]]] = {}
    logs: dict[str, list[list[str]]] = {}
    for kind in (OURS, KAFKA):
        directory = tmp_path / kind
        directory.mkdir()
        with quorum_of(directory, [kind], classpath) as quorum:
            quorum.wait_leader()
            until(lambda: registration(quorum.nodes[0]), what="the controller has registered")
            teller = Teller(quorum)
            teller.tell()
            heard[kind] = teller.heard
            logs[kind] = batches(quorum.nodes[0])
    assert [what for what, _ in heard[OURS]] == [what for what, _ in heard[KAFKA]]
    pairs = zip(heard[OURS], heard[KAFKA], strict=True)
    assert [(what, ours, kafkas) for (what, ours), (_, kafkas) in pairs if not is_same(ours, kafkas)] == []
    differing = [(ours, kafkas) for ours, kafkas in zip(logs[OURS], logs[KAFKA], strict=False) if ours != kafkas]
    assert differing == []
    assert len(logs[OURS]) == len(logs[KAFKA])
