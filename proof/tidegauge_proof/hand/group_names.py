"""Names of the internal partitions and of the groups in a cluster that is driven by hand."""

from __future__ import annotations

from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import SHARE_STATE_TOPIC
from tidegauge.transactions import TRANSACTION_TOPIC

TRANSACTIONS, OFFSETS = TopicPartition(TRANSACTION_TOPIC, 0), TopicPartition(OFFSETS_TOPIC, 0)
SHARE_STATES = TopicPartition(SHARE_STATE_TOPIC, 0)
CONSUMER_GROUP, SHARE_GROUP = "g848", "share"
"""The group of the consumer protocol (KIP-848), which reads topic ``t``, and the share group of ``orders``."""
