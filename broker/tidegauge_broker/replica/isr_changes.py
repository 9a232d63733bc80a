"""Changes of in-sync replicas: laggards are looked for, and the controller's verdicts are taken in.

Source: ReplicaManager.maybeShrinkIsr, Partition.handleAlterPartitionUpdate and handleAlterPartitionError.
"""

from __future__ import annotations

from tidegauge.control import IsrProposal, IsrVerdict
from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.effects import Effect
from tidegauge_broker.replica.hosted import HostedPartitions, contain
from tidegauge_broker.replica.messages import CoreSettings
from tidegauge_broker.replica.parked import ParkedOperations
from tidegauge_broker.replica.ports import Metadata
from tidegauge_broker.replica.refusals import ALTER_PARTITION, Refusal


class IsrChanges:
    """Propose that laggards leave the ISR, and apply verdicts.

    Args:
        settings: of the core.
        hosted: the replicas.
        parked: what waits for them.
        metadata: what the broker knows of the cluster.

    Attributes:
        next_shrink_ms: when laggards are looked for again.
    """

    __slots__ = ("_hosted", "_metadata", "_parked", "_settings", "next_shrink_ms")

    def __init__(
        self, settings: CoreSettings, hosted: HostedPartitions, parked: ParkedOperations, metadata: Metadata
    ) -> None:
        self.next_shrink_ms = 0
        self._settings = settings
        self._hosted = hosted
        self._parked = parked
        self._metadata = metadata

    def verdict_received(self, proposal: IsrProposal, verdict: IsrVerdict, now_ms: int) -> list[Effect]:
        """Apply the controller's verdict on a ProposeIsr. ``proposal`` is the very object that the effect carried."""
        out: list[Effect] = []
        partition = self._hosted.by_name.get(proposal.topic_partition)
        if partition is not None and partition.leader_role is not None:
            role = partition.leader_role
            if role.isr.proposal is proposal:  # else a new state has replaced it: the verdict is stale
                self._report(proposal, verdict, now_ms, out)
            try:
                if not role.isr_verdict(proposal, verdict, out):
                    return out
                role.maybe_advance_high_watermark(now_ms, self._metadata.live_brokers(), "AlterPartition", out)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                contain(partition, problem, out)
                return out
            self._parked.settle(partition, out)
        return out

    def _report(self, proposal: IsrProposal, verdict: IsrVerdict, now_ms: int, out: list[Effect]) -> None:
        """Report that the controller has refused a proposal, or that it refuses no more."""
        if not self._settings.emits_diagnostics:
            return
        at, refusals = proposal.topic_partition, self._hosted.refusals
        if verdict.error is ErrorCode.NONE:
            refusals.accepted(at, ALTER_PARTITION)
            return
        refusal = Refusal(at, ALTER_PARTITION, verdict.error, proposal.leader_epoch, proposal.topic_id)
        refusals.refused(refusal, now_ms, "", "", out)  # the leader says in the log what it makes of it

    def shrink(self, now_ms: int, out: list[Effect]) -> None:
        """Look for laggards, if it is time: twice in replica.lag.time.max.ms."""
        if now_ms < self.next_shrink_ms:
            return
        self.next_shrink_ms = now_ms + max(1, self._settings.replica_lag_time_max_ms // 2)
        for partition in self._hosted.by_name.values():
            if partition.leader_role is not None:
                try:
                    partition.leader_role.maybe_shrink(now_ms, out)
                except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                    contain(partition, problem, out)
