"""Copy a topic in transactions with librdkafka (confluent-kafka): ``transactional_copier.py`` and what ``main`` reads.

As Kafka's own TransactionalMessageCopier for system tests: read, write, add the offsets to the transaction, and end it;
every third transaction is aborted and done again. Its end is that of stdin. It prints a line for each transaction.

librdkafka's ``send_offsets_to_transaction`` never returns, whatever its timeout, when the coordinator of the group has
left the metadata at the wrong moment (https://github.com/confluentinc/librdkafka/issues/5511 and 5456). A copier that
is stuck so begins again as a new process, as after SIGKILL.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

import confluent_kafka

LIMIT_SECONDS = 90.0
ABORT_EVERY = 3
STUCK_SECONDS = 30.0
FIRST_DESCRIPTOR, LAST_DESCRIPTOR = 3, 65_536


class Copier:
    """See the module.

    Args:
        servers: of the cluster, with commas.
        transactional_id: of the producer.
        group: whose offsets say what has been copied.
        source: the topic that is read.
        target: the topic that is written.
        partitions: how many the target has; a record of partition 0 goes to partition 0, and so on.
        assigned: the partition that is read; none: what the group assigns (KIP-447).
        size: limit of the records of a transaction.
    """

    def __init__(
        self,
        servers: str,
        transactional_id: str,
        group: str,
        source: str,
        target: str,
        partitions: int,
        assigned: int | None,
        size: int,
    ) -> None:
        self._servers, self._transactional_id = servers, transactional_id
        self._target, self._partitions, self._size = target, partitions, size
        self._read: list[Any] = []
        self._ends = threading.Event()
        self._transactions = self._copied = 0
        self._producer = self._new_producer()
        self._consumer: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 1_000,
                "partition.assignment.strategy": "range",
                "log_level": 2,
            }
        )
        if assigned is None:
            self._consumer.subscribe([source], on_revoke=self._forget, on_lost=self._forget)
        else:
            self._consumer.assign([confluent_kafka.TopicPartition(source, assigned)])
            self._rewind()
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()

    def _wait_for_the_end(self) -> None:
        sys.stdin.read()
        self._ends.set()

    def _new_producer(self) -> Any:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": 30_000,
                "linger.ms": 1,
                "log_level": 2,
            }
        )
        retried(lambda: producer.init_transactions(LIMIT_SECONDS))
        return producer

    def _forget(self, _: Any, __: Any) -> None:
        """Drop what was read of partitions that are another member's now."""
        self._read.clear()

    def run(self) -> None:
        """Copy until stdin ends."""
        while not self._ends.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self._read.append(message)
            if self._read and (message is None or len(self._read) >= self._size):
                metadata = self._consumer.consumer_group_metadata()
                messages, self._read = self._read, []
                self._transact(messages, metadata)
        self._consumer.close()

    def _transact(self, messages: list[Any], metadata: Any) -> None:
        self._transactions += 1
        try:
            aborts = self._transactions % ABORT_EVERY == 0
            self._copy(messages, metadata)
            if aborts:
                self._producer.flush(LIMIT_SECONDS)
                self._abort()
            else:
                retried(lambda: self._producer.commit_transaction(LIMIT_SECONDS))
                self._copied += len(messages)
        except confluent_kafka.KafkaException as problem:
            if problem.args[0].fatal():
                self._producer = self._new_producer()
                self._rewind()
            else:
                self._abort()
        print(json.dumps({"transactions": self._transactions, "copied": self._copied}), flush=True)

    def _copy(self, messages: list[Any], metadata: Any) -> None:
        self._producer.begin_transaction()
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            self._producer.produce(self._target, message.value(), partition=message.partition() % self._partitions)
            ends[message.topic(), message.partition()] = message.offset() + 1
        offsets = [confluent_kafka.TopicPartition(*at, offset) for at, offset in ends.items()]
        watch = threading.Timer(STUCK_SECONDS, begin_as_a_new_process)
        watch.start()
        try:
            retried(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, LIMIT_SECONDS))
        finally:
            watch.cancel()

    def _abort(self) -> None:
        retried(lambda: self._producer.abort_transaction(LIMIT_SECONDS))
        self._rewind()

    def _rewind(self) -> None:
        """Read on from what was committed."""
        assigned = self._consumer.assignment()
        if not assigned:
            return
        found: list[Any] = []
        retried(lambda: found.extend(self._consumer.committed(assigned, LIMIT_SECONDS)))
        for one in found:
            offset = one.offset if one.offset >= 0 else confluent_kafka.OFFSET_BEGINNING
            self._consumer.seek(confluent_kafka.TopicPartition(one.topic, one.partition, offset))
        self._read.clear()


def begin_as_a_new_process() -> None:
    """Run the program again in this process, without its connections."""
    print("stuck in send_offsets_to_transaction: a new process", file=sys.stderr, flush=True)
    os.closerange(FIRST_DESCRIPTOR, LAST_DESCRIPTOR)
    os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - the same command


def retried(call: Any) -> None:
    """Call until the problem, if there is one, is not one that passes.

    Raises:
        KafkaException: another problem.
    """
    while True:
        try:
            call()
        except confluent_kafka.KafkaException as problem:
            if not problem.args[0].retriable() or problem.args[0].txn_requires_abort():
                raise
        else:
            return


def main() -> None:
    """Read a copier's arguments from the command line, as JSON."""
    Copier(**json.loads(sys.argv[1])).run()


if __name__ == "__main__":
    main()
