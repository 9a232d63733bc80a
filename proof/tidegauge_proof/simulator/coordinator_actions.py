"""Actions on the coordinators of a history, and on the requests to them, for clients of each kind."""

from __future__ import annotations

from typing import Any

from tidegauge_proof.simulator.coordinator_world import CoordinatorWorld
from tidegauge_proof.simulator.dice import Dice


def request_arrives(clients: object, cluster: CoordinatorWorld[Any], dice: Dice) -> str | None:
    """Deliver a request, in any order; it may be lost, or delivered once more later."""
    del clients
    if not cluster.requests:
        return None
    index = dice.below(len(cluster.requests))
    sending = cluster.requests[index]
    fate = dice.below(20)
    name = f"{type(sending.call.request).__name__} {sending.call.number}"
    if fate == 1:
        del cluster.requests[index]
        return f"{name} is lost"
    if fate != 2:
        del cluster.requests[index]
    cluster.arrive(sending)
    return f"{name} arrives at {sending.broker_id}"


def load_goes_on(clients: object, cluster: CoordinatorWorld[Any], dice: Dice) -> str | None:
    """Continue a load."""
    del clients
    loading = cluster.loading()
    if not loading:
        return None
    process = dice.choose(loading)
    cluster.go_on_loading(process)
    return f"broker {process.broker.broker_id} reads on"


def timers_run(clients: object, cluster: CoordinatorWorld[Any], dice: Dice) -> str | None:
    """Run the timers of the coordinators that are due."""
    del clients, dice
    return "timers run" if cluster.step_timers() else None
