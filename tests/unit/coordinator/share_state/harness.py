"""A share coordinator with one partition's log beside it."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

from tests.unit.coordinator.driven import Driven

from tidegauge.share_groups import SharePartitionKey, ShareStateRequest, ShareStateResult
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.coordinator.effects import Effect, PruneLog
from tidegauge_broker.coordinator.events import ShareStateRequestArrived, TopicsChanged
from tidegauge_broker.coordinator.record_codec import read_batches
from tidegauge_broker.coordinator.settings import ShareStateSettings
from tidegauge_broker.coordinator.share_state.coordinator import ShareCoordinator

TOPIC = bytes(range(16))
KEY = SharePartitionKey("g", TOPIC, 0)


def log_of_kafka() -> bytes:
    """The log of a partition of __share_group_state of a broker of Kafka 4.3.1."""
    return gzip.decompress((Path(__file__).parent / "log_of_kafka.gz").read_bytes())


class ShareHarness(Driven):
    """One broker's share coordinator of one partition; the topic ``t`` has two partitions."""

    def __init__(
        self, *, log: Sequence[bytes] = (), now_ms: int = 1_000_000, topic_id: bytes = TOPIC, **settings: int
    ) -> None:
        super().__init__(log, now_ms)
        self.coordinator = ShareCoordinator(ShareStateSettings(partitions=1, **settings), now_ms, self.wall)
        self.prunes: list[PruneLog] = []
        self.settings = settings
        self.topics(topic_id)
        self.elect(0)

    def topics(self, topic_id: bytes | None) -> None:
        topic = None if topic_id is None else TopicDescription("t", topic_id, ((), ()))
        self.event(TopicsChanged({"t": topic}))

    def successor(self) -> ShareHarness:
        """Another broker that was elected on the same log."""
        return ShareHarness(log=self.log, now_ms=self.now_ms, **self.settings)

    def carry_out_own(self, effect: Effect) -> None:
        assert isinstance(effect, PruneLog)
        self.prunes.append(effect)

    def send(self, request: ShareStateRequest) -> int:
        token = self.token()
        self.event(ShareStateRequestArrived(token, request))
        return token

    def ask(self, request: ShareStateRequest) -> ShareStateResult:
        return self.response_to(self.send(request))

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        return [record for batch in self.log for one in read_batches(batch) for record in one.records]
