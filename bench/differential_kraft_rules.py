"""What a broker in KRaft mode may respond otherwise than Apache Kafka 4.3.1's, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tidegauge.kafka import apis

TOKENS, OF_STREAMS = range(38, 42), (88, 89)
SHOWN = 36
"""Settings of a topic that are described here."""
LISTED_APART: dict[int, str] = {
    apis.DESCRIBE_GROUPS: "version 6, with a sentence for a group that is not found",
    **dict.fromkeys(TOKENS, "delegation tokens"),
    apis.LIST_TRANSACTIONS: "version 2, with a pattern",
    **dict.fromkeys(OF_STREAMS, "streams groups"),
}
"""APIs that are absent here, or have fewer versions, with the reason."""
SENTENCES = {"error_message", "message"}
"""Fields that a person reads: Kafka's text, ours, or none."""


class Difference(NamedTuple):
    """A value that differs.

    Attributes:
        path: the names of the fields that lead to it.
        kafkas: Kafka's.
        ours: Tidegauge's.
    """

    path: tuple[str, ...]
    kafkas: Any
    ours: Any


def differences(kafkas: Any, ours: Any, path: tuple[str, ...] = ()) -> Iterator[Difference]:
    """Yield the values that differ, but for sentences."""
    if isinstance(kafkas, dict) and isinstance(ours, dict) and kafkas.keys() == ours.keys():
        for name, value in kafkas.items():
            if name not in SENTENCES:
                yield from differences(value, ours[name], (*path, name))
    elif isinstance(kafkas, list) and isinstance(ours, list) and len(kafkas) == len(ours):
        for one, other in zip(kafkas, ours, strict=True):
            yield from differences(one, other, path)
    elif kafkas != ours:
        yield Difference(path, kafkas, ours)


Rule = Callable[[Any, Difference], bool]
"""Whether a reason holds for a request and a difference."""
REASONS: list[tuple[int | None, str, Rule]] = [
    (apis.API_VERSIONS, "APIs that are absent here", lambda _, one: one.path == ("api_keys",)),
    (
        apis.API_VERSIONS,
        "metadata.version is read from 4.0 on, and streams.version is not served",
        lambda _, one: one.path[:1] == ("supported_features",),
    ),
    (None, "Kafka does not respond in time", lambda _, one: one.path == () and one.kafkas == "no response"),
    (
        apis.FETCH,
        "no list of aborted transactions where the follower must truncate",
        lambda _, one: one.path[-1:] == ("aborted_transactions",) and (one.kafkas, one.ours) == (None, []),
    ),
    (
        apis.FETCH,
        "the leader's address is given to a stranger among the replicas, too",
        lambda _, one: one.path == ("node_endpoints",) and one.kafkas == [],
    ),
    (
        apis.FETCH,
        "a topic some of whose partitions have failed is listed once",
        lambda _, one: (
            one.path == ("responses",) and {at["topic"] for at in one.kafkas} == {at["topic"] for at in one.ours}
        ),
    ),
    (
        apis.FETCH,
        "Kafka's broker fails over a topic id of zeros",
        lambda request, one: one.kafkas in (-1, []) and any(at["topic_id"] == "none" for at in request["topics"]),
    ),
    (
        apis.DELETE_TOPICS,
        "a topic that is named in both ways is given back by its id alone",
        lambda request, _: any(one["name"] == "" and any(one["topic_id"]) for one in request["topics"]),
    ),
    (
        apis.OFFSET_FOR_LEADER_EPOCH,
        "no epoch is negative",
        lambda request, _: any(at["leader_epoch"] < -1 for one in request["topics"] for at in one["partitions"]),
    ),
    (
        apis.WRITE_TXN_MARKERS,
        "Kafka's broker fails over a producer id or epoch of -1, and has no state of it then",
        lambda _, one: (one.kafkas, one.ours) in {(-1, 0), (-1, 3), (0, 52)},
    ),
    (
        apis.DESCRIBE_CONFIGS,
        "settings of topics that Kafka 4 has removed are shown",
        lambda _, one: one.path == ("results", "configs") and isinstance(one.ours, list) and len(one.ours) == SHOWN,
    ),
    (
        apis.DESCRIBE_CLIENT_QUOTAS,
        "a name beside a type of match that has none, or none where there must be one, is treated as in 3.9",
        lambda request, _: any((part["match"] is None) != bool(part["match_type"]) for part in request["components"]),
    ),
    (
        apis.SHARE_GROUP_DESCRIBE,
        "a group that is not found is dead",
        lambda _, one: one.path == ("groups", "group_state") and one.ours == "Dead",
    ),
    (
        apis.DESCRIBE_SHARE_GROUP_OFFSETS,
        "Kafka's broker fails over a group without a name, and over a negative partition",
        lambda request, _: any(
            not one["group_id"] or any(at < 0 for topic in one["topics"] or () for at in topic["partitions"])
            for one in request["groups"]
        ),
    ),
]
"""API, or all; the reason; when it holds."""


def excuse(key: int, request: Any, kafkas: Any, ours: Any) -> str | None:
    """Return why a response may differ; None: it may not."""
    found = list(differences(kafkas, ours))
    reasons = [_reason(key, request, one) for one in found]
    if not found:
        return "sentences are each side's own"
    return None if None in reasons else "; ".join(sorted({one for one in reasons if one is not None}))


def _reason(key: int, request: Any, one: Difference) -> str | None:
    holding = (reason for api, reason, holds in REASONS if api in {None, key} and holds(request, one))
    return next(holding, None)
