"""Facts about requests that name a partition, a topic or a transaction twice, each time with something else to do."""

from __future__ import annotations

from typing import Any

from tests.wire_responses.batches import batch
from tests.wire_responses.groups import TRANSACTION_KEY, committed, coordinator
from tests.wire_responses.probe import CLOSED, Probe, message
from tests.wire_responses.records import LEADER, create, fetch, produce
from tests.wire_responses.settings import APPEND, BROKER_KIND, DELETE, SET, SUBTRACT, TOPIC_KIND, incremental, said
from tests.wire_responses.transactions import CONCURRENT_TRANSACTIONS, NOT_YET, init

NAME = "probe-twice"
GROUP = "probe-group-twice"
ID = "probe-twice"


def named_twice(probe: Probe) -> None:
    """All of them, on a topic of their own; and settings that are changed without a topic."""
    probe.say("what is named twice")
    create(probe, NAME)
    _produces(probe)
    _adds(probe)
    _commits(probe)
    _settings(probe)


def _produces(probe: Probe) -> None:
    """The first batch has one record, the second two: the offsets say which of them were appended."""
    first, second = ({"index": 0, "records": batch(values)} for values in ((b"a",), (b"b", b"c")))
    ways = {
        "a partition twice": [{"name": NAME, "partition_data": [first, second]}],
        "a topic twice": [{"name": NAME, "partition_data": [one]} for one in (first, second)],
    }
    for label, topics in ways.items():
        probe.ask(LEADER, 9, produce(batch(), topic=NAME))  # committed, and so is what came before it
        before = _end(probe)
        request = message("Produce", acks=-1, timeout_ms=5_000, topic_data=topics)
        probe.case(f"Produce {label}", LEADER, 9, request, _produced)
        probe.note(f"Produce {label}: records appended", _end(probe) - before)
        peer = probe.new_peer(LEADER)
        request.acks = 0
        peer.send(9, request)
        after = peer.receive(12, fetch(topic=NAME))
        probe.note(f"Produce {label}, acks 0: the connection afterwards", after if after == CLOSED else "open")
        peer.close()


def _produced(found: Any) -> Any:
    return [
        (topic.name, [(one.index, one.error_code, one.base_offset >= 0) for one in topic.partition_responses])
        for topic in found.responses
    ]


def _end(probe: Probe) -> int:
    request = message(
        "ListOffsets", replica_id=-1, topics=[{"name": NAME, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    )
    return int(probe.ask(LEADER, 7, request).topics[0].partitions[0].offset)


def _commits(probe: Probe) -> None:
    at = coordinator(probe, GROUP)
    probe.again(lambda: probe.ask(at, 8, committed(GROUP, {NAME: [0]})).groups[0], *NOT_YET)
    items = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""} for offset in (5, 6)]
    ways = {
        "a partition twice": [{"name": NAME, "partitions": items}],
        "a topic twice": [{"name": NAME, "partitions": [one]} for one in reversed(items)],
    }
    for label, topics in ways.items():
        request = message("OffsetCommit", group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        probe.case(f"OffsetCommit {label}", at, 8, request)
        probe.case(f"OffsetCommit {label}: committed", at, 8, committed(GROUP, {NAME: [0]}))
        request = message(
            "TxnOffsetCommit", transactional_id=ID, group_id=GROUP, producer_id=1, producer_epoch=0, topics=topics
        )
        probe.case(f"TxnOffsetCommit {label}", at, 3, request)


def _adds(probe: Probe) -> None:
    at = coordinator(probe, ID, TRANSACTION_KEY)
    begun = probe.again(lambda: probe.ask(at, 4, init(transactional_id=ID)), *NOT_YET)
    once = {"name": NAME, "partitions": [0]}
    ways = {
        "a partition twice": [{"name": NAME, "partitions": [0, 0]}],
        "a topic twice": [once, once],
        "a topic twice with two partitions": [once, {"name": NAME, "partitions": [1]}],
        "a topic's nothing": [{"name": NAME, "partitions": []}],
        "an unknown partition twice": [{"name": NAME, "partitions": [9, 9, 0]}],
    }
    for label, topics in ways.items():
        for producer_id, epoch, what in (
            (begun.producer_id, begun.producer_epoch, ""),
            (77, 0, " of another producer"),
        ):
            request = message(
                "AddPartitionsToTxn",
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
            probe.case(f"AddPartitionsToTxn {label}{what}", at, 3, request, _sorted)
        one = {
            "transactional_id": ID, "producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch,
            "verify_only": True, "topics": topics,
        }  # fmt: skip
        probe.case(f"AddPartitionsToTxn v4 {label}", at, 4, message("AddPartitionsToTxn", transactions=[one]), _sorted)
    both = message("AddPartitionsToTxn", transactions=[one | {"topics": [once]}] * 2)
    probe.case("AddPartitionsToTxn v4 a transaction twice", at, 4, both)
    end = message(
        "EndTxn",
        transactional_id=ID,
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        committed=False,
    )
    probe.note(
        "AddPartitionsToTxn: the transaction is ended",
        probe.again(lambda: probe.ask(at, 3, end), CONCURRENT_TRANSACTIONS),
    )


def _sorted(found: Any) -> Any:
    """The results of each topic, by partition: Kafka gives some of them in the order of a hash map."""
    listed = [found.results_by_topic_v3_and_below, *(one.topic_results for one in found.results_by_transaction)]
    return [
        [
            (topic.name, sorted((one.partition_index, one.partition_error_code) for one in topic.results_by_partition))
            for topic in topics
        ]
        for topics in listed
    ]


def _settings(probe: Probe) -> None:
    """A setting's defect is found before the missing topic, or afterwards."""
    for operation, how in (("append", APPEND), ("subtract", SUBTRACT), ("set", SET), ("deletion", DELETE)):
        for key in ("retention.ms", "cleanup.policy", "nope"):
            for name in ("nope", "a b"):
                value = None if how == DELETE else "delete"
                request = incremental(TOPIC_KIND, name, (key, how, value))
                probe.case(f"IncrementalAlterConfigs {operation} of {key} at topic {name!r}", 0, 1, request, said)
    for key in ("log.cleaner.threads", "nope"):
        request = incremental(BROKER_KIND, "9", (key, APPEND, "1"))
        probe.case(f"IncrementalAlterConfigs append of {key} at another broker", 0, 1, request, said)
    both = incremental(TOPIC_KIND, "nope", ("retention.ms", APPEND, "1"), ("cleanup.policy", SET, None))
    probe.case("IncrementalAlterConfigs append and a null value at an unknown topic", 0, 1, both, said)
