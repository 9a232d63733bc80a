"""``explain``: transactions at a partition, and a transactional id, against the sentences about them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_client.admin_transactions import ProducerDescription, TransactionDescription
from tidegauge_client.cli.explain_transaction import transaction_headline, transaction_view
from tidegauge_client.explanation import explain
from tidegauge_client.explanation_facts import Facts, Led
from tidegauge_client.open_transaction_explanation import (
    OpenAtPartition,
    PartitionTransactions,
    explain_open_transactions,
)
from tidegauge_client.transaction_explanation import (
    RULE_BUSY,
    RULE_CREATE,
    RULE_EPOCHS,
    RULE_LOAD,
    RULE_MIN_ISR,
    RULE_ONGOING,
    RULE_UNKNOWN,
    Place,
    StatePartition,
    TransactionFacts,
    explain_transaction,
)
from tidegauge_client.transaction_words import (
    RULE_HANGING,
    RULE_LAST_STABLE_OFFSET,
    RULE_MARKERS,
    RULE_TIMEOUT,
    span,
)

AT = TopicPartition("orders", 0)
BEGUN_MS = 1_700_000_000_000  # 22:13:20 UTC
NOW_MS = BEGUN_MS + 20_000
PRODUCER = ProducerDescription(7, 3, 4, BEGUN_MS + 5, 0, 40)
ONGOING = TransactionDescription("copier", 2, "Ongoing", 7, 3, 60_000, BEGUN_MS, (AT,))
OPEN = OpenAtPartition(PRODUCER, ONGOING, interval_ms=10_000)


def said_at(*found: OpenAtPartition, lso: int = 40, hw: int = 50, problem: str = "") -> list[tuple[str, str, str]]:
    known = PartitionTransactions(NOW_MS, found, problem)
    return [(one.text, one.rule, one.change) for one in explain_open_transactions(AT, hw, lso, known)]


def test_an_open_transaction_holds_readers_until_it_ends_or_times_out() -> None:
    """UnifiedLog.lastStableOffset; TransactionCoordinator.abortTimedOutTransactions: start + timeout < now."""
    (standing, rule, _), (timeout, timeout_rule, _) = said_at(OPEN)
    assert standing == (
        "read_committed readers stand still at 40, 10 below the HW 50, because producer 7, epoch 3, transactional id "
        "copier, has had a transaction open since 22:13:20.000 UTC, 20.0 s ago; its first record here is at 40."
    )
    assert timeout == (
        "Its timeout of 60.0 s ends at 22:14:20.000 UTC, in 40.0 s; the coordinator, broker 2, then aborts it with its "
        "next look, within 50.0 s from now."
    )
    assert (rule, timeout_rule) == (RULE_LAST_STABLE_OFFSET, RULE_TIMEOUT)


def test_a_timeout_that_is_over_leaves_one_interval() -> None:
    late = replace(OPEN, transaction=replace(ONGOING, start_time_ms=BEGUN_MS - 100_000))
    assert "Its timeout of 60.0 s is over" in said_at(late)[1][0]
    assert "within 10.0 s from now" in said_at(late)[1][0]


@pytest.mark.parametrize(
    ("transaction", "knows"),
    [
        (None, "no transactional id has this producer"),
        (replace(ONGOING, state="CompleteAbort", partitions=()), "its id is CompleteAbort"),
        (replace(ONGOING, partitions=(TopicPartition("orders", 1),)), "its id is Ongoing"),
    ],
)
def test_a_transaction_that_the_coordinator_does_not_have_hangs(
    transaction: TransactionDescription | None, knows: str
) -> None:
    """KIP-664: neither a client nor a timeout ends it."""
    [(text, rule, change)] = said_at(replace(OPEN, transaction=transaction))
    assert f"that its coordinator does not have ({knows})" in text
    assert "nothing ends it by itself" in text
    assert (rule, change) == (
        RULE_HANGING,
        "tidegauge abort-transaction --topic orders --partition 0 --start-offset 40",
    )


@pytest.mark.parametrize(("state", "decision"), [("PrepareCommit", "commit"), ("PrepareAbort", "abort")])
def test_a_decided_transaction_waits_for_its_marker(state: str, decision: str) -> None:
    [(text, rule, change)] = said_at(replace(OPEN, transaction=replace(ONGOING, state=state)))
    assert f"has a transaction whose {decision} is decided, and whose marker is not written here yet" in text
    assert (rule, change) == (RULE_MARKERS, "the marker of broker 2: `tidegauge explain transaction:copier`")


def test_only_the_earliest_transaction_holds_readers() -> None:
    later = replace(OPEN, producer=PRODUCER._replace(producer_id=8, transaction_start_offset=45))
    texts = [text for text, _, _ in said_at(OPEN, later)]
    assert [("stand still" in text, "Producer 8" in text) for text in texts if "since" in text] == [
        (True, False),
        (False, True),
    ]
    assert "stand still" not in said_at(OPEN, lso=50)[0][0], "one that begins above the HW holds nothing yet"


def test_a_marker_above_the_high_watermark_still_holds_readers() -> None:
    """ProducerStateManager.firstUnstableOffset: completed transactions count until their marker is below the HW."""
    [(text, _, change)] = said_at()
    assert "a transaction that has ended holds it until its marker is below the HW" in text
    assert change == "a higher HW"
    assert said_at(lso=50) == []


def test_what_could_not_be_asked_is_called_unknown() -> None:
    assert "are not known: nobody" in said_at(problem="nobody")[0][0]
    assert said_at(problem="nobody", lso=50) == []
    [(text, _, _)] = said_at(replace(OPEN, transaction=None, problem="loads"))
    assert "could not be asked: loads" in text
    assert "hanging" not in text


def test_the_explanation_of_a_partition_has_them() -> None:
    led = Led(leo=50, hw=50, isr=(1,), maximal_isr=(1,), remotes={}, lso=40)
    facts = Facts(AT, (1,), (1,), 1, 0, frozenset({1}), led=led, transactions=PartitionTransactions(NOW_MS, [OPEN]))
    found = [one for one in explain(facts) if one.about == "transactions"]
    assert [one.wait_ms for one in found] == [None, 50_000]
    assert not any(one.about == "transactions" for one in explain(replace(facts, transactions=None)))


# A transactional id

STATE = StatePartition(TopicPartition("__transaction_state", 4), 2, 1, (2, 0, 1), (2, 0, 1), 2)
FACTS = TransactionFacts("copier", STATE, frozenset({0, 1, 2}), ONGOING, now_ms=NOW_MS)


def said_of(facts: TransactionFacts) -> list[tuple[str, str]]:
    return [(one.text, one.rule) for one in explain_transaction(facts)]


def test_an_ongoing_transaction_has_its_age_its_timeout_and_its_partitions() -> None:
    places = [Place(AT, 1, 40), Place(TopicPartition("orders", 1), 2), Place(TopicPartition("orders", 2), None)]
    found = said_of(replace(FACTS, places=places))
    assert found[0][0] == (
        "Broker 2 leads __transaction_state-4, to which the transactional id copier hashes, in epoch 1: it is the "
        "coordinator."
    )
    assert found[1] == (
        "A transaction of producer 7, epoch 3 has been open since 22:13:20.000 UTC, 20.0 s ago, with 1 partition.",
        RULE_ONGOING,
    )
    assert found[2][1] == RULE_TIMEOUT
    assert [text for text, _ in found[3:]] == [
        "read_committed readers of orders-0 get nothing from 40 on, where the transaction begins.",
        "orders-1 is in the transaction, and has no record of it.",
        "orders-2 is in the transaction, and has no leader: whether it has a record of it is not known.",
    ]


def test_the_level_of_the_cluster_says_which_transactions_there_are() -> None:
    """A cluster in ZooKeeper mode has no level, and nothing is said of it."""
    assert not any(rule == RULE_EPOCHS for _, rule in said_of(FACTS))
    by_level = {
        level: [
            one for one in explain_transaction(replace(FACTS, transaction_version=level)) if one.rule == RULE_EPOCHS
        ]
        for level in (0, 1, 2)
    }
    assert [len(found) for found in by_level.values()] == [1, 1, 1]
    assert "speak transactions v1, and keep their epochs" in by_level[1][0].text
    assert "upgrade-features --feature transaction.version=2" in by_level[0][0].change
    assert "gets a higher epoch with each end" in by_level[2][0].text
    unknown = replace(FACTS, transaction=None, problem=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transaction_version=2)
    assert not any(rule == RULE_EPOCHS for _, rule in said_of(unknown))


@pytest.mark.parametrize(
    ("level", "spoken", "words"),
    [
        (2, 2, "speaks transactions v2: its epoch rises with each end."),
        (2, 1, "speaks transactions v1, as librdkafka up to 2.16 does: it keeps its epoch."),
        (2, 0, "Which of them this one is shows with its first transaction."),
        (2, None, "does not say which of them this one is"),
        (1, 2, "speaks transactions v2"),
        (1, 1, "its producers speak transactions v1"),
    ],
)
def test_the_version_that_a_producer_speaks_is_said_where_it_is_known(
    level: int, spoken: int | None, words: str
) -> None:
    """KIP-890: a client of either kind may be there at level 2; after a downgrade a transaction of v2 may be open."""
    facts = replace(FACTS, transaction_version=level, spoken_version=spoken)
    [found] = [one for one in explain_transaction(facts) if one.rule == RULE_EPOCHS]
    assert words in found.text
    assert transaction_view(facts)["transactions_version"] == spoken


def test_a_former_coordinator_that_is_partitioned_is_not_called_the_coordinator() -> None:
    (text, _), *_ = said_of(replace(FACTS, transaction=replace(ONGOING, coordinator=1)))
    assert text.endswith("from broker 1, which takes itself for the coordinator, and may be old.")


def test_a_timeout_aborts_nothing_while_the_coordinator_can_commit_nothing() -> None:
    """Beside the sentence that no transaction can end there was the time within which this one is aborted."""
    facts = replace(FACTS, partition=replace(STATE, isr=(2,)))
    shortage = "the ISR of __transaction_state-4 is 2, fewer than min.insync.replicas=2"
    assert f"No transaction can begin or end: {shortage}." in [text for text, _ in said_of(facts)]
    [timeout] = [one for one in explain_transaction(facts) if one.rule == RULE_TIMEOUT]
    assert timeout.text.endswith(f"then aborts it with the first look at which it can, and now it can't: {shortage}.")
    assert timeout.wait_ms is None
    (_, (at_the_partition, _, _)) = said_at(replace(OPEN, obstacle=shortage))
    assert at_the_partition.endswith(f"and now it can't: {shortage}.")


def test_a_decided_transaction_names_the_partitions_that_its_markers_wait_for() -> None:
    """TransactionMarkerChannelManager: a partition without a leader is looked up again and again."""
    decided = replace(ONGOING, state="PrepareAbort")
    silent = Place(TopicPartition("orders", 2), 0, problem="does not respond")
    places = [Place(AT, None), Place(TopicPartition("orders", 1), 2, 3), silent]
    found = said_of(replace(FACTS, transaction=decided, places=places))[1:]
    assert found[0][0].startswith("The abort of the transaction of producer 7, epoch 3 is decided, and 1 partition has")
    assert found[0][1] == RULE_BUSY
    assert [text for text, _ in found[1:]] == [
        "orders-0 has no leader: its marker waits for one.",
        "The marker of orders-1 is not written and broker 2 has not acknowledged it.",
        "Of orders-2 nothing is known: does not respond.",
    ]


@pytest.mark.parametrize(
    ("changes", "words", "rule"),
    [
        ({"partition": None}, "There is no __transaction_state yet", RULE_CREATE),
        (
            {"partition": replace(STATE, leader=None)},
            "has no leader: all brokers of its replicas, 2,0,1, are",
            "",
        ),
        ({"problem": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}, "still loads the ids", RULE_LOAD),
        ({"problem": ErrorCode.REQUEST_TIMED_OUT}, "does not coordinate it at the moment: REQUEST_TIMED_OUT", ""),
        ({"problem": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}, "does not know transactional id copier", RULE_UNKNOWN),
        ({"partition": replace(STATE, isr=(2,))}, "No transaction can begin or end", RULE_MIN_ISR),
    ],
)
def test_a_coordinator_that_says_nothing_is_explained(changes: dict[str, object], words: str, rule: str) -> None:
    facts = replace(FACTS, **{"transaction": None, "problem": ErrorCode.REQUEST_TIMED_OUT} | changes)  # type: ignore[arg-type]  # by name
    found = [one for one in said_of(facts) if words in one[0]]
    assert len(found) == 1, said_of(facts)
    assert rule in found[0][1]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("Empty", "this producer has begun none yet"),
        ("CompleteCommit", "its last transaction was committed"),
        ("CompleteAbort", "its last transaction was aborted"),
    ],
)
def test_an_id_without_an_open_transaction_says_how_the_last_one_ended(state: str, words: str) -> None:
    facts = replace(FACTS, transaction=replace(ONGOING, state=state, partitions=()))
    assert words in said_of(facts)[-1][0]
    assert transaction_headline(facts) == f"Transactional id copier: {state}, producer 7, epoch 3, coordinator 2"
    assert transaction_view(facts)["state_partition"] == 4


@pytest.mark.parametrize(("duration_ms", "text"), [(999, "999 ms"), (1_000, "1.0 s"), (900_000, "15 min")])
def test_durations_are_readable(duration_ms: int, text: str) -> None:
    assert span(duration_ms) == text
