"""The records of __transaction_state: keys, values and batches, byte for byte as Kafka 3.9 writes them.

Written are key version 0 and value version 0; from transaction.version 1 on value version 1, which is flexible and has
the producer ids before and after, and the client's version, in tagged fields (KIP-890, part 2). A cluster in ZooKeeper
mode has no transaction.version. Both are read. Batches have one record and are never compressed. The partitions
are null in Empty and an empty array in CompleteCommit and CompleteAbort.
Source: TransactionLog (keyToBytes, valueToBytes, readTxnRecordKey, readTxnRecordValue).
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.coordinator.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from tidegauge.partition import TopicPartition
from tidegauge.transactions import TransactionState
from tidegauge_broker.coordinator.record_codec import Record, UnknownKey, batch_of, decoded, encoded, version_of
from tidegauge_broker.coordinator.transaction.scala_sets import by_topic
from tidegauge_broker.coordinator.transaction.states import EMPTY, ONGOING, STATE_OF_STATUS, STATUS, WRITTEN
from tidegauge_broker.coordinator.transaction.transaction import MAX_EPOCH, Change, Transaction

KEY_VERSION = 0
FIRST_FLEXIBLE_VALUE = 1
VALUE_VERSIONS = range(2)


def transaction_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id."""
    return encoded(TransactionLogKey(transactional_id), KEY_VERSION)


def transaction_value(change: Change, transaction_version: int = 0) -> bytes:
    """Return a change as it is written at a level of transaction.version."""
    value = TransactionLogValue(
        producer_id=change.producer_id,
        producer_epoch=change.producer_epoch,
        transaction_timeout_ms=change.timeout_ms,
        transaction_status=STATUS[change.state],
        transaction_partitions=None if change.state is EMPTY else _topics(change.partitions),
        transaction_last_update_timestamp_ms=change.update_ms,
        transaction_start_timestamp_ms=change.start_ms,
    )
    if transaction_version < FIRST_FLEXIBLE_VALUE:
        return encoded(value, 0)
    value.previous_producer_id = change.last_producer_id
    value.next_producer_id = change.next_producer_id
    value.client_transaction_version = change.client_version
    return encoded(value, FIRST_FLEXIBLE_VALUE, flexible=True)


def transaction_batch(transactional_id: str, change: Change, now_ms: int, transaction_version: int = 0) -> bytes:
    """Return the batch with the record of a change."""
    value = transaction_value(change, transaction_version)
    return batch_of([Record(transaction_key(transactional_id), value)], now_ms)


def _topics(partitions: tuple[TopicPartition, ...]) -> list[PartitionsSchema]:
    return [PartitionsSchema(topic, numbers) for topic, numbers in by_topic(partitions)]


def read_transaction_key(key: bytes) -> str | UnknownKey:
    """Return the transactional id that a record's key names.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no key.
    """
    version = version_of(key)
    if version != KEY_VERSION:
        return UnknownKey(version)
    return decoded(TransactionLogKey, key, version).transactional_id


def read_transaction(transactional_id: str, value: bytes) -> Transaction:
    """Return a transactional id as its record says.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no value of a version that Kafka 3.9 reads, or one that no
            coordinator can have written.
    """
    version = version_of(value)
    if version not in VALUE_VERSIONS:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"a transaction's value has the unknown version {version}")
    read = decoded(TransactionLogValue, value, version, flexible=version >= FIRST_FLEXIBLE_VALUE)
    state = STATE_OF_STATUS.get(read.transaction_status)
    if state is None:
        raise TidegaugeError(
            ErrorCode.CORRUPT_MESSAGE, f"a transaction's value has the unknown status {read.transaction_status}"
        )
    cause = _incoherence(read, state)
    if cause is not None:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"a transaction's value makes no sense: {cause}")
    transaction = Transaction(
        transactional_id, read.producer_id, read.transaction_timeout_ms, read.transaction_last_update_timestamp_ms
    )
    transaction.producer_epoch = read.producer_epoch
    transaction.state = state
    transaction.start_ms = read.transaction_start_timestamp_ms
    transaction.last_producer_id = read.previous_producer_id
    transaction.next_producer_id = read.next_producer_id
    transaction.client_version = read.client_transaction_version
    if state is not EMPTY:
        for topic in read.transaction_partitions or ():
            for partition in topic.partition_ids:
                transaction.partitions[TopicPartition(topic.topic, partition)] = None
    return transaction


def _incoherence(read: TransactionLogValue, state: TransactionState) -> str | None:
    """Return why a value is incoherent, as a clause, or None.

    No coordinator can have written such a value.

    Kafka takes it as it is (TransactionLog.readTxnRecordValue); a later request fails with IllegalStateException.
    """
    if state not in WRITTEN:
        return f"the state {state.value} is never written"
    if read.producer_id < 0:
        return f"its producer id is negative, {read.producer_id}"
    if read.producer_epoch < 0:
        return f"its producer epoch is negative, {read.producer_epoch}"
    if state is ONGOING and read.producer_epoch == MAX_EPOCH:
        return f"its epoch {MAX_EPOCH} belongs to an abort, and the transaction is open"
    if read.transaction_timeout_ms <= 0:
        return f"its timeout is {read.transaction_timeout_ms} ms"
    return None
