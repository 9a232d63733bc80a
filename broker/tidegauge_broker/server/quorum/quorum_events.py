"""Reports of a quorum's node as lines of the process's log and of its event log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegauge.partition import TopicPartition
from tidegauge_broker.server.clock import Clock
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.quorum.requests_in import TOPIC
from tidegauge_controller.metadata.elections import elections
from tidegauge_controller.metadata.image import MetadataImage
from tidegauge_controller.metadata.noted_changes import changes_of_eligible_leaders, fencings
from tidegauge_controller.raft import effects
from tidegauge_controller.raft.node import RaftNode

LOG = logging.getLogger("tidegauge.quorum")
_PARTITION = TopicPartition(TOPIC, 0)
_BY_RECORDS = "MetadataRecords"


class QuorumEvents:
    """An observer of the node (``driver.Observer``) that writes lines.

    Args:
        node: the node.
        path: the event log's file; None: there is none.
        node_id: the node's id.
        clock: the process's clock.
    """

    def __init__(self, node: RaftNode, path: Path | None, node_id: int, clock: Clock) -> None:
        self._node = node
        self._node_id = node_id
        self._high_watermark = -1
        self._writer = EventLogWriter(
            path, f"controller-{node_id}", clock.machine_ms, asyncio.get_running_loop().call_later
        )

    def state_changed(self, effect: effects.StateChanged) -> None:
        """Note the node's new state in the quorum."""
        leader = -1 if effect.leader_id is None else effect.leader_id
        LOG.info(
            "Controller %d is %s in epoch %d, leader %d: %s",
            self._node_id,
            effect.state,
            effect.epoch,
            leader,
            effect.reason,
        )
        fields = {
            "state": effect.state,
            "epoch": effect.epoch,
            "leader": leader,
            "log_end_offset": self._node.log.end_offset,
        }
        self._writer.note("quorum", effect.reason, fields)

    def high_watermark_moved(self, effect: effects.HighWatermarkMoved) -> None:
        """Note that more records are committed."""
        old, self._high_watermark = self._high_watermark, effect.high_watermark
        self._writer.note("high_watermark", "Fetch", {"old": old, "new": effect.high_watermark}, _PARTITION)

    def leadership_changed(self, effect: effects.LeadershipChanged) -> None:
        """Note that the node has begun to lead: its epoch's first record is committed."""
        if effect.leader_id == self._node_id:
            self._writer.note("controller", "LeaderChange", {"state": "elected", "controller_epoch": effect.epoch})

    def proposal_decided(self, effect: effects.Proposed | effects.NotProposed) -> None:
        """Do nothing: the proposer knows."""

    def decided(self, old: MetadataImage, new: MetadataImage) -> None:
        """Note what the active controller has decided of brokers and leaders by the step from one image to another."""
        for broker_id, fenced in fencings(old, new):
            known = {"broker": broker_id, "state": "fenced" if fenced else "unfenced"}
            self._writer.note("fencing", _BY_RECORDS, known)
        for one in elections(old, new):
            state = one.state
            fields = {
                "strategy": one.strategy.value,
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
                "isr": list(state.isr),
            }
            self._writer.note("election", _BY_RECORDS, fields, one.at)
        for change in changes_of_eligible_leaders(old, new):
            eligible = {"old": list(change.old), "new": list(change.new), "last_known": list(change.last_known)}
            self._writer.note("elr", _BY_RECORDS, eligible, change.at)

    def fault(self, fields: Mapping[str, Any]) -> None:
        """Note what the lab did to the node."""
        self._writer.note("fault", "Lab", dict(fields))

    def close(self) -> None:
        """Write the rest."""
        self._writer.close()
