"""Producers of transactions v2 (KIP-890, part 2): each end raises the epoch, and leaders add the partitions.

Source: TransactionManager of Kafka's clients 4.x (EndTxnHandler: id and epoch are taken from every response).
"""

from __future__ import annotations

from dataclasses import replace

from tidegauge.partition import TopicPartition
from tidegauge.transactions import EndTxn, EndTxnResult, TransactionRequest, TransactionResult
from tidegauge_proof.simulator.transactions.producers import Phase, Producer


class RaisingProducer(Producer):
    """A producer of transactions v2."""

    speaks_v2 = True

    def begin(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Begin a transaction; its partitions are added when the first record of each is produced."""
        super().begin(partitions)
        self.phase = Phase.PRODUCING

    def next_request(self) -> TransactionRequest | None:
        """Return what the producer sends now; an EndTxn raises the epoch."""
        request = super().next_request()
        return replace(request, raises_epoch=True) if isinstance(request, EndTxn) else request

    def responded(self, result: TransactionResult) -> None:
        """Take a response; an end gives the id and the epoch of the next transaction."""
        story = self.story
        super().responded(result)
        if isinstance(result, EndTxnResult) and story is not None and story.is_acknowledged:
            self.producer_id, self.epoch = result.producer_id, result.producer_epoch
