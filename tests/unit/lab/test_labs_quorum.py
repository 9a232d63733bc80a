"""Checks of the labs about a cluster in KRaft mode: what half-done work lacks."""

from __future__ import annotations

import pytest
from tests.lab_stories import ORDERS, Story, facts, said

from tidegauge_lab.labs.evidence import StoredRecord

# 16. A majority of the controllers is lost


class QuorumStory(Story):
    """A story with controllers of a quorum."""

    def controller_fault(self, action: str, node: int) -> QuorumStory:
        """Add what the lab did to a controller."""
        self.note_of_broker("lab", "fault", action=action, broker=None, process=f"controller-{node}")
        return self

    def leads(self, node: int, epoch: int) -> QuorumStory:
        """Add that a controller is the active one."""
        self.note_of_broker(f"controller-{node}", "controller", state="elected", controller_epoch=epoch)
        return self


def begun() -> QuorumStory:
    story = QuorumStory().leads(3001, 1)
    story.elected(0, 0, [0, 1, 2])
    return story.controller_fault("kill", 3001).leads(3000, 2).controller_fault("kill", 3002)


def ended() -> QuorumStory:
    story = begun()
    story.leo(0, 0, 1)
    story.controller_fault("start", 3001).leads(3001, 3).at("later").elected(1, 0, [1])
    return story


def test_records_without_a_majority_and_a_topic_after_it_pass() -> None:
    passed, last = said("quorum", ended().evidence())
    assert (passed, last) == (True, "It has created the topic later")


@pytest.mark.parametrize("action", ["pause", "stop"])
def test_controllers_that_are_stopped_otherwise_are_no_majority_either(action: str) -> None:
    story = QuorumStory().leads(3001, 1)
    story.controller_fault(action, 3001).controller_fault(action, 3002).leo(0, 0, 1)
    assert said("quorum", story.evidence()) == (False, "No controller leads the quorum")


def test_a_majority_that_was_never_lost_does_not_pass() -> None:
    """One controller that dies twice is one, and so are two that are down in turn."""
    kept = "A majority of the three controllers has run all the time"
    assert said("quorum", QuorumStory().leads(3001, 1).evidence()) == (False, kept)
    story = QuorumStory().controller_fault("kill", 3001).controller_fault("kill", 3001)
    story.controller_fault("start", 3001).controller_fault("kill", 3002)
    assert said("quorum", story.evidence()) == (False, kept)


def test_each_step_that_is_missing_is_named() -> None:
    assert said("quorum", begun().evidence()) == (False, "No record has been written since")
    unwritten = begun().controller_fault("start", 3001).leads(3001, 3)
    assert said("quorum", unwritten.evidence()) == (False, "No record was written meanwhile")
    led = begun()
    led.leo(0, 0, 1)
    led.controller_fault("start", 3001).leads(3001, 3)
    assert said("quorum", led.evidence()) == (False, "It has created no topic so far")


# 17. Eligible leader replicas


def shrunk() -> Story:
    story = Story().elected(0, 0, [0, 1, 2]).leo(0, 0, 1).hw(0, 0, 1)
    return story.killed(2).isr(0, [0, 1]).killed(1, "stop").isr(0, [0])


def led(strategy: str = "offline", leader: int = 1) -> Story:
    story = shrunk().killed(0).killed(0, "power-cut").elected(-1, 1, [])
    return story.elected(leader, 2, [leader], strategy)


def whole(story: Story, isr: tuple[int, ...] = (1, 0, 2), kept: int = 1) -> tuple[bool, str]:
    records = {(ORDERS, 1): tuple(StoredRecord(one, None, f"m{one + 1}") for one in range(kept))}
    return said(
        "eligible-leaders",
        story.evidence(partitions={ORDERS: facts(1, {1: 1}, {1: 1}, isr=isr, epoch=2)}, records=records),
    )


def test_an_eligible_leader_with_what_was_acknowledged_passes() -> None:
    assert whole(led()) == (True, "All three replicas are in sync again")


def test_what_is_not_done_yet_does_not_pass() -> None:
    assert whole(Story().elected(0, 0, [0, 1, 2]))[1] == "The ISR of orders-0 is brokers 0,1,2"
    assert whole(shrunk())[1] == "Broker 0 has its page cache still"
    leaderless = shrunk().killed(0).killed(0, "power-cut").elected(-1, 1, [])
    assert whole(leaderless)[1] == "orders-0 has no leader: broker 0 is not eligible any more"
    assert whole(led(), isr=(1, 0)) == (False, "The ISR still lacks broker 2")


def test_an_unclean_election_and_a_lost_record_do_not_pass() -> None:
    assert whole(led("unclean", 0)) == (False, "Broker 0 was elected uncleanly: there was no eligible leader")
    assert whole(led(), kept=0) == (False, "It lacks 1 acknowledged records")
    nothing_written = Story().elected(0, 0, [0, 1, 2]).killed(2).isr(0, [0, 1]).killed(1, "stop").isr(0, [0])
    assert whole(nothing_written) == (False, "No record had been acknowledged before")
