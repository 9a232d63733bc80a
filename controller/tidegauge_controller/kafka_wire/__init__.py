"""The control plane's messages in Kafka's own protocol: ``tidegauge.control`` <-> ``tidegauge.kafka.messages``. Pure.

Nothing is decided here. One module for each API; ``to_*`` builds Kafka's message in the version that a 3.9 broker in
ZooKeeper mode sends, ``from_*`` reads any version that it serves. A leader of -1 means none on both sides; a topic id
that is no id is empty text here and sixteen zeros there. An error number that this version does not know is read as
UNKNOWN_SERVER_ERROR.

Kafka's messages have less than ``control.proto``, and where a Tidegauge broker needs more of a Tidegauge controller, a
field says it that Kafka's brokers read from KRaft controllers only: ``type`` of LeaderAndIsr and UpdateMetadata.

| ``type`` | in LeaderAndIsr | in UpdateMetadata |
|---|---|---|
| 0 (Kafka's controller in ZooKeeper mode) | INELIGIBLE_REPLICA is not understood | nothing more will be announced |
| 1 | INELIGIBLE_REPLICA is understood | more may follow from the receiver's registration |
| 2 | - | all that follows from it was sent before |

The logical clock of the event log travels in the headers
(``tidegauge.kafka.header_tags``).
Source: ControllerChannelManager.AbstractControllerBrokerRequestBatch, AbstractControlRequest.Type, KIP-866.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidegauge.kafka.topic_ids import known_topic_id

OF_KAFKA = 0
"""``AbstractControlRequest.Type.UNKNOWN``."""
INCREMENTAL = 1
"""``AbstractControlRequest.Type.INCREMENTAL``."""
FULL = 2
"""``AbstractControlRequest.Type.FULL``."""


def states_of(message: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the topic, its id and the state of each partition of a LeaderAndIsr or UpdateMetadata of any version."""
    for state in message.ungrouped_partition_states:
        yield state.topic_name, "", state
    for topic in message.topic_states:
        topic_id = known_topic_id(topic.topic_id)
        for state in topic.partition_states:
            yield topic.topic_name, topic_id, state


def by_topic(entries: Iterable[Any]) -> dict[tuple[str, str], list[Any]]:
    """Group a plain request's partitions by their topics' names and ids, in the order of the first mention."""
    found: dict[tuple[str, str], list[Any]] = {}
    for entry in entries:
        found.setdefault((entry.state.topic_partition.topic, entry.state.topic_id), []).append(entry)
    return found
