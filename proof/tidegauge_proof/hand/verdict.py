"""The verdict on the acknowledged records: which are lost, since which action, by which rule; plain values. Pure.

The page words it in its language (``stage.js``), so that a verdict is data: ``kind`` says what there is to say.

| kind | meaning |
|---|---|
| lost | acknowledged records that no replica holds |
| missing | acknowledged records that the leader lacks, while another replica holds them |
| unread | records that a consumer has read and that no replica holds |
| broken | an invariant does not hold; ``text`` says which, and ``by`` that the settings allow it |
| kept | all acknowledged records, if none is lost or missing |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tidegauge_proof.hand import facts
from tidegauge_proof.hand.driven import HandDriven
from tidegauge_proof.hand.settings import RULE_NAMES

Json = dict[str, Any]
BY_ACKS, BY_POWER, BY_UNCLEAN_ELECTION, BY_TRUNCATION = "acks", "power", "unclean", "truncation"
"""Causes of a loss: the leader alone had acknowledged it, power was lost, an election was unclean, a truncation."""


class Verdicts:
    """Follows one cluster; ``look`` is called after each action."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], Json] = {}

    def look(self, cluster: HandDriven, number: int, said: str) -> list[Json]:
        """Return the verdict after an action.

        Args:
            cluster: as the action has left it.
            number: of the action; 0: the start.
            said: the action's sentence.
        """
        books = facts.books_of(cluster)
        bad = [("lost", one) for one in books if one["lost"]] + [("missing", one) for one in books if one["missing"]]
        there = {(kind, one["value"]) for kind, one in bad}
        for key in [one for one in self._since if one not in there]:
            del self._since[key]
        found = [self._verdict(kind, one, cluster, number, said) for kind, one in bad]
        if unread := facts.read_and_lost(cluster):
            found.append({"kind": "unread", "values": unread})
        if cluster.broken:
            by = {"by": BY_UNCLEAN_ELECTION} if _was_unclean(cluster) else {}
            found.append({"kind": "broken", "text": _with_values(cluster), "rule": cluster.settings.rule_name} | by)
        acknowledged = [one["value"] for one in books if one["outcome"] == "ok" and one["acks"] != "0"]
        if not found and acknowledged:
            found.append({"kind": "kept", "values": acknowledged, "holders": _holders_of_all(books)})
        return found

    def _verdict(self, kind: str, book: Json, cluster: HandDriven, number: int, said: str) -> Json:
        since = self._since.setdefault(
            (kind, book["value"]), {"action": number, "said": said, "by": _cause(book, cluster)}
        )
        return {
            "kind": kind,
            "values": [book["value"]],
            "acks": book["acks"],
            "offset": book["offset"],
            "holders": book["holders"],
            "leader": cluster.world.state_now.leader,
            "rule": cluster.settings.rule_name,
            **since,
        }


def _with_values(cluster: HandDriven) -> str:
    """Return the broken invariant in words, with values in place of CRCs."""

    def value(match: re.Match[str]) -> str:
        first = cluster.number_of(int(match[1], 16))
        return _marker(cluster, match) if first is None else f"({cluster.label(first + int(match[2]))})"

    return re.sub(r"\(CRC ([0-9a-f]+), place (\d+)\)", value, cluster.broken)


def _marker(cluster: HandDriven, match: re.Match[str]) -> str:
    """Return a marker's name, or its CRC if no replica has it."""
    crc = int(match[1], 16)
    for partition in cluster.data:
        for replica in partition.brokers.values():
            for name in replica.log.records:
                if name.batch_crc == crc:
                    return f"({facts.value_of(cluster, replica.log, name)})"
    return match[0]


def _was_unclean(cluster: HandDriven) -> bool:
    return any(one.get("kind") == "election" and one.get("strategy") == "unclean" for one in cluster.events)


def _cause(book: Json, cluster: HandDriven) -> str:
    """Return the cause of a record's loss: the strongest of the possible ones."""
    if book["acks"] != "all":
        return BY_ACKS
    if _was_unclean(cluster):
        return BY_UNCLEAN_ELECTION
    has_lost_power = any(one.get("kind") == "fault" and one.get("action") == "power-cut" for one in cluster.events)
    return BY_POWER if has_lost_power and cluster.settings.rule == len(RULE_NAMES) - 1 else BY_TRUNCATION


def _holders_of_all(books: Sequence[Json]) -> list[int]:
    """Return the replicas that hold every acknowledged record."""
    held = [set(one["holders"]) for one in books if one["outcome"] == "ok" and one["acks"] != "0"]
    return sorted(set.intersection(*held)) if held else []
