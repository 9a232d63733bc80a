"""Leader election strategies and ISR removal as tables (Election, PartitionLeaderElectionAlgorithms).

Each row: the online brokers, the ISR, and the outcome. In all of them the leader epoch rises by one, the partition
epoch is the version that the write expects, and the controller epoch is the deciding controller's.
"""

from __future__ import annotations

import pytest

from tidegauge.cluster_metadata import Assignment, Leadership
from tidegauge.control import NO_LEADER, Endpoint
from tidegauge.partition import TopicPartition
from tidegauge_controller.rules.election import (
    Election,
    elect_for_controlled_shutdown,
    elect_initial,
    elect_offline,
    elect_preferred,
    elect_reassigned,
    needs_unclean,
    remove_from_isr,
)
from tidegauge_controller.zookeeper.decisions.context import ControllerContext, LiveBroker

AT = TopicPartition("orders", 0)
AR = (1, 2, 3)


def context_of(
    live: tuple[int, ...],
    *,
    replicas: tuple[int, ...] = AR,
    shutting_down: tuple[int, ...] = (),
    failed_directories: tuple[int, ...] = (),
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> ControllerContext:
    context = ControllerContext(9, epoch=7)
    context.live = {i: LiveBroker(Endpoint(i, "127.0.0.1", 19000 + i), 100 + i) for i in live}
    context.shutting_down = set(shutting_down)
    context.offline_directories = {i: {AT} for i in failed_directories}
    context.topics = {AT.topic}
    context.set_assignment(AT, Assignment(replicas, adding, removing))
    return context


def old(leader: int, isr: tuple[int, ...], *, recovering: bool = False) -> Leadership:
    return Leadership(leader, 4, isr, recovering, 11, 6)


def outcome(election: Election) -> tuple[int, tuple[int, ...], bool] | None:
    """Leader, ISR and recovery state, after a look at the epochs."""
    state = election.leadership
    if state is None:
        return None
    assert (state.leader_epoch, state.partition_epoch, state.controller_epoch) == (5, 11, 7)
    return state.leader, state.isr, state.recovering


@pytest.mark.parametrize(
    ("live", "isr", "unclean", "elected"),
    [
        ((2, 3), (1, 2, 3), False, (2, (2, 3), False)),
        ((2, 3), (3, 2, 1), False, (2, (3, 2), False)),  # the leader by assignment order, the ISR in its own
        ((3,), (1, 2, 3), False, (3, (3,), False)),
        ((2, 3), (1, 3), False, (3, (3,), False)),  # 2 comes first, but is not in the ISR
        ((2, 3), (1,), False, None),
        ((2, 3), (1,), True, (2, (2,), True)),  # unclean: the first online one, alone, recovering
        ((2, 3), (1, 3), True, (3, (3,), False)),  # permitted but not needed
        ((), (1, 2, 3), True, None),
        ((1, 2, 3), (1, 2, 3), False, (1, (1, 2, 3), False)),
        ((1, 2, 3), (2,), False, (2, (2,), False)),
    ],
)
def test_offline(live: tuple[int, ...], isr: tuple[int, ...], unclean: bool, elected: object):
    context = context_of(live)
    election = elect_offline(context, AT, old(NO_LEADER, isr), unclean=unclean)
    assert outcome(election) == elected
    assert election.recipients == tuple(i for i in AR if i in live)
    assert needs_unclean(context, AT, old(NO_LEADER, isr)) == (not set(live) & set(isr))


def test_offline_keeps_a_recovery_that_is_not_over():
    assert outcome(elect_offline(context_of((2, 3)), AT, old(1, (1, 2), recovering=True), unclean=False)) == (
        2,
        (2,),
        True,
    )


@pytest.mark.parametrize(("shutting_down", "failed_directories"), [((2,), ()), ((), (2,))])
def test_online_means_neither_shutting_down_nor_with_a_failed_directory(
    shutting_down: tuple[int, ...], failed_directories: tuple[int, ...]
):
    context = context_of((2, 3), shutting_down=shutting_down, failed_directories=failed_directories)
    assert outcome(elect_offline(context, AT, old(1, (1, 2, 3)), unclean=False)) == (3, (3,), False)
    assert outcome(elect_offline(context, AT, old(1, (1, 2)), unclean=False)) is None
    assert outcome(elect_offline(context, AT, old(1, (1, 2)), unclean=True)) == (3, (3,), True)


@pytest.mark.parametrize(
    ("live", "isr", "elected"),
    [
        ((1, 2, 3), (3, 2, 1), (1, (3, 2, 1), False)),  # the ISR stays as it is
        ((1, 2, 3), (2, 3), None),  # not in the ISR
        ((2, 3), (1, 2, 3), None),  # not online
        ((1, 3), (1, 2, 3), (1, (1, 2, 3), False)),
    ],
)
def test_preferred(live: tuple[int, ...], isr: tuple[int, ...], elected: object):
    election = elect_preferred(context_of(live), AT, old(2, isr))
    assert outcome(election) == elected
    assert election.recipients == AR


@pytest.mark.parametrize(
    ("live", "shutting_down", "isr", "elected"),
    [
        ((1, 2, 3), (1,), (1, 2, 3), (2, (2, 3), False)),
        ((1, 2, 3), (1,), (3, 1), (3, (3,), False)),
        ((1, 2, 3), (1, 2), (1, 2, 3), (3, (3,), False)),  # all that shut down leave the ISR
        ((1, 2, 3), (1,), (1,), None),  # no other replica is in sync: the leader stays
        ((1, 2), (1,), (1, 3), None),
        ((1, 3), (1,), (1, 2, 3), (3, (2, 3), False)),  # the dead 2 is left to its own removal
    ],
)
def test_controlled_shutdown(
    live: tuple[int, ...], shutting_down: tuple[int, ...], isr: tuple[int, ...], elected: object
):
    election = elect_for_controlled_shutdown(context_of(live, shutting_down=shutting_down), AT, old(1, isr))
    assert outcome(election) == elected
    assert election.recipients == tuple(i for i in AR if i in live)  # the removed one is notified, too


@pytest.mark.parametrize(
    ("live", "isr", "elected"),
    [
        ((1, 2, 3, 4), (1, 3, 4), (4, (1, 3, 4), False)),  # target [4, 3]: the first of it in sync; ISR unchanged
        ((1, 2, 3), (1, 3, 4), (3, (1, 3, 4), False)),
        ((1, 2, 3, 4), (1, 2), None),
    ],
)
def test_reassign(live: tuple[int, ...], isr: tuple[int, ...], elected: object):
    context = context_of(live, replicas=(4, 3, 1, 2), adding=(4,), removing=(1, 2))
    election = elect_reassigned(context, AT, old(1, isr))
    assert outcome(election) == elected
    assert election.recipients == (4, 3)


@pytest.mark.parametrize(("live", "elected"), [((1, 2, 3), (1, (1, 2, 3))), ((3, 2), (2, (2, 3))), ((), None)])
def test_initial(live: tuple[int, ...], elected: object):
    """The live replicas in assignment order, the first leads, in epoch 0."""
    election = elect_initial(context_of(live), AT)
    if elected is None:
        assert election.leadership is None
        return
    assert election.leadership == Leadership(elected[0], 0, elected[1], False, 0, 7)
    assert election.recipients == elected[1]


@pytest.mark.parametrize(
    ("leader", "isr", "removed", "left"),
    [
        (1, (1, 2, 3), 2, (1, (1, 3))),
        (1, (1, 2, 3), 1, (NO_LEADER, (2, 3))),
        (1, (1,), 1, (NO_LEADER, (1,))),  # trap 10: the last member stays
        (3, (2, 1, 3), 1, (3, (2, 3))),
    ],
)
def test_removal_from_the_isr(leader: int, isr: tuple[int, ...], removed: int, left: tuple[int, tuple[int, ...]]):
    state = remove_from_isr(old(leader, isr), removed, 7)
    assert state == Leadership(left[0], 5, left[1], False, 11, 7)
