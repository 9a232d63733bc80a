"""Histories in which brokers wake waiting fetches late: another step of the broker lies between append and waking.

As in a broker process, where all requests of one turn of the event loop append before the fetches that wait hear of it
(``BrokerCore.wake_fetches``). Between them a replica may change its role, lose its directory or meet a defect.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod

import pytest

from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import Effect
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.simulation import history_of
from tidegauge_proof.simulator.swarm import MAY_LOSE, MUST_SURVIVE

SEEDS = range(25)


@pytest.mark.parametrize("directories", [1, 2])
@pytest.mark.parametrize("power", [MUST_SURVIVE, MAY_LOSE])
def test_nothing_breaks_when_a_step_lies_between_append_and_waking(
    monkeypatch: pytest.MonkeyPatch, power: str, directories: int
) -> None:
    woken: list[Effect] = []
    appended: list[BrokerCore] = []
    execute = MemoryBroker.execute

    def execute_and_wake(broker: MemoryBroker, effects: Sequence[Effect]) -> None:
        execute(broker, effects)
        core = broker.core
        if core in appended:
            appended.remove(core)
            found = core.wake_fetches(core.fetches.time_ms)
            woken.extend(found)
            execute(broker, found)
        elif core.has_fetches_to_wake:
            appended.append(core)

    monkeypatch.setattr(BrokerCore, "produce", partialmethod(BrokerCore.produce, wake_later=True))
    monkeypatch.setattr(MemoryBroker, "execute", execute_and_wake)
    histories = [history_of(seed, 500, power=power, directories=directories) for seed in SEEDS]
    assert [history.violation for history in histories] == [None] * len(histories)
    assert sum(history.acknowledged for history in histories) > 50
    assert len(woken) > 5
