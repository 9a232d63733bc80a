"""Broker settings of transactions and their topic: Kafka's names, types, defaults and bounds.

Source: Kafka's TransactionStateManagerConfigs, TransactionLogConfigs; AddPartitionsToTxnConfig of 4.3.1.
"""

from __future__ import annotations

from tidegauge.settings.tables import flag, short, whole

TRANSACTION_SETTINGS = (
    whole("transaction.max.timeout.ms", 900_000, "ms", "Largest timeout that a transactional producer may ask for.", 1),
    whole(
        "transactional.id.expiration.ms",
        604_800_000,
        "ms",
        "Time after which a transactional id without an open transaction expires.",
        1,
    ),
    whole(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "ms",
        "Interval between checks for transactions that have exceeded their timeout; they are aborted.",
        1,
    ),
    whole(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "ms",
        "Interval between checks for expired transactional ids.",
        1,
    ),
    flag(
        "transaction.partition.verification.enable",
        True,
        "Whether a leader asks the transaction coordinator before it appends a transaction's first batch (KIP-890).",
        update="cluster-wide",
    ),
    whole(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        "ms",
        "Time after which a leader adds a partition to a transaction again, while the one before is being completed: "
        "in KRaft mode (KIP-890, part 2).",
        1,
    ),
    whole(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "ms",
        "How long a leader tries so; then the producer gets CONCURRENT_TRANSACTIONS.",
        0,
    ),
    short("transaction.state.log.replication.factor", 3, "Replicas of __transaction_state when it is created.", 1),
    whole("transaction.state.log.num.partitions", 50, "", "Partitions of __transaction_state when it is created.", 1),
    whole("transaction.state.log.min.isr", 2, "", "min.insync.replicas of __transaction_state.", 1),
    whole("transaction.state.log.segment.bytes", 104_857_600, "bytes", "Segment size of __transaction_state.", 1),
    whole(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        "bytes",
        "Bytes to read at a time when a coordinator loads a partition; a larger batch is read whole.",
        1,
    ),
)
