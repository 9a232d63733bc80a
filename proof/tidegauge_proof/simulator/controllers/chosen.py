"""The kind of controllers that a world has unless another one is asked for."""

from __future__ import annotations

from dataclasses import replace

from tidegauge_controller.rules.election import Choose
from tidegauge_proof.simulator.controllers.ports import MakeStore, Term
from tidegauge_proof.simulator.controllers.zookeeper import sim_controller
from tidegauge_proof.simulator.controllers.zookeeper.store import ZooKeeperStore

DEFAULT: MakeStore = ZooKeeperStore


def electing_by(term: Term, choose: Choose | None) -> Term:
    """Return a term whose controller elects by this rule; None: by Kafka's."""
    if choose is not None:
        assert isinstance(term, sim_controller.SimController), "of the default kind"
        term.context.settings = replace(term.context.settings, tried_election=choose)
    return term


def trusts_restarted_brokers() -> bool:
    """Return whether these controllers overlook an unseen restart, as Kafka's do."""
    return sim_controller.SETTINGS.trusts_restarted_brokers
