"""The script of transactional requests, right and wrong, that ``differential_transactions`` plays on both sides.

Each part uses transactional ids of its own and leaves no transaction open. Each response becomes a fact
(``tests.wire_responses.probe``); partitions are written to in one order only, so both sides leave the same logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.wire_responses.groups import commit, committed, coordinator, join
from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import produced
from transaction_requests import LEADER, TOPIC, Transactional

FIRST, SECOND = (TOPIC, 0), (TOPIC, 1)
UNKNOWN = 424_242
INTERNAL = ("__consumer_offsets", 0)
GROUP = "copiers"


def _cases(probe: Probe, name: str, at: int, version: int, requests: Mapping[str, Any]) -> None:
    for which, request in requests.items():
        probe.case(f"{name}: {which}, v{version}", at, version, request)


def initializations(probe: Probe) -> None:
    """InitProducerId: its checks in their order, the epochs that it gives, and what it does to an open transaction."""
    probe.say("InitProducerId")
    one = Transactional(probe, "initializations")
    one.begin()
    at = one.coordinator
    probe.note("first epoch", one.epoch)
    for version in range(5):
        refused = {
            "empty id": one.init(transactional_id=""),
            "timeout 0": one.init(transaction_timeout_ms=0),
            "timeout -1": one.init(transaction_timeout_ms=-1),
            "timeout too large": one.init(transaction_timeout_ms=900_001),
            "empty id and timeout 0": one.init(transactional_id="", transaction_timeout_ms=0),
        }
        _cases(probe, "InitProducerId", at, version, refused)
        probe.case(f"InitProducerId: expects nothing, v{version}", at, version, one.init())
    for version in (3, 4):
        refused = {
            "producer id without epoch": one.expecting(epoch=-1),
            "epoch without producer id": one.expecting(producer_id=-1),
            "another producer id": one.expecting(producer_id=UNKNOWN),
            "old epoch": one.expecting(epoch=0),
            "epoch not given yet": one.expecting(epoch=77),
            "no transactional id, with an epoch": one.expecting(transactional_id=None),
        }
        _cases(probe, "InitProducerId", at, version, refused)
    stranger = next(broker for broker in probe.brokers if broker != at)
    _cases(probe, "InitProducerId", stranger, 4, {"at another broker": one.init()})
    one.begin()
    epoch = one.epoch
    _cases(probe, "InitProducerId", at, 4, {"its own epoch": one.expecting(), "its own epoch again": one.expecting()})
    _cases(probe, "InitProducerId", at, 4, {"an unknown id, with an epoch": Transactional(
        probe, "unknown-with-epoch"
    ).expecting(producer_id=UNKNOWN, epoch=5)})  # fmt: skip
    one.begin()
    probe.note("InitProducerId: epochs given meanwhile", one.epoch - epoch)
    one.added(FIRST)
    probe.case("InitProducerId: while a transaction is open", at, 4, one.init())
    one.completed()
    found = probe.case("InitProducerId: after its abort", at, 4, one.init())
    probe.note("InitProducerId: the epoch rises by two", found.producer_epoch - one.epoch)
    one.begin()
    one.added(FIRST)
    probe.case("InitProducerId: with its epoch while a transaction is open", at, 4, one.expecting())
    one.completed()
    probe.case("InitProducerId: with its epoch after the abort", at, 4, one.expecting())


def additions(probe: Probe) -> None:
    """AddPartitionsToTxn and AddOffsetsToTxn of clients."""
    probe.say("AddPartitionsToTxn, AddOffsetsToTxn")
    one = Transactional(probe, "additions")
    one.begin()
    one.begin()
    at = one.coordinator
    stranger = next(broker for broker in probe.brokers if broker != at)
    for version in range(4):
        refused = {
            "empty id": one.add(FIRST, transactional_id=""),
            "unknown id": one.add(FIRST, transactional_id="unknown"),
            "another producer id": one.add(FIRST, producer_id=UNKNOWN),
            "old epoch": one.add(FIRST, epoch=one.epoch - 1),
            "epoch not given yet": one.add(FIRST, epoch=one.epoch + 1),
            "another producer id and old epoch": one.add(FIRST, producer_id=UNKNOWN, epoch=one.epoch - 1),
            "unknown topic beside a known one": one.add(("nope", 0), FIRST),
            "unknown partition beside a known one": one.add((TOPIC, 9), FIRST),
            "internal topic of an unknown id": one.add(INTERNAL, transactional_id="unknown"),
            "nothing": one.add(),
        }
        _cases(probe, "AddPartitionsToTxn", at, version, refused)
        offsets = {
            "empty id": one.add_offsets(GROUP, transactional_id=""),
            "unknown id": one.add_offsets(GROUP, transactional_id="unknown"),
            "another producer id": one.add_offsets(GROUP, UNKNOWN),
            "old epoch": one.add_offsets(GROUP, epoch=one.epoch - 1),
            "epoch not given yet": one.add_offsets(GROUP, epoch=one.epoch + 1),
        }
        _cases(probe, "AddOffsetsToTxn", at, version, offsets)
    _cases(probe, "AddPartitionsToTxn", stranger, 3, {"at another broker": one.add(FIRST)})
    _cases(probe, "AddOffsetsToTxn", stranger, 3, {"at another broker": one.add_offsets(GROUP)})
    added = {
        "first": one.add(FIRST),
        "again": one.add(FIRST),
        "one more": one.add(FIRST, SECOND),
        "a part": one.add(SECOND),
    }
    _cases(probe, "AddPartitionsToTxn", at, 3, added)
    _cases(probe, "AddOffsetsToTxn", at, 3, {"first": one.add_offsets(GROUP), "again": one.add_offsets(GROUP)})
    _cases(probe, "AddOffsetsToTxn", at, 3, {"empty group": one.add_offsets("")})
    describe(probe, "open, with partitions of two topics", one)
    one.ended()
    for version in range(4):
        probe.case(f"AddPartitionsToTxn: v{version}", at, version, one.add(FIRST))
        one.ended(commit=False)
        probe.case(f"AddOffsetsToTxn: v{version}", at, version, one.add_offsets(GROUP))
        one.ended(commit=version % 2 == 0)


def verifications(probe: Probe) -> None:
    """AddPartitionsToTxn among brokers: several transactions in one request, and verifications."""
    probe.say("verifications")
    one, other = Transactional(probe, "verifications"), Transactional(probe, "verifications")
    one.begin()
    other.producer_id, other.epoch = one.producer_id, one.epoch
    at = one.coordinator

    def ask(which: str, version: int, *transactions: dict[str, Any]) -> None:
        request = message("AddPartitionsToTxn", transactions=list(transactions))
        probe.case(f"among brokers: {which}, v{version}", at, version, request, _in_order)

    for version in (4, 5):
        if not probe.versions[24][1] >= version:
            continue
        ask("in no transaction", version, one.among_brokers(FIRST))
        ask("unknown id", version, one.among_brokers(FIRST, transactional_id="unknown"))
        ask("empty id", version, one.among_brokers(FIRST, transactional_id=""))
        ask("another producer id", version, one.among_brokers(FIRST, producer_id=UNKNOWN))
        ask("old epoch", version, one.among_brokers(FIRST, epoch=one.epoch + 1))
        ask("two of one id", version, one.among_brokers(FIRST), one.among_brokers(SECOND))
        ask("unknown topic", version, one.among_brokers(("nope", 0)))
        ask("unknown topic, added", version, one.among_brokers(("nope", 0), FIRST, verify_only=False))
        ask("added", version, one.among_brokers(FIRST, verify_only=False))
        ask("present and absent", version, one.among_brokers(FIRST, SECOND))
        ask(
            "present, and an unknown id",
            version,
            one.among_brokers(FIRST),
            one.among_brokers(FIRST, transactional_id="x"),
        )
        one.ended(commit=False)


def _in_order(response: Any) -> Any:
    """Return the response with a topic's partitions sorted, as Kafka's order is random."""
    for transaction in response.results_by_transaction:
        for topic in transaction.topic_results:
            topic.results_by_partition = sorted(topic.results_by_partition, key=lambda one: int(one.partition_index))
    return response


def writes(probe: Probe) -> None:
    """Produce of transactional batches: what must be added first, epochs, sequences, and batches of other kinds."""
    probe.say("Produce")
    one = Transactional(probe, "writes")
    one.begin()
    one.begin()

    def case(which: str, request: Any, version: int = 9, at: int = LEADER) -> None:
        probe.case(f"Produce: {which}, v{version}", at, version, request, produced)

    for version in (3, 9, 11):
        if version <= probe.versions[0][1]:
            case("in no transaction", one.write(sequence=0), version)
            case("without the transactional id", one.write(sequence=0, transactional_id=None), version)
            case("another transactional id", one.write(sequence=0, transactional_id="unknown"), version)
            case("old epoch, in no transaction", one.write(sequence=0, epoch=one.epoch - 1), version)
            case("another producer id", one.write(sequence=0, producer_id=UNKNOWN), version)
    one.added(FIRST)
    case("another partition", one.write(sequence=0, at=SECOND), 9, 1)
    case("a sequence that is not the first", one.write(sequence=3))
    case("first", one.write())
    case("repeated", one.write(sequence=0))
    case("a gap", one.write(sequence=5))
    case("next", one.write(3))
    case("old epoch", one.write(sequence=4, epoch=one.epoch - 1))
    case("no transactional batch in the open transaction", one.write(sequence=4, attributes=0))
    case("control batch", one.write(sequence=4, attributes=0x30))
    case("no sequence", one.write(sequence=-1))
    one.ended()
    case("repeated after the end", one.write(sequence=1, count=3))
    one.added(FIRST)
    case("of the next transaction", one.write())
    one.ended(commit=False)
    plain = one.write(sequence=5, attributes=0)
    case("no transactional batch outside of transactions", plain)


def ends(probe: Probe) -> None:
    """EndTxn in each state, and late ends."""
    probe.say("EndTxn")
    one = Transactional(probe, "ends")
    one.begin()
    one.begin()
    at = one.coordinator
    stranger = next(broker for broker in probe.brokers if broker != at)
    for version in range(4):
        refused = {
            "empty id": one.end(transactional_id=""),
            "unknown id": one.end(transactional_id="unknown"),
            "another producer id": one.end(producer_id=UNKNOWN),
            "old epoch": one.end(epoch=one.epoch - 1),
            "epoch not given yet": one.end(epoch=one.epoch + 1),
            "commits nothing": one.end(),
            "aborts nothing": one.end(commit=False),
        }
        _cases(probe, "EndTxn", at, version, refused)
    _cases(probe, "EndTxn", stranger, 3, {"at another broker": one.end()})
    for version in range(4):
        for commits in (True, False):
            one.added(FIRST)
            if version:
                one.written()
            word = "commits" if commits else "aborts"
            probe.case(f"EndTxn: {word}, v{version}", at, version, one.end(commit=commits))
            one.completed()
            again = {"repeated": one.end(commit=commits), "the other": one.end(commit=not commits)}
            _cases(probe, f"EndTxn: after one that {word}", at, version, again)
            describe(probe, f"{word}, v{version}", one)
    one.added(FIRST, SECOND)
    one.written(2)
    one.ended()
    one.added(FIRST)
    one.written(2)
    probe.case("EndTxn: a late repeat ends the next transaction", at, 3, one.end())
    one.completed()


def offsets(probe: Probe) -> None:
    """TxnOffsetCommit and what readers of offsets see, with members and without."""
    probe.say("TxnOffsetCommit")
    one = Transactional(probe, "offsets")
    one.begin()
    at = coordinator(probe, GROUP)
    stranger = next(broker for broker in probe.brokers if broker != at)
    newest = probe.versions[28][1]
    asked = committed(GROUP, {TOPIC: [0]})
    probe.wait_for(lambda: probe.ask(at, 8, asked).groups[0].error_code == 0, "the group's coordinator has loaded")
    for version in range(newest + 1):
        refused = {
            "in no transaction": one.commit_offset(GROUP),
            "unknown topic": one.commit_offset(GROUP, topic="nope"),
            "unknown partition": one.commit_offset(GROUP, partition=9),
            "empty group": one.commit_offset(""),
            "unknown id": one.commit_offset(GROUP, transactional_id="unknown"),
        }
        _cases(probe, "TxnOffsetCommit", at, version, refused)
        _cases(probe, "TxnOffsetCommit", stranger, version, {"at another broker": one.commit_offset(GROUP)})
    probe.ask(one.coordinator, 3, one.add_offsets(GROUP))
    fenced = {
        "unknown member": one.commit_offset(GROUP, generation_id=1, member_id="x"),
        "a generation of no member": one.commit_offset(GROUP, generation_id=5),
        "a member without generation": one.commit_offset(GROUP, member_id="x"),
        "an instance": one.commit_offset(GROUP, group_instance_id="i", member_id="x", generation_id=1),
        "metadata too large": one.commit_offset(GROUP, committed_metadata="m" * 4_097),
        "another producer id": one.commit_offset(GROUP, producer_id=UNKNOWN),
    }
    _cases(probe, "TxnOffsetCommit", at, 3, {"epoch not given yet": one.commit_offset(GROUP, epoch=one.epoch + 1)})
    for version in (3, newest):
        _cases(probe, "TxnOffsetCommit of an empty group", at, version, fenced)
    _pending_offsets(one, at)
    _offsets_of_a_member(one, at)


def _pending_offsets(one: Transactional, at: int) -> None:
    probe = one.probe
    _cases(probe, "TxnOffsetCommit", at, 3, {"first": one.commit_offset(GROUP), "null metadata": one.commit_offset(
        GROUP, 4, committed_metadata=None
    ), "again": one.commit_offset(GROUP, 7, committed_metadata="seven")})  # fmt: skip

    def looks(when: str) -> None:
        wanted = {TOPIC: [0, 1]}
        probe.case(f"OffsetFetch {when}", at, 8, committed(GROUP, wanted))
        probe.case(f"OffsetFetch {when}, stable", at, 8, committed(GROUP, wanted, require_stable=True))
        probe.case(f"OffsetFetch of all {when}, stable", at, 8, committed(GROUP, None, require_stable=True))

    looks("of pending offsets")
    one.ended()
    looks("after the commit")
    probe.ask(one.coordinator, 3, one.add_offsets(GROUP))
    probe.case("TxnOffsetCommit: to be aborted", at, 3, one.commit_offset(GROUP, 9))
    probe.case("OffsetCommit beside a pending offset", at, 8, commit(GROUP, -1, "", topic=TOPIC))
    looks("of a pending offset after a plain one")
    one.ended(commit=False)
    looks("after the abort")
    probe.ask(one.coordinator, 3, one.add_offsets(GROUP))
    probe.case("TxnOffsetCommit: before a plain commit", at, 3, one.commit_offset(GROUP, 11))
    probe.case("OffsetCommit that is newer", at, 8, commit(GROUP, -1, "", topic=TOPIC, committed_offset=12))
    one.ended()
    looks("after both were committed")


def _offsets_of_a_member(one: Transactional, at: int) -> None:
    """KIP-447: generation, member and instance fence."""
    probe = one.probe
    named = probe.ask(at, 5, join(GROUP)).member_id
    probe.ask(at, 5, join(GROUP, named))
    synced = {"group_id": GROUP, "generation_id": 1, "member_id": named}
    probe.ask(one.coordinator, 3, one.add_offsets(GROUP))
    mine = {"generation_id": 1, "member_id": named}
    cases = {
        "before the assignment": one.commit_offset(GROUP, 20, **mine),
        "older generation": one.commit_offset(GROUP, 21, **mine | {"generation_id": 0}),
        "later generation": one.commit_offset(GROUP, 21, **mine | {"generation_id": 2}),
        "unknown member": one.commit_offset(GROUP, 21, **mine | {"member_id": "x"}),
        "no member named": one.commit_offset(GROUP, 22),
        "an instance that there is not": one.commit_offset(GROUP, 21, **mine, group_instance_id="i"),
    }
    _cases(probe, "TxnOffsetCommit of a member", at, 3, cases)
    probe.ask(at, 5, message("SyncGroup", **synced, assignments=[{"member_id": named, "assignment": b"a"}]))
    stable = {
        "in its generation": one.commit_offset(GROUP, 23, **mine),
        "in v2, which names none": one.commit_offset(GROUP, 24),
    }
    _cases(probe, "TxnOffsetCommit of a member with an assignment", at, 3, stable)
    one.ended()
    probe.case("OffsetFetch of a group with a member", at, 8, committed(GROUP, {TOPIC: [0]}, require_stable=True))
    probe.case("LeaveGroup", at, 5, message("LeaveGroup", group_id=GROUP, members=[{"member_id": named}]))


def described(response: Any) -> Any:
    """Return a DescribeTransactions response with sorted partitions."""
    for one in response.transaction_states:
        one.topics = sorted(one.topics, key=lambda topic: str(topic.topic))
        for topic in one.topics:
            topic.partitions = sorted(topic.partitions)
    return response


def describe(probe: Probe, when: str, *ones: Transactional) -> None:
    """Note what DescribeTransactions says of ids of one coordinator."""
    request = message("DescribeTransactions", transactional_ids=[one.id for one in ones])
    probe.case(f"DescribeTransactions: {when}", ones[0].coordinator, 0, request, described)


def timeouts(probe: Probe) -> None:
    """Exceed a transaction's timeout: it is aborted in a higher epoch."""
    probe.say("timeouts")
    one = Transactional(probe, "timeouts")
    one.begin(transaction_timeout_ms=1_000)
    one.added(FIRST)
    one.written(2)
    request = message("DescribeTransactions", transactional_ids=[one.id])

    def is_aborted() -> bool:
        [found] = probe.ask(one.coordinator, 0, request).transaction_states
        return bool(found.transaction_state == "CompleteAbort")

    probe.wait_for(is_aborted, "the transaction is aborted")
    describe(probe, "timed out", one)
    at = one.coordinator
    _cases(probe, "timed out: AddPartitionsToTxn", at, 3, {"of the old epoch": one.add(FIRST)})
    for version in (0, 3):
        _cases(probe, "timed out: EndTxn", at, version, {"aborts": one.end(commit=False), "commits": one.end()})
    probe.case("timed out: Produce", LEADER, 9, one.write(sequence=2), produced)
    _cases(probe, "timed out: InitProducerId", at, 4, {"with its epoch": one.expecting(), "without": one.init()})


PARTS: tuple[Callable[[Probe], None], ...] = (
    initializations,
    additions,
    verifications,
    writes,
    ends,
    offsets,
    timeouts,
)
"""In their order."""
