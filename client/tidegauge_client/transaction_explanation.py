"""Explain why a transactional id is as it is: facts in, sentences out, each with Kafka's rule. Pure.

Rules (as in ``explanation``): every sentence follows from the facts and names its rule. An unknown fact is called
unknown. A sentence about time names an upper bound. Source: TransactionCoordinator, TransactionStateManager and
TransactionMarkerChannelManager of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegauge.counted import counted
from tidegauge.errors import ErrorCode
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge_client.admin_transactions import TransactionDescription
from tidegauge_client.group_explanation import OffsetsPartition as StatePartition
from tidegauge_client.sentences import Sentence
from tidegauge_client.transaction_words import (
    DEFAULT_ABORT_INTERVAL_MS,
    RULE_LAST_STABLE_OFFSET,
    RULE_MARKERS,
    RULE_TIMEOUT,
    ago,
    decision_of,
    producer_words,
    timeout_words,
)

RULE_COORDINATOR = (
    "the coordinator of a transactional id is the leader of the partition of __transaction_state to which the id "
    "hashes (TransactionStateManager.partitionFor)"
)
RULE_CREATE = (
    "the first FindCoordinator of a transactional id creates __transaction_state, with "
    "transaction.state.log.replication.factor replicas"
)
RULE_LOAD = (
    "a new leader reads the whole partition before it serves its ids: COORDINATOR_LOAD_IN_PROGRESS "
    "(TransactionStateManager.loadTransactionsForTxnTopicPartition)"
)
RULE_MIN_ISR = (
    "every change of a transaction is appended with acks=all, and below min.insync.replicas producers get "
    "COORDINATOR_NOT_AVAILABLE (TransactionStateManager.appendTransactionToLog)"
)
RULE_UNKNOWN = (
    "an id comes into being with InitProducerId, and is removed when it was not used for "
    "transactional.id.expiration.ms (TransactionStateManager.removeExpiredTransactionalIds)"
)
RULE_ONGOING = (
    "a transaction begins with its first partition, and ends with EndTxn, a new producer of the id, or a timeout"
)
RULE_EPOCHS = (
    "each EndTxn of version 5 raises the producer's epoch, so that a late request is fenced; earlier versions name no "
    "transaction, and a late one ends the next (TransactionCoordinator.endTransaction; KIP-890, part 2)"
)
V1, V2 = 1, 2
"""The versions of transactions; v2 may be spoken from that level of transaction.version on."""
RULE_BUSY = (
    "until every marker is written, the id's producers get CONCURRENT_TRANSACTIONS "
    "(TransactionCoordinator.handleAddPartitionsToTransaction)"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A partition of the transaction.

    Attributes:
        leader: None: it has none, or the leader is not alive.
        start_offset: the first offset of the producer's open transaction there; None: none is open there.
        problem: why its leader did not say; empty if it did.
    """

    at: TopicPartition
    leader: int | None
    start_offset: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TransactionFacts:
    """The known facts of a transactional id.

    Attributes:
        partition: of __transaction_state that holds it; None: there is no such topic.
        live: registered brokers.
        transaction: what its coordinator says; None: it says nothing, and ``problem`` why.
        problem: the error of the coordinator, or that it does not respond.
        places: the partitions of the transaction; of a decided one, those without a marker.
        now_ms: when it was asked for, in ms since 1970.
        interval_ms: between two looks of the coordinator for timed-out transactions.
        transaction_version: the level of the feature in the cluster; None: it has no features, or it is not known.
        spoken_version: of transactions, that the producer of the last one speaks, 1 or 2. 0: the id's producer has
            begun none yet; None: not known.
    """

    transactional_id: str
    partition: StatePartition | None
    live: frozenset[int] = frozenset()
    transaction: TransactionDescription | None = None
    problem: ErrorCode = ErrorCode.NONE
    places: Sequence[Place] = ()
    now_ms: int = 0
    interval_ms: int = DEFAULT_ABORT_INTERVAL_MS
    transaction_version: int | None = None
    spoken_version: int | None = None


def explain_transaction(facts: TransactionFacts) -> list[Sentence]:
    """Explain the coordinator, the state of the transaction, and what its partitions wait for."""
    return [*_coordinator(facts), *_state(facts), *_version(facts)]


def _coordinator(facts: TransactionFacts) -> Iterator[Sentence]:
    held = facts.partition
    if held is None:
        yield Sentence(
            "coordinator",
            f"There is no __transaction_state yet, so no broker coordinates transactional id {facts.transactional_id}.",
            RULE_CREATE,
            "a transactional producer; while fewer brokers are alive than the topic has replicas, it gets "
            "COORDINATOR_NOT_AVAILABLE",
        )
        return
    if held.leader is None:
        yield Sentence(
            "coordinator",
            f"{held.at}, to which the transactional id {facts.transactional_id} hashes, has no leader: "
            f"{held.living(facts.live)}. Its producers get COORDINATOR_NOT_AVAILABLE, and an open transaction stays "
            "open.",
            RULE_COORDINATOR,
            f"a leader of {held.at}: `tidegauge explain {held.at}`",
        )
        return
    where = (
        f"Broker {held.leader} leads {held.at}, to which the transactional id {facts.transactional_id} hashes, in "
        f"epoch {held.leader_epoch}"
    )
    if facts.problem is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        text, rule, change = f"{where}, and still loads the ids of that partition.", RULE_LOAD, "the end of the load"
    elif facts.problem is ErrorCode.LISTENER_NOT_FOUND:
        text = (
            f"{where}: it is the coordinator. It is an Apache Kafka broker without a gRPC listener, so the state of "
            "the id is not known here."
        )
        rule, change = RULE_COORDINATOR, "Kafka's own tools ask it: kafka-transactions.sh describe"
    elif facts.transaction is None and facts.problem is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        text = f"{where}, and does not coordinate it at the moment: {facts.problem.name}."
        rule = RULE_COORDINATOR
        change = (
            f"a response of broker {held.leader}, or, if its process is dead, another leader when its "
            f"session has ended: `tidegauge explain {held.at}`"
        )
    elif facts.transaction is not None and facts.transaction.coordinator != held.leader:
        text = (
            f"{where}. The rest is from broker {facts.transaction.coordinator}, which takes itself for the "
            "coordinator, and may be old."
        )
        rule, change = RULE_COORDINATOR, f"a response of broker {held.leader}"
    else:
        text, rule, change = f"{where}: it is the coordinator.", RULE_COORDINATOR, ""
    yield Sentence("coordinator", text, rule, change)
    if held.shortage:
        yield Sentence(
            "state-topic",
            f"No transaction can begin or end: {held.shortage}.",
            RULE_MIN_ISR,
            f"more replicas in sync: `tidegauge explain {held.at}`",
        )


def _state(facts: TransactionFacts) -> Iterator[Sentence]:
    found = facts.transaction
    if found is None:
        if facts.problem is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            yield Sentence(
                "transaction",
                f"The coordinator does not know transactional id {facts.transactional_id}.",
                RULE_UNKNOWN,
                "a producer with this id",
            )
        return
    who = producer_words(found.producer_id, found.producer_epoch, None)
    if found.state == "Ongoing":
        yield from _ongoing(facts, found, who)
    elif decision := decision_of(found):
        yield from _decided(facts, found, who, decision)
    else:
        ends = {"CompleteCommit": "was committed", "CompleteAbort": "was aborted"}
        # A new producer of the id is in state Empty, whatever transactions earlier ones have had.
        ended = ends.get(found.state)
        last = "this producer has begun none yet" if ended is None else f"its last transaction {ended}"
        yield Sentence("transaction", f"The id belongs to {who}; no transaction is open, and {last}.", RULE_UNKNOWN, "")


def _version(facts: TransactionFacts) -> Iterator[Sentence]:
    if facts.transaction_version is None or facts.transaction is None:
        return
    level, spoken = facts.transaction_version, facts.spoken_version
    text = f"The cluster's transaction.version is {level}"
    change = ""
    if spoken == V2:
        text += ", and the producer of the last transaction speaks transactions v2: its epoch rises with each end."
    elif level < V2:
        text += ": its producers speak transactions v1, and keep their epochs."
        change = f"`tidegauge upgrade-features --feature transaction.version={V2}`, for clients that speak v2"
    elif spoken == V1:
        text += (
            ", but the producer of the last transaction speaks transactions v1, as librdkafka up to 2.16 does: it "
            "keeps its epoch."
        )
        change = "a producer that speaks v2"
    else:
        text += (
            ": a producer that speaks transactions v2 gets a higher epoch with each end, and one of v1, such as "
            "librdkafka up to 2.16, keeps its epoch. "
        )
        text += (
            "DescribeTransactions does not say which of them this one is, and the coordinator has no Lab service that "
            "does."
            if spoken is None
            else "Which of them this one is shows with its first transaction."
        )
    yield Sentence("transaction", text, RULE_EPOCHS, change)


def _ongoing(facts: TransactionFacts, found: TransactionDescription, who: str) -> Iterator[Sentence]:
    yield Sentence(
        "transaction",
        f"A transaction of {who} has been open since {ago(found.start_time_ms, facts.now_ms)}, with "
        f"{counted(len(found.partitions), 'partition')}.",
        RULE_ONGOING,
        "a commit or abort of its producer, or a new producer of the id, which aborts it",
    )
    obstacle = "" if facts.partition is None else facts.partition.shortage
    text, wait_ms = timeout_words(found, facts.now_ms, facts.interval_ms, obstacle)
    yield Sentence("transaction", text, RULE_TIMEOUT, "that time", wait_ms=wait_ms)
    for place in facts.places:
        if place.start_offset is not None:
            yield Sentence(
                "partition",
                f"read_committed readers of {place.at} get nothing from {place.start_offset} on, where the transaction "
                "begins.",
                RULE_LAST_STABLE_OFFSET,
                "the end of the transaction",
                str(place.at),
            )
        elif place.leader is None:
            yield Sentence(
                "partition",
                f"{place.at} is in the transaction, and has no leader: whether it has a record of it is not known.",
                RULE_ONGOING,
                f"a leader: `tidegauge explain {place.at}`",
                str(place.at),
            )
        elif place.problem:
            yield _unknown(place)
        else:
            yield Sentence(
                "partition",
                f"{place.at} is in the transaction, and has no record of it.",
                RULE_ONGOING,
                "",
                str(place.at),
            )


def _decided(facts: TransactionFacts, found: TransactionDescription, who: str, decision: str) -> Iterator[Sentence]:
    count = len(found.partitions)
    yield Sentence(
        "transaction",
        f"The {decision} of the transaction of {who} is decided, and {count} partition{_have(count)} not acknowledged "
        "the marker. Its producers get CONCURRENT_TRANSACTIONS meanwhile.",
        RULE_BUSY,
        "the markers",
    )
    for place in facts.places:
        if place.leader is None:
            yield Sentence(
                "partition",
                f"{place.at} has no leader: its marker waits for one.",
                RULE_MARKERS,
                f"a leader: `tidegauge explain {place.at}`",
                str(place.at),
            )
        elif place.problem:
            yield _unknown(place)
        else:
            written = "is not written" if place.start_offset is not None else "is written, or there is no record of it,"
            yield Sentence(
                "partition",
                f"The marker of {place.at} {written} and broker {place.leader} has not acknowledged it.",
                RULE_MARKERS,
                f"broker {place.leader}, and followers that copy the marker: `tidegauge explain {place.at}`",
                str(place.at),
            )


def _unknown(place: Place) -> Sentence:
    return Sentence(
        "partition",
        f"Of {place.at} nothing is known: {place.problem}.",
        RULE_MARKERS,
        f"`tidegauge explain {place.at}` says more",
        str(place.at),
    )


def _have(count: int) -> str:
    return " has" if count == 1 else "s have"
