"""When a cluster is ready and who the controller is: ``up``, ``start``, ``status``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidegauge_lab.local.readiness import broker_lacks, lacks
from tidegauge_lab.observation import ControllerView, controller_of


@dataclass(frozen=True)
class Says:
    ready: bool = True
    broker_ids: set[int] = field(default_factory=lambda: {0, 1, 2})
    controller_id: int | None = 0
    controller_epoch: int = 1


SILENT = Says(ready=False, broker_ids=set(), controller_id=None, controller_epoch=-1)


def test_ready_when_all_see_all_and_one_controller() -> None:
    assert lacks(dict.fromkeys(range(3), Says()), {0, 1, 2}) == ""


def test_metadata_must_have_reached_every_broker() -> None:
    views = dict.fromkeys(range(3), Says())
    assert "broker 2 is not registered" in lacks({**views, 2: SILENT}, {0, 1, 2})
    assert "broker 2 is not registered" in lacks({**views, 2: Says(ready=False)}, {0, 1, 2})
    assert "broker 1 does not see broker 2" in lacks({**views, 1: Says(broker_ids={0, 1})}, {0, 1, 2})
    assert "broker 1 knows no controller" in lacks({**views, 1: Says(controller_id=None)}, {0, 1, 2})
    assert "agree" in lacks({**views, 1: Says(controller_id=2)}, {0, 1, 2})
    assert "broker 2" in lacks({0: Says(), 1: Says()}, {0, 1, 2})


def test_without_a_controller_no_broker_is_ready() -> None:
    assert "no controller" in broker_lacks(1, Says(broker_ids={1, 2}, controller_id=None), {1})


def test_the_controller_may_be_a_broker_that_has_no_grpc_listener() -> None:
    """Apache Kafka's: it is not among the brokers that gRPC's metadata has addresses of."""
    foreign = Says(broker_ids={1, 2}, controller_id=7)
    assert broker_lacks(1, foreign, {1}) == ""
    assert controller_of({1: foreign, 2: foreign}, {1, 2}, [1, 2]) == ControllerView(7, 1)


def test_one_broker_needs_to_see_itself_only() -> None:
    assert broker_lacks(1, Says(broker_ids={1}, controller_id=1), {1}) == ""
    assert broker_lacks(1, Says(broker_ids={0}, controller_id=0), {1}) != ""


def test_the_newest_controller_counts() -> None:
    old, new = Says(controller_id=0, controller_epoch=1), Says(controller_id=2, controller_epoch=2)
    assert controller_of({0: old, 1: new, 2: old}, {0, 1, 2}) == ControllerView(2, 2)


def test_a_controller_whose_process_is_dead_is_none() -> None:
    assert controller_of({1: Says(), 2: Says()}, {1, 2}) == ControllerView(None, 1)
    assert controller_of({1: Says()}, {0, 1}) == ControllerView(0, 1)


def test_without_responses_nothing_is_known() -> None:
    assert controller_of({}, {0}) == ControllerView(None, None)
    assert controller_of({0: SILENT}, {0}) == ControllerView(None, None)
    assert controller_of({0: replace(SILENT, controller_epoch=3)}, {0}) == ControllerView(None, 3)


def test_a_kafka_broker_with_the_id_of_a_member_is_the_controller() -> None:
    """A rolling swap on the same ids: the process of that id is dead, and Apache Kafka is registered in its place."""
    views = {1: Says(controller_id=0), 2: Says(controller_id=0)}
    assert controller_of(views, {1, 2}, [0, 1, 2]) == ControllerView(None, 1)
    assert controller_of(views, {1, 2}, [0, 1, 2], kafkas={0}) == ControllerView(0, 1)
