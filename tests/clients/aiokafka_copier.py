"""Copy a topic in transactions with aiokafka: tests/clients/transactional_copier.py's argument and lines.

aiokafka's ``send_offsets_to_transaction`` takes a group's name and no generation (before KIP-447), so a copier reads
one partition that is its own, under a transactional id of its own. After an error of a transaction the program begins
again as a new process: the next InitProducerId ends an open transaction, and the positions are then the committed ones.

aiokafka 0.14's ``AIOKafkaConsumer.committed`` does not look at the error of a whole OffsetFetch response (KIP-88, from
version 2 on): NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS, which come without partitions, are None to it, as if
nothing had been committed, and for as long as it asks a broker that was the coordinator once. A client reading on
from there copies everything again. ``committed`` below can tell these apart.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from tests.clients.copier_history import History, begin_as_a_new_process
from tests.waiting import until_async

ABORT_EVERY = 3
LIMIT_SECONDS = 60.0


async def committed(admin: Any, group: str, partition: Any) -> int | None:
    """Return a group's committed position at a partition; None if there is none.

    A partition without a position is in the response, with -1; one that is missing there was not looked at, for an
    error of the whole response. The coordinator is looked for each time, until there is one.

    Args:
        admin: an ``AIOKafkaAdminClient``.
        group: its id.
        partition: topic and partition.

    Raises:
        KafkaError: what a retry can't mend.
        AssertionError: no coordinator responds in time.
    """

    async def looked_at() -> Any:
        try:
            found = await admin.list_consumer_group_offsets(group, partitions=[partition])
        except KafkaError as problem:
            if not problem.retriable:
                raise
            return None
        return found.get(partition)

    offset = int((await until_async(looked_at, what="a coordinator responds")).offset)
    return None if offset < 0 else offset


class Copier:
    """The copier; its arguments are the same as for librdkafka's, with ``assigned`` always a partition."""

    def __init__(
        self,
        servers: str,
        transactional_id: str,
        group: str,
        source: str,
        target: str,
        partitions: int,
        assigned: int,
        size: int,
        history: str | None = None,
    ) -> None:
        self._history, self._is_recorded = History(history, transactional_id), history is not None
        self._servers, self._transactional_id, self._group = servers, transactional_id, group
        self._source = aiokafka.TopicPartition(source, assigned)
        self._target, self._partition, self._size = target, assigned % partitions, size
        self._ends = threading.Event()
        self._transactions = self._copied = 0
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()

    def _wait_for_the_end(self) -> None:
        sys.stdin.read()
        self._ends.set()

    async def run(self) -> None:
        """Copy until stdin ends."""
        self._producer: Any = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._servers,
            transactional_id=self._transactional_id,
            transaction_timeout_ms=30_000,
        )
        self._consumer: Any = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            group_id=self._group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            metadata_max_age_ms=5_000,  # a reset asks for no new metadata where the leader has changed
        )
        self._consumer.assign([self._source])
        self._admin: Any = AIOKafkaAdminClient(bootstrap_servers=self._servers)
        async with self._producer, self._consumer:
            try:
                await self._admin.start()
                await self._copy()
            except (KafkaError, TimeoutError) as problem:
                begin_as_a_new_process(repr(problem))
            await self._admin.close()

    async def _copy(self) -> None:
        await self._rewind()
        while not self._ends.is_set():
            begun = self._history.invoke("poll", transaction=self._transaction)
            batches = await self._consumer.getmany(timeout_ms=50, max_records=self._size)
            records = [record for batch in batches.values() for record in batch]
            if records:
                seen = [[one.topic, one.partition, one.offset, one.value.decode()] for one in records]
                self._history.end(begun, records=seen)
                async with asyncio.timeout(LIMIT_SECONDS):
                    await self._transact(records)

    @property
    def _transaction(self) -> str:
        """The name in the history of the transaction that takes the next reads."""
        return f"{self._history.process}-{self._transactions + 1}"

    async def _transact(self, records: list[Any]) -> None:
        name = self._transaction
        self._transactions += 1
        await self._producer.begin_transaction()
        writes = [await self._send(record.value.decode(), name) for record in records]
        for number, written in writes:
            self._history.end(number, offset=(await written).offset)
        if self._transactions % ABORT_EVERY == 0:
            begun = self._history.invoke("abort", transaction=name)
            await self._producer.abort_transaction()
            self._history.end(begun)
            await self._rewind()
        else:
            await self._commit(name, records[-1].offset + 1)
            self._copied += len(records)
        print(json.dumps({"transactions": self._transactions, "copied": self._copied}), flush=True)

    async def _send(self, value: str, name: str) -> tuple[int, Any]:
        """Write a record; return its number in the history and the future of its acknowledgement."""
        value += f"#{name}" if self._is_recorded else ""
        where = {"topic": self._target, "partition": self._partition, "value": value}
        number = self._history.invoke("send", transaction=name, **where)
        return number, await self._producer.send(self._target, value.encode(), partition=self._partition)

    async def _commit(self, name: str, position: int) -> None:
        positions = {f"{self._source.topic}-{self._source.partition}": position}
        begun = self._history.invoke("send-offsets", transaction=name, group=self._group, offsets=positions)
        await self._producer.send_offsets_to_transaction({self._source: position}, self._group)
        self._history.end(begun)
        begun = self._history.invoke("commit", transaction=name)
        await self._producer.commit_transaction()
        self._history.end(begun)

    async def _rewind(self) -> None:
        """Read on from the committed position."""
        begun = self._history.invoke("read-offsets", group=self._group)
        async with asyncio.timeout(LIMIT_SECONDS):
            position = await committed(self._admin, self._group, self._source)
        positions = {} if position is None else {f"{self._source.topic}-{self._source.partition}": position}
        self._history.end(begun, offsets=positions)
        self._history.end(self._history.invoke("assign"))
        self._consumer.seek(self._source, position or 0)


async def main() -> None:
    """Read a copier's arguments from the command line, as JSON."""
    await Copier(**json.loads(sys.argv[1])).run()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KafkaError as problem:  # no broker responds to a new client
        begin_as_a_new_process(repr(problem))
