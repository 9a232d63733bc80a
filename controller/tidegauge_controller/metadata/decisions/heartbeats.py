"""An active controller's memory of heartbeats. It is not metadata: a new controller begins without it.

A broker's session is alive while its last contact is younger than broker.session.timeout.ms. Contacts are counted by
broker id and epoch, so contacts of an earlier incarnation do not keep the next one waiting.
Source: ``BrokerHeartbeatManager``, ``BrokerHeartbeatTracker``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge_controller.metadata.image import MetadataImage

NO_OFFSET = -1
MAX_OFFSET = 2**63 - 1


@dataclass(slots=True)
class BrokerContact:
    """The last heartbeat of a registered broker.

    Attributes:
        fenced: as of its last heartbeat.
        metadata_offset: the last one that it reported.
        shutdown_offset: of the last record of the event that began its controlled shutdown; -1 before.
    """

    fenced: bool
    metadata_offset: int = NO_OFFSET
    shutdown_offset: int = NO_OFFSET

    @property
    def is_shutting_down(self) -> bool:
        """Whether its controlled shutdown has begun."""
        return self.shutdown_offset >= 0


class Heartbeats:
    """Contacts and sessions of brokers, while this controller is active.

    Args:
        session_timeout_ms: broker.session.timeout.ms.
    """

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._contacts: dict[tuple[int, int], int] = {}
        self.brokers: dict[int, BrokerContact] = {}

    def begin(self, image: MetadataImage, now_ms: int) -> None:
        """Begin as active controller: brokers that are not fenced get a whole session from now."""
        self.brokers = {broker.broker_id: BrokerContact(broker.fenced) for broker in image.brokers.values()}
        self._contacts = {
            (broker.broker_id, broker.epoch): now_ms for broker in image.brokers.values() if not broker.fenced
        }

    def registered(self, broker_id: int, *, fenced: bool) -> None:
        """Take in a registration; heartbeats before it are forgotten."""
        self.brokers[broker_id] = BrokerContact(fenced)

    def unregistered(self, broker_id: int) -> None:
        """Forget a broker; its contacts expire by themselves."""
        self.brokers.pop(broker_id, None)

    def forget_offset(self, broker_id: int) -> None:
        """Forget what a broker has reported: its registration has changed (ClusterControlManager.replay).

        A controlled shutdown of another broker then waits for this one's next heartbeat.
        """
        self.brokers[broker_id].metadata_offset = NO_OFFSET

    def contacted(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Note a heartbeat when it arrives, before it waits for its turn: load must not fence a live broker."""
        self._contacts[broker_id, epoch] = now_ms

    def has_valid_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Return whether a broker's session is alive."""
        contact = self._contacts.get((broker_id, epoch))
        return contact is not None and now_ms - contact < self._session_timeout_ms

    def end_session(self, broker_id: int, epoch: int) -> None:
        """Forget a broker's contact before its session expires; its next heartbeat begins another one."""
        self._contacts.pop((broker_id, epoch), None)

    def touch(self, broker_id: int, metadata_offset: int, *, fenced: bool) -> None:
        """Take in a heartbeat that was decided; a broker that is fenced leaves its controlled shutdown."""
        contact = self.brokers[broker_id]
        contact.metadata_offset = metadata_offset
        contact.fenced = fenced
        if fenced:
            contact.shutdown_offset = NO_OFFSET

    def fence(self, broker_id: int) -> None:
        """Take in that a broker's session has expired."""
        self.touch(broker_id, self.brokers[broker_id].metadata_offset, fenced=True)

    def shutdown_began(self, broker_id: int, last_offset: int) -> None:
        """Note the offset at which the other brokers know the new leaders; only the first one counts."""
        contact = self.brokers[broker_id]
        if not contact.is_shutting_down and not contact.fenced:
            contact.shutdown_offset = last_offset

    def lowest_active_offset(self) -> int:
        """Return the lowest metadata offset of serving brokers; without any, the largest."""
        offsets = [one.metadata_offset for one in self.brokers.values() if not one.fenced and not one.is_shutting_down]
        return min(offsets, default=MAX_OFFSET)

    def pop_expired(self, now_ms: int) -> tuple[int, int] | None:
        """Return and forget the broker id and epoch of an expired session.

        It is the session that expired first; None: all are alive.
        """
        if not self._contacts:
            return None
        key = min(self._contacts, key=lambda one: (self._contacts[one], one))
        if now_ms - self._contacts[key] < self._session_timeout_ms:
            return None
        del self._contacts[key]
        return key
