"""The second half of the script that ``differential_transactions`` plays: what partitions and readers see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import produced
from transaction_requests import FOLLOWER, LEADER, OTHER_TOPIC, READ_COMMITTED, TOPIC, Transactional, marker, read, seen
from transaction_script import described as in_order

COPIES, MORE_COPIES, REST = (OTHER_TOPIC, 0), (OTHER_TOPIC, 1), (TOPIC, 1)
LEFT_OPEN, HANGING = "left-open", "hanging"
LONGEST_MS = 900_000
"""The longest timeout that a transaction may have: the tools take their time."""
BROKERS = 4
"""The kind of a resource: the settings of brokers."""
LATEST, EARLIEST, OF_LARGEST_TIME = -1, -2, -3


def reads(probe: Probe) -> None:
    """Fetch and ListOffsets of both isolation levels, while transactions of two producers are open."""
    probe.say("Fetch, ListOffsets")
    one, other = Transactional(probe, "readers"), Transactional(probe, "other-readers")
    for each in (one, other):
        each.begin()
    one.added(COPIES)
    one.written(2, COPIES)
    _looks(probe, "one is open")
    other.added(COPIES)
    other.written(2, COPIES)
    one.written(1, COPIES)
    one.ended(commit=False)
    _looks(probe, "one aborted, the other is open")
    one.added(COPIES)
    one.written(1, COPIES)
    other.ended(commit=False)
    _looks(probe, "both aborted, the next is open")
    one.ended()
    other.added(COPIES)
    other.written(1, COPIES)
    other.ended(commit=False)
    _looks(probe, "all are over")
    end = probe.ask(LEADER, 12, read(at=COPIES)).responses[0].partitions[0].high_watermark
    for offset in range(end + 2):
        for level in (0, READ_COMMITTED):
            request = read(offset, level, COPIES)
            probe.case(f"Fetch from {offset}, level {level}", LEADER, 12, request, seen)
    for version in range(4, 13):
        probe.case(f"Fetch of committed data, v{version}", LEADER, version, read(at=COPIES), seen)
    probe.case("Fetch of few bytes", LEADER, 12, read(at=COPIES, partition_max_bytes=100), seen)


def _looks(probe: Probe, when: str) -> None:
    for level in (0, READ_COMMITTED):
        probe.case(f"Fetch when {when}, level {level}", LEADER, 12, read(0, level, COPIES), seen)
        for timestamp in (LATEST, EARLIEST, OF_LARGEST_TIME, 0):
            items = [{"partition_index": 0, "timestamp": timestamp}]
            topics = [{"name": OTHER_TOPIC, "partitions": items}]
            request = message("ListOffsets", replica_id=-1, isolation_level=level, topics=topics)
            probe.case(f"ListOffsets of {timestamp} when {when}, level {level}", LEADER, 7, request, _found)


def _found(response: Any) -> Any:
    """Return a ListOffsets response without the time, which is a marker's."""
    [item] = response.topics[0].partitions
    return item.error_code, item.offset, item.leader_epoch


def markers(probe: Probe) -> None:
    """WriteTxnMarkers: fenced ids, unknown partitions, several markers, and markers without a transaction."""
    probe.say("WriteTxnMarkers")
    one = Transactional(probe, "markers")
    one.begin()
    one.begin()
    one.added(MORE_COPIES)
    one.written(2, MORE_COPIES)
    at = 1

    def ask(which: str, *wanted: dict[str, Any], broker: int = at) -> None:
        for version in (0, 1):
            if version <= probe.versions[27][1]:
                request = message("WriteTxnMarkers", markers=list(wanted))
                probe.case(f"WriteTxnMarkers: {which}, v{version}", broker, version, request)

    ask("none")
    ask("a marker of no partition", marker(one))
    ask("unknown topic", marker(one, ("nope", 0)))
    ask("unknown partition", marker(one, (OTHER_TOPIC, 9)))
    ask("a partition that the broker follows", marker(one, COPIES))
    ask("old producer epoch", marker(one, MORE_COPIES, producer_epoch=one.epoch - 1))
    ask("abort", marker(one, MORE_COPIES, transaction_result=False))
    ask("another coordinator", marker(one, MORE_COPIES, coordinator_epoch=7))
    ask("old coordinator", marker(one, MORE_COPIES, coordinator_epoch=6))
    ask("coordinator -1", marker(one, MORE_COPIES, coordinator_epoch=-1))
    ask("unknown producer", marker(one, MORE_COPIES, producer_id=one.producer_id + 500))
    ask(
        "two", marker(one, MORE_COPIES, coordinator_epoch=7), marker(one, MORE_COPIES, ("nope", 0), coordinator_epoch=8)
    )
    ask("higher producer epoch", marker(one, MORE_COPIES, coordinator_epoch=8, producer_epoch=one.epoch + 1))
    probe.case("Produce after a marker of a higher epoch", at, 9, one.write(at=MORE_COPIES), produced)
    _producers(probe, "after markers by hand")


def _producers(probe: Probe, when: str) -> None:
    def ask(which: str, broker: int, *topics: dict[str, Any]) -> None:
        request = message("DescribeProducers", topics=list(topics))
        probe.case(f"DescribeProducers {when}: {which}", broker, 0, request, _sorted_producers)

    ask("of the leader", LEADER, {"name": OTHER_TOPIC, "partition_indexes": [0]})
    ask("of a follower", FOLLOWER, {"name": OTHER_TOPIC, "partition_indexes": [0]})
    ask("of two partitions", 1, {"name": OTHER_TOPIC, "partition_indexes": [0, 1]})
    ask("unknown partition", LEADER, {"name": OTHER_TOPIC, "partition_indexes": [0, 9]})
    ask("unknown topic", LEADER, {"name": "nope", "partition_indexes": [0]})
    ask("no topic's name", LEADER, {"name": "not/a topic", "partition_indexes": [0]})
    ask("nothing", LEADER)


def _sorted_producers(response: Any) -> Any:
    """Return the response with a partition's producers sorted, as Kafka's order is random."""
    for topic in response.topics:
        for partition in topic.partitions:
            partition.active_producers = sorted(partition.active_producers, key=lambda producer: producer.producer_id)
    return response


def listings(probe: Probe) -> None:
    """DescribeTransactions and ListTransactions, with their filters."""
    probe.say("DescribeTransactions, ListTransactions")
    one = Transactional(probe, "listed")
    one.begin()
    at = one.coordinator
    stranger = next(broker for broker in probe.brokers if broker != at)

    def described(which: str, *names: str, broker: int = at) -> None:
        request = message("DescribeTransactions", transactional_ids=list(names))
        probe.case(f"DescribeTransactions: {which}", broker, 0, request, in_order)

    described("new", one.id)
    described("empty and unknown", "", "unknown")
    described("none")
    described("twice", one.id, one.id)
    described("at another broker", one.id, broker=stranger)
    one.added(COPIES, MORE_COPIES)
    described("open", one.id)
    filters: dict[str, dict[str, Any]] = {
        "all": {},
        "state Ongoing": {"state_filters": ["Ongoing"]},
        "state in other letters": {"state_filters": ["ongoing"]},
        "unknown state beside a known one": {"state_filters": ["Nope", "Empty"]},
        "unknown state": {"state_filters": ["Nope"]},
        "its producer": {"producer_id_filters": [one.producer_id]},
        "an unknown producer": {"producer_id_filters": [one.producer_id + 500]},
        "its producer in another state": {"producer_id_filters": [one.producer_id], "state_filters": ["Empty"]},
        "an hour": {"duration_filter": 3_600_000},
    }
    for which, wanted in filters.items():
        for version in (0, 1):
            if version == 1 or "duration_filter" not in wanted:
                request = message("ListTransactions", **wanted)
                probe.case(f"ListTransactions: {which}, v{version}", at, version, request, _sorted_transactions)
    probe.case("ListTransactions: at another broker", stranger, 1, message("ListTransactions"))
    one.ended()
    described("committed", one.id)


def _sorted_transactions(response: Any) -> Any:
    response.transaction_states = sorted(response.transaction_states, key=lambda one: str(one.transactional_id))
    return response


def leftovers(probe: Probe) -> None:
    """Leave an open transaction behind, and a hanging one: its coordinator does not know of it."""
    probe.say("open transactions")
    one, hanging = Transactional(probe, LEFT_OPEN), Transactional(probe, HANGING)
    for each in (one, hanging):
        each.begin(transaction_timeout_ms=LONGEST_MS)
    one.added(COPIES)
    one.written(1, COPIES)
    _verify(probe, "false")
    request = hanging.write(1, COPIES, sequence=0)

    def is_written() -> bool:
        [found] = produced(probe.ask(LEADER, 9, request))
        return bool(found.error_code == 0)

    probe.wait_for(is_written, "a leader appends without verification")
    _verify(probe, "true")
    _producers(probe, "with open transactions")


def _verify(probe: Probe, value: str) -> None:
    """Switch verification on all brokers (transaction.partition.verification.enable)."""
    changes = [{"name": "transaction.partition.verification.enable", "config_operation": 0, "value": value}]
    wanted = {"resource_type": BROKERS, "resource_name": "", "configs": changes}
    [found] = probe.ask(probe.controller, 1, message("IncrementalAlterConfigs", resources=[wanted])).responses
    if found.error_code:
        raise RuntimeError(f"IncrementalAlterConfigs: {found.error_message}")


def given_up(probe: Probe) -> None:
    """Have a partition take a higher epoch than the coordinator has: the marker is fenced, and the id stays busy."""
    probe.say("a completion that is given up")
    one = Transactional(probe, "given-up")
    one.begin()
    one.added(REST)
    one.written(1, REST)
    probe.case("Produce: epoch not given yet, in an open transaction", 1, 9, one.write(
        at=REST, sequence=0, epoch=one.epoch + 1
    ), produced)  # fmt: skip
    probe.case("EndTxn: of a partition with a higher epoch", one.coordinator, 3, one.end())
    for request in (one.end(), one.end(commit=False), one.init(), one.add(REST)):
        name = f"{type(request).__name__} of a transaction whose completion was given up"
        probe.note(f"{name} {getattr(request, 'committed', '')}", probe.ask(one.coordinator, 3, request))
    request = message("DescribeTransactions", transactional_ids=[one.id])
    probe.case("DescribeTransactions: given up", one.coordinator, 0, request)


PARTS: tuple[Callable[[Probe], None], ...] = (reads, markers, listings, given_up, leftovers)
"""In their order."""
