"""Checks that several decisions share: the size of a request, and the replicas that it assigns.

Source: ``ReplicationControlManager.validateManualPartitionAssignment``, ``QuorumController.MAX_RECORDS_PER_USER_OP``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge_controller.metadata.decisions.view import MAX_RECORDS_PER_REQUEST, ClusterView


def check_record_count(records: Sequence[MetadataRecord]) -> None:
    """Reject what would take too many records.

    Raises:
        TidegaugeError: POLICY_VIOLATION.
    """
    if len(records) > MAX_RECORDS_PER_REQUEST:
        raise TidegaugeError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def bad_assignment(sentence: str) -> TidegaugeError:
    """Return the error for replicas that a request may not assign."""
    return TidegaugeError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence)


def check_manual_assignment(view: ClusterView, replicas: Sequence[int], factor: int | None) -> None:
    """Check the replicas that a request assigns to a partition (validateManualPartitionAssignment).

    Args:
        view: of the cluster.
        replicas: the brokers.
        factor: the number of replicas that the partitions before have; None: any.

    Raises:
        TidegaugeError: INVALID_REPLICA_ASSIGNMENT.
    """
    if not replicas:
        raise bad_assignment("The manual partition assignment includes an empty replica list.")
    before = None
    for broker_id in sorted(replicas):
        if broker_id not in view.image.brokers:
            raise bad_assignment(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if broker_id == before:
            raise bad_assignment(f"The manual partition assignment includes the broker {broker_id} more than once.")
        before = broker_id
    if factor is not None and len(replicas) != factor:
        raise bad_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )
