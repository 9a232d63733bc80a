"""The partition of a record, as Kafka's built-in partitioner chooses it (KIP-480, KIP-794).

Rules:
    1. A record with a key goes to ``murmur2(key) & 0x7fffffff`` modulo the number of partitions, whether or not the
       partition has a leader.
    2. For records without a key a producer stays with one partition until batch.size bytes were given to it, then draws
       another; partitions with long queues are drawn less often. Only partitions with a leader are drawn, unless none
       has one.
    3. The switch waits for a full batch, but no longer than two batch sizes: otherwise it would leave small batches.

Source: ``org.apache.kafka.clients.producer.internals.BuiltInPartitioner``, ``Utils.murmur2``.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from itertools import accumulate

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit Murmur2, as a signed number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if length > whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    h ^= h >> 15
    return h - 2**32 if h & 0x80000000 else h


@lru_cache(maxsize=8192)
def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition for records with this key (rule 1)."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """The partition for records of one topic that have no key (rules 2 and 3)."""

    def __init__(self, batch_size_bytes: int, draw: Callable[[int], int] = random.randrange) -> None:
        """Start without a partition.

        Args:
            batch_size_bytes: bytes that a partition gets before another is drawn.
            draw: returns a random number from 0 to one below its argument.
        """
        self._batch_size_bytes = batch_size_bytes
        self._draw = draw
        self._partition: int | None = None
        self._produced_bytes = 0

    @property
    def current(self) -> int | None:
        """Return the sticky partition; None if another is drawn next."""
        return self._partition

    def partition(
        self, everyone: Collection[int], is_available: Callable[[int], bool], queue_length: Callable[[int], int]
    ) -> int:
        """Return the partition for the next record, drawing one if needed.

        Args:
            everyone: all partitions.
            is_available: returns whether a partition has a leader.
            queue_length: returns the number of batches that wait for a partition.
        """
        if self._partition is None or self._partition not in everyone:
            available = [partition for partition in everyone if is_available(partition)]
            self._partition = self._next(available or list(everyone), queue_length)
            self._produced_bytes = 0
        return self._partition

    def leave(self) -> None:
        """Draw another partition for the next record: this one can't be reached."""
        self._partition = None

    def produced(self, size_bytes: int, *, batch_is_full: bool) -> None:
        """Note that a record was given to the partition; the next one may go to another."""
        self._produced_bytes += size_bytes
        limit = self._batch_size_bytes
        if (self._produced_bytes >= limit and batch_is_full) or self._produced_bytes >= 2 * limit:
            self._partition = None

    def _next(self, candidates: Sequence[int], queue_length: Callable[[int], int]) -> int:
        if len(candidates) == 1:
            return candidates[0]
        lengths = [queue_length(partition) for partition in candidates]
        longest = max(lengths)
        # The longest queue has weight 1, an empty one the most (updatePartitionLoadStats).
        sums = list(accumulate(longest + 1 - length for length in lengths))
        return candidates[bisect.bisect_right(sums, self._draw(sums[-1]))]
