"""A broker's counts of share groups, for the metrics (ShareGroupMetrics, SharePartitionMetrics)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.states import AcknowledgeType

COUNTED = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)
"""Kafka counts no gaps."""


class ShareCounts:
    """The counts of share groups.

    Attributes:
        acknowledgements: records that members have acknowledged, by the number of the type.
        loaded: called with the time in ms that the state of a share partition took to load; None: it is not measured.
    """

    def __init__(self) -> None:
        self.acknowledgements: Counter[int] = Counter()
        self.loaded: Callable[[float], None] | None = None

    def acknowledged(self, batches: Iterable[Acknowledgement]) -> None:
        """Count what a member says, even if it is refused."""
        for batch in batches:
            if len(batch.types) == 1:
                self.acknowledgements[batch.types[0]] += batch.last_offset - batch.first_offset + 1
            else:
                self.acknowledgements.update(batch.types)
