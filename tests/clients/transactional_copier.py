"""Copy a topic in transactions with librdkafka (confluent-kafka): ``transactional_copier.py`` and what ``main`` reads.

As Kafka's own TransactionalMessageCopier for system tests: read, write, add the offsets to the transaction, and end it;
every third transaction is aborted and done again. It ends with stdin. It prints a line for each transaction.

librdkafka's ``send_offsets_to_transaction`` never returns, whatever its timeout, when the coordinator of the group has
left the metadata at the wrong moment (https://github.com/confluentinc/librdkafka/issues/5511 and 5456). A copier that
is stuck so begins again as a new process, as after SIGKILL.

With ``history`` it appends what it does to a file, as docs/histories.md describes; what it writes is then unique: the
value that it has read, with ``#`` and the name of the transaction.

``LIBRDKAFKA_DEBUG=eos,protocol`` has librdkafka log to stderr what it does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import confluent_kafka
from tests.clients.copier_history import History, begin_as_a_new_process

LIMIT_SECONDS = 90.0
ABORT_EVERY = 3
STUCK_SECONDS = 30.0
PAUSE_SECONDS = 0.1
DEBUG = {"debug": os.environ["LIBRDKAFKA_DEBUG"]} if "LIBRDKAFKA_DEBUG" in os.environ else {"log_level": 2}
STUCK = "stuck in send_offsets_to_transaction"


def delivered(history: History, number: int) -> Callable[[Any, Any], None]:
    """Return a function that notes the outcome of a record."""

    def note(error: Any, message: Any) -> None:
        if error is None:
            history.end(number, offset=message.offset())
        else:
            history.end(number, "info", error=error.name())

    return note


class Copier:
    """The copier.

    Args:
        servers: of the cluster, with commas.
        transactional_id: of the producer.
        group: its offsets say how far the copy is.
        source: the topic that is read.
        target: the topic that is written.
        partitions: how many the target has; a record of partition 0 goes to partition 0, and so on.
        assigned: the partition that is read; none: what the group assigns (KIP-447).
        size: limit of the records of a transaction.
        history: a file for what it does, or none.
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
        history: str | None = None,
    ) -> None:
        self._history, self._is_recorded, self._group = History(history, transactional_id), history is not None, group
        self._servers, self._transactional_id = servers, transactional_id
        self._target, self._partitions, self._size = target, partitions, size
        self._read: list[Any] = []
        self._has_moved = False
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
                **DEBUG,
            }
        )
        if assigned is None:
            self._consumer.subscribe([source], self._assigned, on_revoke=self._forget, on_lost=self._forget)
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
                **DEBUG,
            }
        )
        retried(lambda: producer.init_transactions(LIMIT_SECONDS))
        return producer

    @property
    def _transaction(self) -> str:
        """The name in the history of the transaction that takes the next reads."""
        return f"{self._history.process}-{self._transactions + 1}"

    def _assigned(self, _: Any, __: Any) -> None:
        """Remember that positions may be anywhere."""
        self._has_moved = True

    def _poll(self) -> Any:
        """Return a record, or None.

        If partitions were assigned meanwhile the record was read after that: the poll's line comes behind it.
        """
        number = self._history.invoke("poll", transaction=self._transaction)
        message = self._consumer.poll(0.05)
        if self._has_moved:
            self._has_moved = False
            self._history.end(self._history.invoke("assign"))
            number = self._history.invoke("poll", transaction=self._transaction)
        if message is not None and message.error() is None:
            seen = [message.topic(), message.partition(), message.offset(), message.value().decode()]
            self._history.end(number, records=[seen])
        return message

    def _forget(self, _: Any, __: Any) -> None:
        """Drop records of partitions that are another member's now."""
        self._read.clear()

    def run(self) -> None:
        """Copy until stdin ends."""
        while not self._ends.is_set():
            message = self._poll()
            if message is not None and message.error() is None:
                self._read.append(message)
            if self._read and (message is None or len(self._read) >= self._size):
                metadata = self._consumer.consumer_group_metadata()
                messages, self._read = self._read, []
                self._transact(messages, metadata)
        self._consumer.close()

    def _transact(self, messages: list[Any], metadata: Any) -> None:
        name = self._transaction
        self._transactions += 1
        try:
            aborts = self._transactions % ABORT_EVERY == 0
            self._copy(messages, metadata, name)
            if aborts:
                self._producer.flush(LIMIT_SECONDS)
                self._abort(name)
            else:
                commit = partial(retried, lambda: self._producer.commit_transaction(LIMIT_SECONDS))
                self._history.noted(commit, "commit", transaction=name)
                self._copied += len(messages)
        except confluent_kafka.KafkaException as problem:
            print(f"{name}: {problem}", file=sys.stderr, flush=True)
            self._give_up(name, problem)
        print(json.dumps({"transactions": self._transactions, "copied": self._copied}), flush=True)

    def _copy(self, messages: list[Any], metadata: Any, name: str) -> None:
        self._producer.begin_transaction()
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            self._send(message.value(), message.partition() % self._partitions, name)
            ends[message.topic(), message.partition()] = message.offset() + 1
        offsets = [confluent_kafka.TopicPartition(*at, offset) for at, offset in ends.items()]
        watch = threading.Timer(STUCK_SECONDS, partial(begin_as_a_new_process, STUCK))
        watch.start()
        try:
            send = partial(
                retried, lambda: self._producer.send_offsets_to_transaction(offsets, metadata, LIMIT_SECONDS)
            )
            positions = {f"{topic}-{partition}": offset for (topic, partition), offset in ends.items()}
            self._history.noted(send, "send-offsets", transaction=name, group=self._group, offsets=positions)
        finally:
            watch.cancel()

    def _send(self, value: bytes, partition: int, name: str) -> None:
        if self._is_recorded:
            value += f"#{name}".encode()
        where = {"topic": self._target, "partition": partition, "value": value.decode()}
        number = self._history.invoke("send", transaction=name, **where)
        on_delivery = delivered(self._history, number)
        self._producer.produce(self._target, value, partition=partition, on_delivery=on_delivery)

    def _abort(self, name: str) -> None:
        abort = partial(retried, lambda: self._producer.abort_transaction(LIMIT_SECONDS))
        self._history.noted(abort, "abort", transaction=name)
        self._rewind()

    def _give_up(self, name: str, problem: Any) -> None:
        """Abort; or begin as a new producer if this one is fenced, perhaps by its own transaction's timeout."""
        try:
            if not problem.args[0].fatal():
                self._abort(name)
                return
        except confluent_kafka.KafkaException as another:
            print(f"{name}: {another}", file=sys.stderr, flush=True)
            if not another.args[0].fatal():
                raise
        self._producer = self._new_producer()
        self._rewind()

    def _rewind(self) -> None:
        """Read on from the committed positions."""
        assigned = self._consumer.assignment()
        if not assigned:
            return
        begun = self._history.invoke("read-offsets", group=self._group)
        found = self._committed(assigned)
        positions = {f"{one.topic}-{one.partition}": one.offset for one in found if one.offset >= 0}
        self._history.end(begun, offsets=positions)
        self._has_moved = True
        for one in found:
            offset = one.offset if one.offset >= 0 else confluent_kafka.OFFSET_BEGINNING
            self._consumer.seek(confluent_kafka.TopicPartition(one.topic, one.partition, offset))
        self._read.clear()

    def _committed(self, assigned: list[Any]) -> list[Any]:
        """Return the committed positions, again if the coordinator moves."""
        while True:
            try:
                return list(self._consumer.committed(assigned, LIMIT_SECONDS))
            except confluent_kafka.KafkaException as problem:
                print(f"committed positions: {problem}", file=sys.stderr, flush=True)
                self._ends.wait(PAUSE_SECONDS)


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
