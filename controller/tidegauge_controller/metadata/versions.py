"""Features of a cluster, the levels that are supported, and the record versions that metadata.version asks for.

Source: ``MetadataVersion``, ``EligibleLeaderReplicasVersion``, ``KRaftVersion`` of Apache Kafka 4.3.1.
"""

from __future__ import annotations

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

IBP_4_0_IV3 = 25
IBP_4_1_IV0 = 26
IBP_4_2_IV0 = 28
IBP_4_2_IV1 = 29
IBP_4_3_IV0 = 30
OLDEST_METADATA_VERSION = IBP_4_0_IV3
"""The lowest level that is read and written: that of Apache Kafka 4.0."""
LATEST_METADATA_VERSION = IBP_4_3_IV0
LEVEL_NAMES = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
"""Names of the levels of metadata.version."""
METADATA_CHANGES_AT = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels of metadata.version that changed records, so that no downgrade may cross them (didMetadataChange)."""


def supports_cordoned_directories(metadata_version: int) -> bool:
    """Return whether registrations have cordoned log directories (MetadataVersion.isCordonedLogDirsSupported)."""
    return metadata_version >= IBP_4_3_IV0


def register_broker_version(metadata_version: int) -> int:
    """Return the version of RegisterBrokerRecord (MetadataVersion.registerBrokerRecordVersion)."""
    return 4 if supports_cordoned_directories(metadata_version) else 3


PARTITION_VERSION = 2
"""The version of PartitionRecord at every supported level: with eligible leader replicas."""
PARTITION_CHANGE_VERSION = 2
