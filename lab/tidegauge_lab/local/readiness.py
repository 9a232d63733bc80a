"""When a cluster is ready, and who its controller is: decided from what each broker says of itself.

Rules (design, section 6, rows ``up``, ``start``, ``status``):
- The cluster is ready once every broker is registered, a controller is elected, and the metadata of *all* brokers shows
  all of them and the same controller: then any of them may be asked anything.
- One broker is ready once it is registered, has metadata that shows itself and a live controller, its replicas have the
  roles that the controller gave them at its start (health says all that: ``tidegauge.ready``), and it answers.
- Of several brokers' words on the controller the one with the highest controller epoch counts; a controller whose
  process is gone is none.

Pure: views come in, sentences go out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol


class BrokerView(Protocol):
    """The part of ``ask.View`` that the decisions need."""

    @property
    def ready(self) -> bool:
        """Health says so."""
        ...

    @property
    def broker_ids(self) -> set[int]:
        """Live brokers in its metadata."""
        ...

    @property
    def controller_id(self) -> int | None:
        """The controller in its metadata."""
        ...

    @property
    def controller_epoch(self) -> int:
        """Its controller epoch; -1 unknown."""
        ...


class ControllerView(NamedTuple):
    """The active controller; both None while unknown."""

    broker: int | None
    epoch: int | None


def lacks(views: Mapping[int, BrokerView], expected: Collection[int]) -> str:
    """What the cluster of the expected brokers still lacks, in words; empty when it is ready."""
    for broker_id in sorted(expected):
        if (missing := broker_lacks(broker_id, views.get(broker_id), expected)) != "":
            return missing
    controllers = {view.controller_id for broker_id, view in views.items() if broker_id in expected}
    if len(controllers) > 1:
        return "the brokers do not agree yet on the controller"
    return ""


def broker_lacks(broker_id: int, view: BrokerView | None, expected: Collection[int]) -> str:
    """What one broker still lacks to see the expected ones and a controller among them."""
    if view is None or not view.ready:
        return f"broker {broker_id} is not registered or has no metadata yet"
    unseen = sorted(set(expected) - view.broker_ids)
    if unseen:
        return f"broker {broker_id} does not see broker {', '.join(map(str, unseen))} yet"
    if view.controller_id is None or view.controller_id not in view.broker_ids:
        return f"broker {broker_id} knows no controller yet"
    return ""


def controller_of(views: Mapping[int, BrokerView], alive: Collection[int]) -> ControllerView:
    """The controller that most recently told the brokers of itself."""
    newest = max(views.values(), key=lambda view: view.controller_epoch, default=None)
    if newest is None or newest.controller_epoch < 0:
        return ControllerView(None, None)
    known = [view.controller_id for view in views.values() if view.controller_epoch == newest.controller_epoch]
    named = next((broker_id for broker_id in known if broker_id is not None and broker_id in alive), None)
    return ControllerView(named, newest.controller_epoch)
