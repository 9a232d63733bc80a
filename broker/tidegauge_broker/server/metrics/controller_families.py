"""From a controller's state in KRaft mode to metrics by Kafka's names. Pure.

Every controller counts the cluster by its own image, whether it is the active one or not, as Kafka's do
(``ControllerMetadataMetrics``, ``QuorumControllerMetrics``); the quorum's metrics have the names of
``KafkaRaftMetrics``, with the state as a label, as the JMX exporter's rules for Kafka write it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegauge_broker.server.metrics.exposition import Family, counter, gauge
from tidegauge_controller.metadata.elections import elections
from tidegauge_controller.metadata.image import MetadataImage
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.states import Candidate, Follower, Leader, Prospective, Unattached
from tidegauge_controller.rules.election import Strategy

_UNKNOWN = -1


@dataclass(slots=True)
class ControllerCounts:
    """Counters of a controller since its process began: unclean elections of leaders."""

    unclean: int = 0

    def image_changed(self, old: MetadataImage, new: MetadataImage) -> None:
        """Count the elections of a step; those in the image that the process found are not counted."""
        if not old.is_empty:
            self.unclean += sum(one.strategy is Strategy.UNCLEAN for one in elections(old, new))


def controller_families(
    node: RaftNode, image: MetadataImage, counts: ControllerCounts, *, is_active: bool
) -> Iterator[Family]:
    """Yield all metrics of a controller.

    Args:
        node: its node in the quorum.
        image: the committed metadata that it has taken in.
        counts: its counters.
        is_active: whether it is the active controller.
    """
    partitions = [partition for _, _, partition in image.all_partitions()]
    brokers = list(image.brokers.values())
    gauges = {
        "activecontrollercount": ("1 at the active controller, else 0.", is_active),
        "activebrokercount": ("Brokers that are registered and not fenced.", sum(not one.fenced for one in brokers)),
        "fencedbrokercount": ("Brokers that are registered and fenced.", sum(one.fenced for one in brokers)),
        "globaltopiccount": ("Topics.", len(image.topics)),
        "globalpartitioncount": ("Partitions.", len(partitions)),
        "offlinepartitionscount": ("Partitions without a leader.", sum(not one.has_leader for one in partitions)),
        "preferredreplicaimbalancecount": (
            "Partitions led by another than the first of AR.",
            sum(not one.has_preferred_leader for one in partitions),
        ),
        "lastappliedrecordoffset": ("Offset of the last metadata record taken in.", image.provenance.offset),
        "lastappliedrecordtimestamp": ("Time of its batch, in ms since 1970.", image.provenance.timestamp_ms),
        "lastcommittedrecordoffset": (
            "Offset of the last metadata record known to be committed.",
            (node.high_watermark or 0) - 1,
        ),
    }
    for name, (meaning, value) in gauges.items():
        yield gauge(f"kafka_controller_kafkacontroller_{name}", meaning, value)
    name, meaning = "kafka_controller_controllerstats_uncleanleaderelections_total", "Elections from outside the ISR."
    yield counter(name, meaning, counts.unclean)
    yield from _quorum(node)


def _quorum(node: RaftNode) -> Iterator[Family]:
    name, state = "kafka_server_raftmetrics", node.state
    word = type(state).__name__.lower()
    current = Family(f"{name}_current_state", "gauge", "1, with the state of the node in the quorum as a label.")
    current.add(1, current_state="observer" if isinstance(state, Follower) and not node.is_voter else word)
    yield current
    vote = state.leader_id if isinstance(state, Leader) else _UNKNOWN
    if isinstance(state, Unattached | Follower | Prospective | Candidate) and state.voted is not None:
        vote = state.voted.id
    gauges = {
        "current_leader": ("Id of the leader; -1: none is known.", _or_unknown(state.leader_id)),
        "current_epoch": ("Epoch of the quorum.", state.epoch),
        "current_vote": ("Id that got this node's vote of the epoch; -1: none.", vote),
        "high_watermark": ("End of what is known to be committed; -1: nothing.", _or_unknown(node.high_watermark)),
        "log_end_offset": ("End of the metadata log.", node.log.end_offset),
        "log_end_epoch": ("Epoch of its last record.", node.log.last_epoch),
        "number_of_voters": ("Voters in force.", len(node.history.current.voters)),
    }
    for kind, (meaning, value) in gauges.items():
        yield gauge(f"{name}_{kind}", meaning, value)


def _or_unknown(value: int | None) -> int:
    return _UNKNOWN if value is None else value
