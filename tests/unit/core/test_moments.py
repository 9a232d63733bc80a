"""The fold of events shows the replicas that the cores which wrote the events hold (timeline/moment.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from core_harness import AT, Cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_broker import Broker

from tidegauge_broker.replica.effects import Effect, Note
from tidegauge_broker.replica.messages import CoreSettings, TopicRules
from tidegauge_lab.timeline.moment import ClusterMoment
from tidegauge_lab.timeline.patches import patched
from tidegauge_lab.watch.history import History

BROKERS = (1, 2, 3)


class FoldedBroker(Broker):
    """A broker whose events go into the history."""

    def __init__(
        self, history: History, broker_id: int, options: CoreSettings, rules: Mapping[str, TopicRules]
    ) -> None:
        super().__init__(broker_id, options, rules)
        self._history = history

    def execute(self, effects: Iterable[Effect]) -> list[Effect]:
        """Do what the core wants done; afterwards the fold shows what the core holds."""
        done = super().execute(effects)
        held = self.core.partition(AT)
        if held is None or held.role.value == "none":
            return done
        replica = self._history.view["partitions"][str(AT)]["replicas"][str(self.broker_id)]
        assert {name: replica[name] for name in ("role", "epoch", "logStart", "hw", "leo")} == {
            "role": held.role.value,
            "epoch": held.leader_epoch,
            "logStart": held.log_start_offset,
            "hw": held.high_watermark,
            "leo": held.log_end_offset,
        }
        assert replica["lso"] in {held.last_stable_offset, None}
        assert [one[:2] for one in replica["epochs"]] == [[one.epoch, one.start_offset] for one in held.epochs.entries]
        return done

    def note(self, note: Note) -> None:
        super().note(note)
        at = note.topic_partition
        where: dict[str, Any] = {} if at is None else {"topic": at.topic, "partition": at.partition}
        where["source"] = f"broker-{self.broker_id}"
        self._history.add({**where, "kind": note.kind, "cause": note.cause, **note.fields})


class FoldedCluster(Cluster):
    """A cluster of the core's tests, and the history that its events make."""

    def __init__(self, rules: TopicRules) -> None:
        self.history = History()
        for broker_id in BROKERS:
            self.process(broker_id, "starting")
        super().__init__(BROKERS, rules=rules, settings=CoreSettings(verifies_transactions=False))

    def make_broker(self, broker_id: int, settings: CoreSettings, rules: Mapping[str, TopicRules]) -> Broker:
        return FoldedBroker(self.history, broker_id, settings, rules)

    def process(self, broker_id: int, state: str) -> None:
        source = f"broker-{broker_id}"
        if state == "starting":
            self.history.add({"source": source, "kind": "broker", "state": state, "broker_epoch": -1})
        else:
            self.history.add(
                {"source": "lab", "kind": "fault", "action": state, "broker": broker_id, "process": source}
            )

    @property
    def live_leader(self) -> int | None:
        leader = self.state[0]
        return leader if leader in self.brokers and self.brokers[leader].is_running else None

    def compare(self) -> None:
        """The fold and the cores agree; what a dead broker held is marked as of before."""
        shown = self.history.view["partitions"][str(AT)]
        for broker_id, broker in self.brokers.items():
            held = broker.core.partition(AT) if broker.is_running else None
            has_role = held is not None and held.role.value != "none"
            assert shown["replicas"][str(broker_id)]["old"] is not has_role, "one that has not taken a role is old too"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["produce", "open", "settle", "fetch", "die", "kill", "start", "advance"]),
        st.sampled_from(BROKERS),
    ),
    max_size=25,
)


def play(cluster: FoldedCluster, steps: list[tuple[str, int]]) -> None:
    produced = 0
    for step, broker_id in steps:
        running = cluster.brokers[broker_id].is_running
        match step:
            case "produce" | "open" if (leader := cluster.live_leader) is not None:
                produced += 1
                producer: dict[str, Any] = {"producer_id": produced, "producer_epoch": 0, "sequence": 0}
                more = producer | {"transactional": True} if step == "open" else {}
                cluster.produce(leader, f"v{produced}", acks=1, **more)
            case "settle" if any(one.is_running for one in cluster.brokers.values()):
                cluster.settle()
            case "fetch" if running and (leader := cluster.live_leader) not in {None, broker_id}:
                cluster.deliver(broker_id)
                if leader in cluster.brokers[broker_id].core.leaders_followed():
                    cluster.fetch(broker_id, leader)
            case "die" | "kill" if running:
                cluster.kill(broker_id)
                cluster.process(broker_id, "kill")
                if step == "die":
                    cluster.expire_session(broker_id)
            case "start" if not running:
                cluster.process(broker_id, "starting")
                cluster.start(broker_id)
            case "advance":
                cluster.advance(1_000)
        cluster.compare()


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, unclean=st.booleans())
def test_the_fold_shows_what_the_replicas_hold(steps: list[tuple[str, int]], unclean: bool):
    cluster = FoldedCluster(TopicRules(unclean_leader_election=unclean))
    play(cluster, steps)
    history = cluster.history
    shown = history.base
    for step in history.steps:
        shown = patched(shown, step["patch"])
        for replica in (one for at in shown["partitions"].values() for one in at["replicas"].values()):
            if replica.get("leo") is not None:
                assert (replica["lso"] or 0) <= replica["hw"] <= replica["leo"]
    assert shown == history.view, "the steps lead from the base to the last view"
    assert shown["partitions"][str(AT)]["assigned"] == list(BROKERS)


DIVERGENCE = [
    *[("produce", 1), ("settle", 1), ("produce", 1), ("produce", 1), ("die", 1), ("settle", 1)],
    *[("produce", 1), ("settle", 1), ("start", 1), ("settle", 1), ("produce", 1), ("settle", 1)],
]
TRANSACTION = [("produce", 1), ("settle", 1), ("open", 1), ("settle", 1), ("produce", 1), ("settle", 1), ("advance", 1)]


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        (DIVERGENCE, "truncation"),
        (TRANSACTION, "last_stable_offset"),
        ([*TRANSACTION, ("die", 1), ("settle", 1), ("start", 1), ("settle", 1)], "role"),
        ([*TRANSACTION, *DIVERGENCE], "truncation"),
    ],
)
def test_the_fold_follows_truncations_and_transactions(steps: list[tuple[str, int]], kind: str):
    cluster = FoldedCluster(TopicRules())
    play(cluster, steps)
    assert any(step["kind"] == kind for step in cluster.history.steps), "the story has it"
    replicas = cluster.history.view["partitions"][str(AT)]["replicas"]
    assert all(replica["lso"] is not None for replica in replicas.values())


def test_a_moment_is_the_same_whatever_was_kept():
    """A history that keeps few steps has the older ones in its base."""
    cluster = FoldedCluster(TopicRules())
    play(cluster, [("produce", 1), ("settle", 1), ("die", 1), ("settle", 1), ("start", 1), ("settle", 1)])
    short, moment = History(steps_kept=3), ClusterMoment()
    assert short.view == moment.view()
    whole = cluster.history
    assert len(whole.steps) > 10
    recorded = whole.recorded()
    for _ in range(len(whole.steps) - 3):
        whole.forget()
    shown = whole.base
    for step in whole.steps:
        shown = patched(shown, step["patch"])
    assert shown == whole.view
    assert len(recorded.steps) > 10, "what was recorded stays"
