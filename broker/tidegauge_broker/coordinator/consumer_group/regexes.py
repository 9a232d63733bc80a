"""Regular expressions of subscriptions: when they are validated, resolved, refreshed and forgotten.

Source: GroupMetadataManager (maybeUpdateRegularExpressions, handleRegularExpressionsResult).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.consumer_group.image import Draft, GroupImage
from tidegauge_broker.coordinator.consumer_group.member import ConsumerMember
from tidegauge_broker.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    epoch_record,
    regex_record,
    regex_tombstone,
)
from tidegauge_broker.coordinator.consumer_group.refusals import GroupRefusal
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.patterns.automaton import Pattern, PatternError

MIN_REFRESH_INTERVAL_MS = 10_000
"""Minimum time between two resolutions of a group (REGEX_BATCH_REFRESH_MIN_INTERVAL_MS)."""


class RegexUpdate(NamedTuple):
    """The consequences of a member's new expression.

    Attributes:
        tombstones: of an expression that no member has any more.
        bumps: whether the group's epoch rises at once: the topics of the new expression are known, or there is none.
    """

    tombstones: tuple[ConsumerGroupRecord, ...] = ()
    bumps: bool = False


def update_regex(draft: Draft, former: ConsumerMember, member: ConsumerMember) -> RegexUpdate:
    """Return what follows from a member's change of its expression.

    Raises:
        GroupRefusal: INVALID_REGULAR_EXPRESSION; only the first member that brings an expression is asked for it.
    """
    image = draft.image
    old, new = former.topic_regex, member.topic_regex
    if old == new:
        return RegexUpdate()
    if new and image.subscribers_of_regex(new) == 0:
        check_regex(new)
    tombstones = (regex_tombstone(image.group_id, old),) if old and image.subscribers_of_regex(old) == 1 else ()
    return RegexUpdate(tombstones, not new or new in image.regexes)


def check_regex(regex: str) -> None:
    """Check an expression.

    Raises:
        GroupRefusal: INVALID_REGULAR_EXPRESSION.
    """
    try:
        Pattern(regex)
    except PatternError as problem:
        raise GroupRefusal(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {problem}.",
        ) from problem


def is_resolution_due(image: GroupImage, topics: Topics, now_ms: int, interval_ms: int) -> bool:
    """Whether a group's expressions must be resolved now; the caller runs only one resolution at a time.

    Args:
        image: the group.
        topics: those that exist.
        now_ms: the wall-clock time.
        interval_ms: group.consumer.regex.refresh.interval.ms.
    """
    subscribed = image.subscribed_regexes
    if not subscribed:
        return False
    resolved = image.regexes.values()
    last_ms = max((one.timestamp_ms for one in resolved), default=None)
    if last_ms is not None and now_ms <= last_ms + MIN_REFRESH_INTERVAL_MS:
        return False
    if len(subscribed) != len(image.regexes):
        return True
    oldest = min(one.version for one in resolved)
    return oldest < topics.created_at or (last_ms is not None and now_ms > last_ms + interval_ms)


def add_resolved(draft: Draft, found: Mapping[str, frozenset[str]], version: int, topics: Topics, now_ms: int) -> bool:
    """Add the records of expressions that were resolved, and of the group's new epoch if their topics have changed.

    Args:
        draft: the decision.
        found: topics by expression; one that no member has any more is left out.
        version: of the topics that were searched.
        topics: those that exist now.
        now_ms: the wall-clock time.

    Returns:
        Whether the group's epoch rises.
    """
    image = draft.image
    changed = False
    for regex in [one for one in found if one in image.subscribed_regexes]:
        former = image.regexes.get(regex)
        changed = changed or (frozenset() if former is None else frozenset(former.topics)) != found[regex]
        draft.add(regex_record(image.group_id, regex, sorted(found[regex]), version, now_ms))
    image = draft.image
    metadata_hash = topics.hash_of(image.subscribed_topics())
    if draft.records and (changed or metadata_hash != image.metadata_hash):
        draft.add(epoch_record(image.group_id, image.epoch + 1, metadata_hash))
        return True
    return False
