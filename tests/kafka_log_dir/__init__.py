"""The log directory that a broker of Apache Kafka 3.9.1 left: README.md lists its contents."""

from __future__ import annotations

from pathlib import Path

DIRECTORY = Path(__file__).parent / "kafka-3.9.1"
PARTITION_ORDERS = Path(__file__).parent / "partition_orders.txt"
FIRST = "00000000000000000000"
PARTITIONS = (
    "t-0",
    "o-0",
    *(f"__{topic}-{index}" for topic in ("consumer_offsets", "transaction_state") for index in (0, 1)),
)


def log_of(partition: str) -> Path:
    """Return the only segment of a partition."""
    return DIRECTORY / partition / f"{FIRST}.log"


def last_snapshot_of(partition: str) -> Path:
    """Return the snapshot of the producers at the end of a partition."""
    return max((DIRECTORY / partition).glob("*.snapshot"))
