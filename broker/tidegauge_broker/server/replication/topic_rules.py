"""A topic's settings as the core needs them."""

from __future__ import annotations

from tidegauge.record_batch import COMPRESSION_NAMES
from tidegauge.settings import Values
from tidegauge_broker.formats.compression import NONE, Codec
from tidegauge_broker.replica.messages import TopicRules

_LEVELS = {"gzip": "compression.gzip.level", "lz4": "compression.lz4.level", "zstd": "compression.zstd.level"}
"""The codecs that have levels, and the settings of these."""


def topic_rules(values: Values) -> TopicRules:
    """Return a topic's settings as the core needs them."""
    return TopicRules(
        min_insync_replicas=values.integer("min.insync.replicas"),
        max_message_bytes=values.integer("max.message.bytes"),
        segment_bytes=values.integer("segment.bytes"),
        unclean_leader_election=values.flag("unclean.leader.election.enable"),
        log_append_time=values.text("message.timestamp.type") == "LogAppendTime",
        compacted="compact" in values["cleanup.policy"],
        deletes="delete" in values["cleanup.policy"],
        timestamp_before_max_ms=values.integer("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=values.integer("message.timestamp.after.max.ms"),
        leader_throttled_replicas=values["leader.replication.throttled.replicas"],
        follower_throttled_replicas=values["follower.replication.throttled.replicas"],
        codec=_codec(values),
        down_converts=values.flag("message.downconversion.enable"),
    )


def _codec(values: Values) -> Codec | None:
    """Return what ``compression.type`` asks for (LogConfig.getCompression)."""
    name = values.text("compression.type")
    if name == "producer":
        return None
    if name == "uncompressed":
        return Codec(NONE)
    level = _LEVELS.get(name)
    return Codec(COMPRESSION_NAMES.index(name), None if level is None else values.integer(level))
