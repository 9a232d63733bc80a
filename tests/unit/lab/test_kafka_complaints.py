"""Lines of Kafka's logs in mixed clusters: an act explains lines about its targets, while it lasts, and no others."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.integration import kafka_complaints
from tests.integration.kafka_causes import CAUSES
from tests.integration.kafka_complaints import Act, Acts, Complaint, complaints_in

NOON = datetime(2030, 1, 1, 12)  # noqa: DTZ001 - local time, as in logs
IDS = {"9001": "1", "9002": "2", "9300": "3000"}
GONE = "Connection to node 2 (/127.0.0.1:9002) could not be established. Node may not be available."


def unexpected(complaints: list[Complaint], acts: list[Act], ids: dict[str, str]) -> list[Complaint]:
    return kafka_complaints.unexpected(complaints, CAUSES, acts, ids)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def complaint(logger: str, text: str, *, before: str = "", seconds: float = 5.0, node: int = 1) -> Complaint:
    return Complaint(node, after(seconds), logger, text, before)


def act(kind: str, *subjects: str) -> Act:
    return Act(kind, subjects, NOON, after(10.0))


@pytest.mark.parametrize(
    ("acts", "seconds", "is_expected"),
    [
        ([act("kill", "2")], 5.0, True),
        ([act("stop", "0"), act("kill", "2")], 5.0, True),
        ([act("kill", "2")], -1.0, False),
        ([act("kill", "2")], 14.0, True),
        ([act("kill", "2")], 16.0, False),
        ([act("kill", "1")], 5.0, False),
        ([act("move", "2")], 5.0, False),
        ([], 5.0, False),
    ],
)
def test_a_node_may_be_missed_while_an_act_befalls_it(acts: list[Act], seconds: float, *, is_expected: bool) -> None:
    """A line may come a moment after the act, since clients back off; not before it, and not of another node."""
    found = unexpected([complaint("NetworkClient", GONE, seconds=seconds)], acts, IDS)
    assert (found == []) is is_expected


def test_an_act_that_lasts_has_no_end() -> None:
    assert unexpected([complaint("NetworkClient", GONE, seconds=3600.0)], [Act("kill", ("2",), NOON)], IDS) == []


def test_another_logger_is_not_excused_for_the_same_text() -> None:
    assert len(unexpected([complaint("ReplicaManager", GONE)], [act("kill", "2")], IDS)) == 1


def test_a_partition_fails_for_an_older_epoch_alone() -> None:
    text = "[ReplicaFetcher replicaId=1, leaderId=2, fetcherId=0] Partition copy-0 marked as failed"
    older = (
        "Partition copy-0 has an older epoch (1) than the current leader. Will await the new LeaderAndIsr state before"
    )
    acts = [act("elect")]
    assert unexpected([complaint("ReplicaFetcherThread", text, before=older)], acts, IDS) == []
    other = complaint("ReplicaFetcherThread", text, before="Error while processing data for partition copy-0")
    assert unexpected([other], acts, IDS) == [other]


def test_a_topic_is_unknown_while_it_is_made() -> None:
    text = "Received UNKNOWN_TOPIC_ID from the leader for partition later-1-0. This error may be returned transiently"
    line = complaint("ReplicaFetcherThread", text)
    assert unexpected([line], [act("create", "later-1")], IDS) == []
    assert unexpected([line], [act("create", "later-2"), act("kill", "2")], IDS) == [line]


def test_a_record_of_the_true_future_is_a_complaint() -> None:
    text = "LogSegment(baseOffset=0, largestRecordTimestamp={}) contains future timestamp(s), making it ineligible"
    written = int(after(5.0).timestamp() * 1000)
    lines = [complaint("LogFutureTimestampLogger", text.format(written + late)) for late in (-1, 1)]
    assert unexpected(lines, [act("stop", "2")], IDS) == lines[1:]


def test_what_befalls_the_node_itself_and_what_befalls_a_controller() -> None:
    renounced = "Renouncing the leadership due to a metadata log event. We were the leader at epoch 3"
    line = complaint("QuorumController", renounced, node=3001)
    assert unexpected([line], [act("pause", "3001")], IDS) == []
    assert unexpected([line], [act("pause", "3000")], IDS) == [line]
    active = complaint("QuorumController", "Performing controller activation. Loaded ZK migration state", node=3001)
    assert unexpected([active], [act("kill", "3000")], IDS) == []
    assert unexpected([active], [act("kill", "2")], IDS) == [active]


def test_a_rare_request_may_reach_a_former_active_controller_long_after_the_act() -> None:
    """A broker's channel for directories is opened as it starts and first used when a topic is created."""
    refused = "Unexpected error handling request RequestHeader(apiKey={}, ...) NotControllerException: node 3002."
    rare, often = (
        complaint("ControllerApis", refused.format(api), node=3001, seconds=600.0)
        for api in ("ASSIGN_REPLICAS_TO_DIRS", "BROKER_HEARTBEAT")
    )
    assert unexpected([rare, often], [act("start", "3001")], IDS) == [often]


def test_sessions_expire_at_a_broker_that_was_paused_itself() -> None:
    text = "The write event Timeout(key=heartbeat-m) for the timer heartbeat-m failed due to {} Ignoring it."
    line = complaint(
        "CoordinatorTimerImpl", text.format("... org.apache.kafka.NotLeaderOrFollowerException: not here.")
    )
    assert unexpected([line], [act("pause", "1")], IDS) == []
    assert unexpected([line], [act("pause", "2"), act("kill", "1")], IDS) == [line]


def test_a_transaction_that_was_aborted_by_its_timeout_is_not_committed_while_a_node_is_away() -> None:
    text = "TransactionalId: t's state is {}, but received transaction marker result to send: COMMIT"
    line, other = (
        complaint("TransactionCoordinator", text.format(state)) for state in ("COMPLETE_ABORT", "PREPARE_ABORT")
    )
    assert unexpected([line, other], [act("pause", "2")], IDS) == [other]
    assert unexpected([line], [act("elect")], IDS) == [line]


def test_an_isr_is_too_small_while_a_controller_is_paused_alone() -> None:
    text = (
        "Error processing append operation on partition copy-0 NotEnoughReplicasException: The size of the current ISR"
    )
    line = complaint("ReplicaManager", text)
    assert unexpected([line], [act("pause", "3000")], IDS) == []
    assert unexpected([line], [act("pause", "1"), act("kill", "3000")], IDS) == [line]


def test_a_fatal_fault_is_never_expected() -> None:
    line = complaint("EventPerformanceMonitor", "Exceptionally slow controller event x took 9 ms. A fatal fault")
    assert unexpected([line], [act("kill", "2")], IDS) == [line]


def test_a_log_is_read_line_by_line(tmp_path: Path) -> None:
    """The exception below a line belongs to it; the line before it is its own thread's."""
    log = tmp_path / "broker-1-1.log"
    log.write_text(
        "2030-01-01T12:00:00.001 [a] INFO kafka.server.A - first of a\n"
        "2030-01-01T12:00:00.002 [b] INFO kafka.server.B - of b\n"
        "2030-01-01T12:00:00.003 [a] ERROR kafka.server.A - failed\n"
        "java.io.IOException: closed\n"
        "\tat kafka.server.A(A.java)\n"
        "2030-01-01T12:00:00.004 [b] WARN org.apache.B$C - odd\n"
    )
    first, second = complaints_in(log, 1)
    assert str(first) == "1 2030-01-01T12:00:00.003 A: failed java.io.IOException: closed"
    assert first.before.endswith("first of a")
    assert (second.logger, second.text, second.before[-4:]) == ("B$C", "odd", "of b")


def test_acts_are_noted_with_their_times_also_when_they_fail(tmp_path: Path) -> None:
    acts = Acts(tmp_path / "acts.jsonl")
    with pytest.raises(ValueError, match="lost"), acts.during("kill", 2), acts.during("create", "later"):
        assert [one.ended for one in acts.all] == [None, None]
        raise ValueError("lost")
    assert [(one.kind, one.subjects) for one in acts.all] == [("kill", ("2",)), ("create", ("later",))]
    assert all(one.ended is not None and one.ended >= one.began for one in acts.all)
    assert len((tmp_path / "acts.jsonl").read_text().splitlines()) == 2
