"""When a cluster is ready: decided from what each broker says of itself.

Rules:
- The cluster is ready once every broker is registered, a controller is elected, and the metadata of *all* brokers shows
  all of them and the same controller: then any of them may be asked anything. In KRaft mode a broker registers with the
  active controller, and its metadata name none.
- One broker is ready once it is registered, has metadata that shows itself and a live controller, its replicas have the
  roles that the controller gave them at its start (health says all that: ``tidegauge.ready``), and it responds.

Pure: views come in, sentences go out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol


class BrokerView(Protocol):
    """The part of ``observation.Observation`` that the decisions need."""

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
        """The controller in its metadata, while it is alive there. It may be an Apache Kafka broker."""
        ...

    @property
    def controller_epoch(self) -> int:
        """Its controller epoch; -1 unknown."""
        ...


def lacks(views: Mapping[int, BrokerView], expected: Collection[int], *, names_controller: bool = True) -> str:
    """Return what the cluster still lacks, in words; empty when ready.

    Args:
        views: what each broker says.
        expected: the brokers that should be there.
        names_controller: whether metadata name the active controller, as they do in ZooKeeper mode alone.
    """
    for broker_id in sorted(expected):
        missing = broker_lacks(broker_id, views.get(broker_id), expected, names_controller=names_controller)
        if missing != "":
            return missing
    if not names_controller:
        return ""
    controllers = {view.controller_id for broker_id, view in views.items() if broker_id in expected}
    if len(controllers) > 1:
        return "the brokers do not agree yet on the controller"
    return ""


def broker_lacks(
    broker_id: int, view: BrokerView | None, expected: Collection[int], *, names_controller: bool = True
) -> str:
    """Return what one broker still lacks to see the expected ones and a controller."""
    if view is None or not view.ready:
        return f"broker {broker_id} is not registered or has no metadata yet"
    unseen = sorted(set(expected) - view.broker_ids)
    if unseen:
        return f"broker {broker_id} does not see broker {', '.join(map(str, unseen))} yet"
    if names_controller and view.controller_id is None:
        return f"broker {broker_id} knows no controller yet"
    return ""
