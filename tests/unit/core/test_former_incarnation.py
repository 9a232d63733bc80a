"""Which states a new process takes for states of its previous incarnation (hosted.targets_previous_incarnation)."""

from __future__ import annotations

import pytest

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import NO_LEADER
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.hosted import targets_previous_incarnation
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.producer_state import ProducerState

AT = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("leader", "epoch", "isr", "former_epoch", "refused"),
    [
        (1, 4, (1, 2), 4, True),  # it leads on, with others that may have more
        (2, 5, (2, 1), 4, True),  # a member beside others: every controller that sees the restart takes it out
        (1, 4, (1,), 4, True),  # the last member, in the epoch that it has led
        (1, 5, (1,), 4, False),  # the last member, in a new epoch: what a controller makes of a restart that it sees
        (NO_LEADER, 5, (1,), 4, False),
        (2, 5, (2,), 4, False),  # out of the ISR
        (1, 4, (1, 2), -1, False),  # the process before ended in order, or there was none
    ],
)
def test_what_a_new_process_refuses(
    leader: int,
    epoch: int,
    isr: tuple[int, ...],
    former_epoch: int,
    refused: bool,
):
    state = PartitionState(AT, "id", 1, leader, epoch, isr, 7, (1, 2))
    log = LoadedLog(0, 0, 0, [], ProducerState(), former_epoch)
    assert targets_previous_incarnation(state, 1, log) is refused
