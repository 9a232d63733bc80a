"""Common parts of ``replay`` and the exhaustive search: brokers that are driven one message at a time.

Both hold the clock and the leaders' view of who lives in their own hands, and both can grant the liberties of the
published models: a truncation at every new epoch, although the leader is the same broker; and an epoch question
served by a broker that does not lead.
"""

from __future__ import annotations

from typing import cast

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import EpochEndResult, EpochLookup, LeaderHint
from tidegauge_broker.replica.rules import TruncationRule
from tidegauge_proof.simulator.memory_broker import AT, MemoryBroker

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
STEP_MS = 60_000
"""Time between two steps: twice the lag time, so that no follower counts as caught up since the step before."""


class EveryoneLives:
    """A metadata cache in which every broker can be followed; a leader may propose the ``eligible`` only."""

    def __init__(self) -> None:
        self.eligible: frozenset[int] = frozenset()

    def knows(self, topic_partition: object) -> bool:
        """Whether it is the one partition."""
        return topic_partition == AT

    def leader_hint(self, topic_partition: object) -> LeaderHint | None:
        """Clients are not directed anywhere."""
        del topic_partition
        return None

    def is_alive(self, broker_id: int) -> bool:
        """Every broker can be followed."""
        return broker_id >= 0

    def live_brokers(self) -> frozenset[int]:
        """Whom a leader may propose."""
        return self.eligible


def with_liberties(rule: TruncationRule) -> TruncationRule:
    """Return the rule, with a truncation at every new epoch."""
    kind = type(rule)
    liberal = type(f"{kind.__name__}AsModel", (kind,), {"restarts_following": lambda *_: True})
    return cast("TruncationRule", liberal())


def end_of_epoch(broker: MemoryBroker, question: EpochLookup, liberal: TruncationRule | None) -> EpochEndResult:
    """Return an epoch's end in a broker's log; a liberal rule asks non-leaders too."""
    response = broker.core.offset_for_leader_epoch(question)
    if response.error is ErrorCode.NONE or liberal is None:
        return response
    end = liberal.end_of_epoch(EpochCache(broker.log.epochs), question.leader_epoch, broker.log.log_end_offset)
    return EpochEndResult(AT, ErrorCode.NONE, end)
