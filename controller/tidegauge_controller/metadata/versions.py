"""The levels of metadata.version that are supported, and the record versions that it asks for.

Source: ``MetadataVersion`` of Apache Kafka 4.3.1.
"""

from __future__ import annotations

IBP_4_0_IV3 = 25
IBP_4_3_IV0 = 30
OLDEST_METADATA_VERSION = IBP_4_0_IV3
"""The lowest level that is read and written: Apache Kafka 4.0's."""
LATEST_METADATA_VERSION = IBP_4_3_IV0
METADATA_CHANGES_AT = frozenset({IBP_4_3_IV0})
"""Supported levels of metadata.version that changed records: no downgrade may cross them (didMetadataChange)."""


def supports_cordoned_directories(metadata_version: int) -> bool:
    """Return whether registrations have cordoned log directories (MetadataVersion.isCordonedLogDirsSupported)."""
    return metadata_version >= IBP_4_3_IV0


def register_broker_version(metadata_version: int) -> int:
    """Return the version of RegisterBrokerRecord (MetadataVersion.registerBrokerRecordVersion)."""
    return 4 if supports_cordoned_directories(metadata_version) else 3


PARTITION_VERSION = 2
"""The version of PartitionRecord at every supported level: with eligible leader replicas."""
PARTITION_CHANGE_VERSION = 2
