"""Broker settings of share groups (KIP-932) and of the topic of their states: Kafka 4.3's names, defaults and bounds.

In ZooKeeper mode they count if ``tidegauge.zookeeper.group.protocols`` has ``share``, an extension of this mode.
Source: Kafka's GroupCoordinatorConfig, ShareGroupConfig and ShareCoordinatorConfig.
"""

from __future__ import annotations

from tidegauge.settings.broker_groups import of_later_protocol
from tidegauge.settings.model import Setting, Unit
from tidegauge.settings.tables import names, short, whole


def _bounded(
    name: str, default: int, lowest: int, highest: int, unit: Unit, meaning: str, minimum: int
) -> tuple[Setting, ...]:
    """Return a share setting, and the two that bound groups' own values."""
    rows = (
        ("", default, meaning),
        ("min.", lowest, f"Smallest value of a group's own: {meaning[0].lower()}{meaning[1:]}"),
        ("max.", highest, f"Largest value of a group's own: {meaning[0].lower()}{meaning[1:]}"),
    )
    return tuple(
        whole(
            f"group.share.{which}{name}",
            value,
            unit,
            f"{text_of_it}, share protocol. A setting of Kafka 4.3.",
            minimum,
        )
        for which, value, text_of_it in rows
    )


SHARE_SETTINGS = (
    *of_later_protocol("share"),
    *_bounded("assignment.interval.ms", 1_000, 0, 15_000, "ms", "Minimum time between two target assignments", 0),
    *_bounded("record.lock.duration.ms", 30_000, 15_000, 60_000, "ms", "Time for which a member may keep a record", 1),
    *_bounded("delivery.count.limit", 5, 2, 10, "", "Maximum number of deliveries of a record", 2),
    *_bounded("partition.max.record.locks", 2_000, 100, 4_000, "", "Maximum offsets in flight of a share partition", 1),
    Setting("group.share.max.size", "int", 200, "Maximum number of members of a share group.", "", 1, 1_000),
    Setting("group.share.max.share.sessions", "int", 2_000, "Maximum number of share sessions of a broker.", "", 1),
    names(
        "group.share.assignors", ("simple",), "Server-side assignors, share protocol.", ("simple",), has_effect=False
    ),
    whole(
        "group.share.initialize.retry.interval.ms",
        30_000,
        "ms",
        "Time after which a heartbeat has partitions initialized again whose initialization got no response.",
        1,
    ),
    whole(
        "share.coordinator.state.topic.num.partitions",
        50,
        "",
        "Partitions of __share_group_state when it is created.",
        1,
    ),
    short(
        "share.coordinator.state.topic.replication.factor", 3, "Replicas of __share_group_state when it is created.", 1
    ),
    short("share.coordinator.state.topic.min.isr", 2, "min.insync.replicas of __share_group_state.", 1),
    whole(
        "share.coordinator.state.topic.segment.bytes", 104_857_600, "bytes", "Segment size of __share_group_state.", 1
    ),
    Setting(
        "share.coordinator.state.topic.compression.codec",
        "int",
        0,
        "Compression of batches in __share_group_state: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        "",
        0,
        4,
    ),
    whole("share.coordinator.threads", 1, "", "Threads of Kafka's share coordinator.", 1, has_effect=False),
    whole(
        "share.coordinator.append.linger.ms",
        -1,
        "ms",
        "Time that Kafka's share coordinator gathers writes.",
        -1,
        has_effect=False,
    ),
    whole(
        "share.coordinator.load.buffer.size",
        5_242_880,
        "bytes",
        "Bytes to read at a time when a share coordinator loads a partition; a larger batch is read whole.",
        1,
    ),
    whole("share.coordinator.write.timeout.ms", 5_000, "ms", "Timeout of the replication of a state's write.", 1),
    Setting(
        "share.coordinator.snapshot.update.records.per.snapshot",
        "int",
        500,
        "Number of updates of a share partition's state after which the state is written as a whole.",
        "",
        0,
        500,
    ),
    whole(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "ms",
        "Interval at which records of __share_group_state are deleted that later ones made needless.",
        1,
    ),
    whole(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        "ms",
        "Age of a share partition's last snapshot from which on it is written again, so that the log can be pruned.",
        1,
    ),
)
