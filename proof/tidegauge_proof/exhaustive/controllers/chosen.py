"""The kind of controllers that the exploration has: the one place that names it."""

from __future__ import annotations

from tidegauge_proof.exhaustive.controllers.zookeeper import Event, KafkaController, ModelController, Outcome

__all__ = ["Event", "KafkaController", "ModelController", "Outcome"]
