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

The logical clock of the event log does not travel with them.
Source: ControllerChannelManager.AbstractControllerBrokerRequestBatch, AbstractControlRequest.Type, KIP-866.
"""

from __future__ import annotations

OF_KAFKA = 0
"""``AbstractControlRequest.Type.UNKNOWN``."""
INCREMENTAL = 1
"""``AbstractControlRequest.Type.INCREMENTAL``."""
FULL = 2
"""``AbstractControlRequest.Type.FULL``."""
