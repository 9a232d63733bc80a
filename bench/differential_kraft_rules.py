"""Permitted differences between responses in KRaft mode and Apache Kafka 4.3.1's, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tidegauge.kafka import apis

TOKENS, OF_STREAMS = range(38, 42), (88, 89)
UNKNOWN_TOPIC, NO_RESPONSE = 3, "no response"
OF_FEATURES = {(7, 25), (1, 0)}
"""Kafka's and our lowest level of metadata.version, and highest of streams.version."""
LISTED_APART: dict[int, str] = {
    **dict.fromkeys(TOKENS, "delegation tokens"),
    **dict.fromkeys(OF_STREAMS, "streams groups"),
}
"""APIs that are absent here, with the reason."""
SENTENCES = {"error_message", "message", "documentation"}
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


def _lacks_known(one: Difference) -> bool:
    """Whether all that the responses to ApiVersions differ in is listed apart."""
    kafkas = {at["api_key"]: (at["min_version"], at["max_version"]) for at in one.kafkas}
    ours = {at["api_key"]: (at["min_version"], at["max_version"]) for at in one.ours}
    return {key for key in kafkas.keys() | ours.keys() if kafkas.get(key) != ours.get(key)} <= LISTED_APART.keys()


def _skips_a_marker(request: Any, one: Difference) -> bool:
    """Whether some of the markers that a request names are for no partition that is here, and Kafka is silent."""
    if one.kafkas != NO_RESPONSE or one.path:
        return False
    skipped = [
        all(at["error_code"] == UNKNOWN_TOPIC for topic in marker["topics"] for at in topic["partitions"])
        for marker in one.ours["markers"]
    ]
    return len(request["markers"]) > 1 and any(skipped) and not all(skipped)


Rule = Callable[[Any, Difference], bool]
"""Whether a reason holds for a request and a difference."""
REASONS: list[tuple[int, str, Rule]] = [
    (apis.API_VERSIONS, "APIs that are absent here", lambda _, one: one.path == ("api_keys",) and _lacks_known(one)),
    (
        apis.API_VERSIONS,
        "metadata.version is read from 4.0 on, and streams.version is not served",
        lambda _, one: one.path[:1] == ("supported_features",) and (one.kafkas, one.ours) in OF_FEATURES,
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
        lambda request, one: (
            (one.kafkas in (-1, []) or one.path == ("session_id",))
            and any(at["topic_id"] == "none" for at in request["topics"])
        ),
    ),
    (
        apis.WRITE_TXN_MARKERS,
        "Kafka's broker responds only after an append if some markers are for no partition that it has",
        _skips_a_marker,
    ),
    (
        apis.DESCRIBE_LOG_DIRS,
        "a classic group is written with its first generation, and not Empty before",
        lambda _, one: one.path == ("results", "topics", "partitions", "partition_size") and one.kafkas > one.ours > 0,
    ),
]
"""API, reason, condition."""


def excuse(key: int, request: Any, kafkas: Any, ours: Any) -> str | None:
    """Return why a response may differ; None: it may not."""
    found = list(differences(kafkas, ours))
    reasons = [_reason(key, request, one) for one in found]
    if not found:
        return "sentences are each side's own"
    return None if None in reasons else "; ".join(sorted({one for one in reasons if one is not None}))


def _reason(key: int, request: Any, one: Difference) -> str | None:
    holding = (reason for api, reason, holds in REASONS if api == key and holds(request, one))
    return next(holding, None)
