"""Options of a test session's cluster."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TidegaugeOptions:
    """Options of the session's cluster.

    Attributes:
        brokers: how many.
        profile: ``fast`` or ``kafka``, as ``tidegauge up --profile``.
        settings: of all brokers, Kafka's keys.
        zookeeper: ``host:port`` of one that runs already; None starts one.
        mode: ``zookeeper``, or ``kraft``: with a quorum of three controllers instead; empty: as TIDEGAUGE_MODE says,
            ``zookeeper`` without it.
        keep: leave the cluster's directory for a look afterwards.
    """

    brokers: int = 3
    profile: str = "fast"
    settings: dict[str, str] = field(default_factory=dict)
    zookeeper: str | None = None
    keep: bool = False
    mode: str = ""
