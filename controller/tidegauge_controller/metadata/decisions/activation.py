"""The first records of a controller that becomes active, its periodic records, and producer ids.

Source: ``ActivationRecordsGenerator``, ``QuorumController.maybeScheduleNextWriteNoOpRecord``,
``ProducerIdControlManager``; KIP-868, KIP-966.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.cluster_metadata import PRODUCER_ID_BLOCK_SIZE
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import ELR_VERSION, METADATA_VERSION
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.abort_transaction_record import AbortTransactionRecord
from tidegauge.kafka.metadata_records.begin_transaction_record import BeginTransactionRecord
from tidegauge.kafka.metadata_records.config_record import ConfigRecord
from tidegauge.kafka.metadata_records.end_transaction_record import EndTransactionRecord
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.kafka.metadata_records.no_op_record import NoOpRecord
from tidegauge.kafka.metadata_records.producer_ids_record import ProducerIdsRecord
from tidegauge_controller.metadata.decisions.view import MIN_INSYNC_REPLICAS, ClusterView, Decision
from tidegauge_controller.metadata.image import BROKER, CLUSTER_DEFAULT
from tidegauge_controller.metadata.records import made

MAX_PRODUCER_ID = 2**63 - 1


def activate(view: ClusterView, bootstrap: Sequence[MetadataRecord], *, in_transaction: bool) -> Decision[None]:
    """Return the first records of a controller that becomes active.

    An empty log gets the bootstrap records in one metadata transaction, with the cluster's min.insync.replicas if
    eligible leader replicas are enabled, since these depend on it. A log that the former controller left with an open
    transaction gets its abort.

    Args:
        view: of the committed records.
        bootstrap: the records of bootstrap.checkpoint.
        in_transaction: whether a metadata transaction is open.

    Raises:
        TidegaugeError: INVALID_REQUEST, the bootstrap records do not begin with metadata.version.
    """
    if not view.image.is_empty:
        aborted = [made(AbortTransactionRecord("Controller failover"))] if in_transaction else []
        return Decision(aborted, None)
    levels = {
        record.message.name: record.message.feature_level
        for record in bootstrap
        if isinstance(record.message, FeatureLevelRecord)
    }
    if METADATA_VERSION not in levels:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            "The bootstrap records have no metadata.version; format the controller's directory",
        )
    records = [made(AbortTransactionRecord("Controller failover"))] if in_transaction else []
    records += [made(BeginTransactionRecord("Bootstrap records")), *bootstrap]
    if levels.get(ELR_VERSION, 0) > 0:
        value = str(view.settings.min_insync_replicas)
        records.append(made(ConfigRecord(BROKER, CLUSTER_DEFAULT, MIN_INSYNC_REPLICAS, value)))
    return Decision([*records, made(EndTransactionRecord())], None, atomic=True)


def no_op() -> Decision[None]:
    """Return the record that shows brokers the log's length, every metadata.max.idle.interval.ms."""
    return Decision([made(NoOpRecord())], None)


def allocate_producer_ids(view: ClusterView, broker_id: int, broker_epoch: int) -> Decision[tuple[int, int]]:
    """Allocate the next block of producer ids; the response is its first id and its length.

    Raises:
        TidegaugeError: STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR, all ids are used.
    """
    view.check_broker_epoch(broker_id, broker_epoch)
    first = view.image.next_producer_id
    if first > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise TidegaugeError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    record = ProducerIdsRecord(broker_id, broker_epoch, first + PRODUCER_ID_BLOCK_SIZE)
    return Decision([made(record)], (first, PRODUCER_ID_BLOCK_SIZE))
