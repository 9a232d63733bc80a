"""The service for share group members that fetch from a broker: the APIs 78 and 79 in plain values (KIP-932).

Rules:
    1. A session ends with its last request, or with the connection on which it was opened. The records that its member
       has acquired, of the session's partitions, are released then, and that is persisted.
    2. When a connection on which a session was opened has closed, and no member of the group has a session here any
       more, the group's share partitions are dropped: their states are read again by the next fetch.
    3. Whether a member belongs to the group, or has a partition assigned, is not checked here; the group
       coordinator, which spreads the members over the partitions, does it.

Source: SharePartitionManager, ShareSessionCache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tidegauge.kafka.kraft.features import SHARE_VERSION
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import SharePartitionKey
from tidegauge_broker.replica.messages import LeaderHint
from tidegauge_broker.server.share.fetching import ShareFetches
from tidegauge_broker.server.share.hosted import Outcome
from tidegauge_broker.server.share.led import Led
from tidegauge_broker.server.share.partitions import SettingsOf, SharePartitions
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.sessions import (
    INITIAL_EPOCH,
    PartitionId,
    SessionKey,
    ShareFetchContext,
    ShareSession,
    ShareSessions,
)


class ShareService:
    """The service for members of share groups.

    Args:
        partitions: the share partitions that this broker leads.
        fetches: of members.
        sessions: of members.
        settings_of: returns the settings of a group.
        led: the partitions that this broker leads.

    Attributes:
        fetch: returns what a member's fetch gives (``ShareFetches.fetch``).
    """

    def __init__(
        self,
        partitions: SharePartitions,
        fetches: ShareFetches,
        sessions: ShareSessions,
        settings_of: SettingsOf,
        led: Led,
    ) -> None:
        self.partitions = partitions
        self.fetch = fetches.fetch
        self.sessions = sessions
        self._settings_of = settings_of
        self._led = led
        self._groups: dict[object, set[str]] = {}

    # Sessions

    def context(
        self,
        key: SessionKey,
        epoch: int,
        added: Sequence[PartitionId],
        forgotten: Sequence[PartitionId],
        connection: str,
        *,
        acknowledges: bool,
    ) -> ShareFetchContext:
        """Take the session's part of a ShareFetch; see ``ShareSessions.fetch``.

        Raises:
            SessionRefused: the request is refused as a whole.
        """
        context = self.sessions.fetch(key, epoch, added, forgotten, connection, acknowledges=acknowledges)
        if epoch == INITIAL_EPOCH:
            self._groups.setdefault(connection, set()).add(key.group_id)
        return context

    def session_partitions(self, key: SessionKey) -> tuple[PartitionId, ...]:
        """Return the partitions of a session; none if there is no such session."""
        return self.sessions.partitions_of(key)

    def release(self, key: SessionKey) -> None:
        """End a session, and release what its member has acquired; rule 1."""
        session = self.sessions.end(key)
        if session is not None:
            self._release(session)

    def _release(self, session: ShareSession) -> None:
        group_id, member_id = session.key
        for one in session.partitions:
            hosted = self.partitions.get(SharePartitionKey(group_id, *one))
            if hosted is not None:
                self.partitions.acknowledged(
                    hosted, "SessionEnd", lambda core, token, now_ms: core.release(token, member_id, now_ms)
                )

    def connection_closed(self, connection: str) -> None:
        """End the sessions that were opened on a connection; rules 1 and 2."""
        groups = self._groups.pop(connection, None)
        if groups is None:
            return
        for session in self.sessions.connection_closed(connection):
            self._release(session)
        for group_id in groups:
            if not self.sessions.has_group(group_id):
                self.partitions.drop_group(group_id)

    # Acknowledgements

    def refresh_settings(self, group_id: str) -> None:
        """Put a group's settings in force as they are now, before its members acknowledge."""
        self.partitions.refresh_settings(group_id)

    def acknowledge(
        self, key: SessionKey, one: PartitionId, batches: Sequence[Acknowledgement]
    ) -> asyncio.Future[Outcome] | None:
        """Take a member's acknowledgements at a partition.

        Returns:
            A future that is done when they are written, or refused; None: the share partition is not loaded here.
        """
        hosted = self.partitions.get(SharePartitionKey(key.group_id, *one))
        if hosted is None:
            return None
        self.partitions.counts.acknowledged(batches)
        return self.partitions.acknowledged(
            hosted,
            "ShareAcknowledge",
            lambda core, token, now_ms: core.acknowledge(token, key.member_id, batches, now_ms),
        )

    # Further fields of responses

    def lock_duration_ms(self, group_id: str) -> int:
        """Return for how long a member of a group may keep a record."""
        return self._settings_of(group_id).record_lock_duration_ms

    def leader_hint(self, at: TopicPartition) -> LeaderHint | None:
        """Return a partition's newest leader known here, or None."""
        return self._led.leader_hint(at)

    # Changes in the cluster

    def leadership_changed(self, at: TopicPartition, *, leads: bool) -> None:
        """Take up that this broker has gained or lost a partition."""
        if not leads:
            self.partitions.leadership_lost(at)

    def levels_changed(self, levels: Mapping[str, int]) -> None:
        """Take up the levels of the cluster's features: below share.version 1 all sessions and acquisitions end.

        Nothing is released, so that nothing is written (SharePartitionManager.onShareVersionToggle).
        """
        if levels.get(SHARE_VERSION, 0) < 1:
            self.sessions.clear()
            for hosted in self.partitions:
                self.partitions.drop(hosted.key, "UpdateFeatures")

    async def close(self) -> None:
        """Let no lock time out any more, and end reads and writes in progress."""
        await self.partitions.close()
