"""The memory of an active controller: the committed image, and the image with the pending records.

Records change memory when they are appended, before they are committed: the next decision sees them. If leadership is
lost, memory returns to the committed image. A response waits until every record that it may depend on is committed.
Source: ``QuorumController.ControllerWriteEvent``, ``OffsetControlManager``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.abort_transaction_record import AbortTransactionRecord
from tidegauge.kafka.metadata_records.begin_transaction_record import BeginTransactionRecord
from tidegauge.kafka.metadata_records.broker_registration_change_record import BrokerRegistrationChangeRecord
from tidegauge.kafka.metadata_records.end_transaction_record import EndTransactionRecord
from tidegauge.kafka.metadata_records.register_broker_record import RegisterBrokerRecord
from tidegauge.kafka.metadata_records.unregister_broker_record import UnregisterBrokerRecord
from tidegauge_controller.metadata.decisions.heartbeats import Heartbeats
from tidegauge_controller.metadata.decisions.view import ClusterView, ControllerSettings
from tidegauge_controller.metadata.delta import MetadataDelta
from tidegauge_controller.metadata.image import MetadataImage, Provenance

_OF_TRANSACTIONS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


class ActiveController:
    """The state of a controller from its election to the end of its leadership.

    Args:
        settings: of the controller.
        image: of the committed records.
        epoch: of its leadership.
        next_offset: of the next record that it appends.
        now_ms: a clock that never goes back.

    Attributes:
        image: of the committed and the pending records.
        committed: of the committed records alone.
        heartbeats: of the brokers.
        epoch: of its leadership.
        next_offset: of the next record that it appends.
    """

    def __init__(
        self, settings: ControllerSettings, image: MetadataImage, epoch: int, next_offset: int, now_ms: int
    ) -> None:
        self.image = self.committed = image
        self.next_offset = next_offset
        self.heartbeats = Heartbeats(settings.session_timeout_ms)
        self.heartbeats.begin(image, now_ms)
        self._settings = settings
        self.epoch = epoch
        self._pending: deque[tuple[int, MetadataImage]] = deque()

    @property
    def view(self) -> ClusterView:
        """The view that the next decision is made from."""
        return ClusterView(self.image, self._settings, self.next_offset)

    @property
    def last_pending_offset(self) -> int | None:
        """The last record that is not committed; a response without records waits for it. None: nothing is pending."""
        return self._pending[-1][0] if self._pending else None

    def prepare(self, records: Sequence[MetadataRecord], now_ms: int) -> MetadataImage:
        """Return the image after the records of a decision; nothing changes before ``accept``.

        Raises:
            UnreplayableRecord: a record does not fit; the decision must not be appended.
        """
        return self._replayed(records, self.next_offset, now_ms)

    def _replayed(self, records: Sequence[MetadataRecord], base_offset: int, now_ms: int) -> MetadataImage:
        delta = MetadataDelta(self.image)
        for at, record in enumerate(records):
            if not isinstance(record.message, _OF_TRANSACTIONS):
                delta.replay(record, base_offset + at)
        return delta.image(Provenance(base_offset + len(records) - 1, self.epoch, now_ms))

    def accept(self, records: Sequence[MetadataRecord], prepared: MetadataImage, base_offset: int) -> int:
        """Take in records that the quorum's log has taken; return the offset of the last one.

        Args:
            records: of one decision.
            prepared: the image of ``prepare``.
            base_offset: where the log has put them; a control record of the quorum may have come before them.
        """
        if base_offset != self.next_offset:
            prepared = self._replayed(records, base_offset, prepared.provenance.timestamp_ms)
        last = base_offset + len(records) - 1
        self.image = prepared
        self._pending.append((last, prepared))
        self.next_offset = last + 1
        for record in records:
            if isinstance(record.message, RegisterBrokerRecord):
                self.heartbeats.registered(record.message.broker_id, fenced=record.message.fenced)
            elif isinstance(record.message, UnregisterBrokerRecord):
                self.heartbeats.unregistered(record.message.broker_id)
            elif isinstance(record.message, BrokerRegistrationChangeRecord):
                self.heartbeats.forget_offset(record.message.broker_id)
        return last

    def appended(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """Take in the records of a decision that were appended right behind the last ones; return the last offset.

        Raises:
            UnreplayableRecord: a record does not fit.
        """
        return self.accept(records, self.prepare(records, now_ms), self.next_offset)

    def commit(self, offset: int) -> None:
        """Take in that the log is committed up to an offset, inclusive."""
        while self._pending and self._pending[0][0] <= offset:
            self.committed = self._pending.popleft()[1]
