"""Lists made of what each live broker coordinates: consumer groups, transactional ids. Pure.

Rules:
    1. A broker that does not respond makes the list incomplete, and not empty: what the others list is there, and a
       sentence names each broker whose part is missing (KafkaAdminClient.listConsumerGroups: ``valid`` and ``errors``).
    2. So does a partition of the internal topic without a leader: what it holds is there again once it has one, and no
       broker lists it. Kafka's list looks complete then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition

_NAMED = 3
"""Maximum number of partitions that a sentence names."""
_SILENT = {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE}


class MergedList(NamedTuple):
    """The lists of all brokers.

    Attributes:
        parts: the responses of those that list something, with their broker ids.
        error: the first error; NONE: the list is whole.
        sentences: one for each part that is missing.
    """

    parts: Sequence[tuple[int, Any]]
    error: ErrorCode = ErrorCode.NONE
    sentences: Sequence[str] = ()

    @property
    def lacks_parts(self) -> bool:
        """Return whether something is missing that may be there in a moment."""
        return self.error in {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

    def whole(self) -> Sequence[tuple[int, Any]]:
        """Return the parts.

        Raises:
            TidegaugeError: one is missing.
        """
        if self.error is not ErrorCode.NONE:
            raise TidegaugeError(self.error, "; ".join(self.sentences))
        return self.parts

    def missing(self) -> str:
        """Return what the list lacks; empty: nothing.

        Raises:
            TidegaugeError: the list failed, and not only a part of it.
        """
        if not self.lacks_parts:
            self.whole()
        return "; ".join(self.sentences)


def merged(found: Mapping[int, Any], what: str, leaderless: Sequence[TopicPartition]) -> MergedList:
    """Return the list that is made of several brokers' own.

    Args:
        found: each broker's response, or why there is none, by broker id.
        what: the things listed, in plural.
        leaderless: the partitions of the internal topic that have no leader.
    """
    parts: list[tuple[int, Any]] = []
    errors: list[ErrorCode] = []
    sentences: list[str] = []
    for broker_id, one in found.items():
        if not isinstance(one, TidegaugeError):
            parts.append((broker_id, one))
            code = ErrorCode.of(one.error_code)
            if code is not ErrorCode.NONE:
                errors.append(code)
                sentences.append(
                    f"Broker {broker_id} can't list all {what} that it coordinates now ({code.name}); some may be "
                    "missing"
                )
            continue
        errors.append(ErrorCode.BROKER_NOT_AVAILABLE if one.code in _SILENT else one.code)
        silent = f"Broker {broker_id} does not respond" if one.code in _SILENT else one.message
        sentences.append(f"{silent}; the {what} that it coordinates, if there are any, are missing")
    if leaderless:
        errors.append(ErrorCode.BROKER_NOT_AVAILABLE)
        sentences.append(f"{_named(leaderless)} no leader; the {what} held there, if there are any, are missing")
    return MergedList(parts, errors[0] if errors else ErrorCode.NONE, sentences)


def _named(partitions: Sequence[TopicPartition]) -> str:
    """Return the names of partitions, at most the first few, and the verb."""
    names = [str(at) for at in partitions[:_NAMED]]
    if len(partitions) > _NAMED:
        names.append(f"{len(partitions) - _NAMED} more")
    *first, last = names
    return f"{', '.join(first)} and {last} have" if first else f"{last} has"
