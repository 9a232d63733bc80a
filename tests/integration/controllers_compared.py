"""The same story at a controller of ours and one of Apache Kafka 4.3.1, compared: responses, and the metadata log."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.controller_story import Teller
from tests.integration.quorum_nodes import KAFKA, OURS, QuorumNode, quorum_of
from tests.waiting import until

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


class Differences(NamedTuple):
    """The differences that a story found.

    Attributes:
        responses: request, our response, Kafka's, if they differ.
        compared_responses: how many were compared.
        batches: records of a batch, ours and Kafka's, if they differ.
        compared_batches: how many were compared.
    """

    responses: list[tuple[str, Any, Any]]
    compared_responses: int
    batches: list[tuple[list[str], list[str]]]
    compared_batches: int


def story_differences(at: Path, classpath: str) -> Differences:
    """Tell the story at both, and compare; AssertionError if one of them heard another story.

    Args:
        at: where the controllers' files go.
        classpath: of Kafka's jars.
    """
    heard: dict[str, list[tuple[str, Any]]] = {}
    logs: dict[str, list[list[str]]] = {}
    for kind in (OURS, KAFKA):
        directory = at / kind
        directory.mkdir()
        with quorum_of(directory, [kind], classpath) as quorum:
            quorum.wait_leader()
            [node] = quorum.nodes
            until(lambda node=node: "REGISTER_CONTROLLER_RECORD" in node.dump(), what="the controller has registered")
            teller = Teller(quorum)
            teller.tell()
            heard[kind] = teller.heard
            logs[kind] = batches(node)
    assert [what for what, _ in heard[OURS]] == [what for what, _ in heard[KAFKA]]
    assert len(logs[OURS]) == len(logs[KAFKA])
    pairs = zip(heard[OURS], heard[KAFKA], strict=True)
    responses = [(what, ours, kafkas) for (what, ours), (_, kafkas) in pairs if not is_same(ours, kafkas)]
    both = zip(logs[OURS], logs[KAFKA], strict=True)
    return Differences(responses, len(heard[OURS]), [one for one in both if one[0] != one[1]], len(logs[OURS]))
