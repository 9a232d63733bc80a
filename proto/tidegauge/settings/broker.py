"""The table of broker settings: Kafka's names, defaults and ranges.

A setting that Kafka does not have says so in its text. Kafka's settings that are accepted without effect are marked;
they are here so that a server.properties written for Kafka is understood and shown as Kafka shows it.
Source: Kafka's ReplicationConfigs, ServerConfigs, ZkConfigs, SocketServerConfigs, DynamicBrokerConfig.
"""

from __future__ import annotations

from dataclasses import replace

from tidegauge.kafka.release_versions import VERSIONS
from tidegauge.settings.broker_groups import GROUP_SETTINGS
from tidegauge.settings.broker_log import LOG_SETTINGS
from tidegauge.settings.broker_security import SECURITY_SETTINGS
from tidegauge.settings.broker_share import SHARE_SETTINGS
from tidegauge.settings.broker_transactions import TRANSACTION_SETTINGS
from tidegauge.settings.model import LONG_MAX, Setting
from tidegauge.settings.tables import flag, long, names, text, whole

_IDENTITY_AND_NETWORK = (
    whole("broker.id", -1, "", "Id of this broker; it must be given.", -1),
    flag("broker.id.generation.enable", True, "Generate an id for a broker without one.", has_effect=False),
    whole("reserved.broker.max.id", 1000, "", "Largest id that is not generated.", 0, has_effect=False),
    text("broker.rack", None, "Rack of this broker, for rack-aware assignment."),
    text(
        "listeners",
        "PLAINTEXT://127.0.0.1:9092",
        "Addresses to bind, as NAME://HOST:PORT,...; without one for gRPC, the first one's port + 10000 is bound too.",
    ),
    text(
        "advertised.listeners",
        None,
        "Addresses advertised to clients and brokers, by listener name; absent: listeners.",
        update="per-broker",
    ),
    names(
        "listener.security.protocol.map",
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL"),
        "Protocol of each listener, as NAME:PROTOCOL,...: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; else by its name.",
    ),
    names(
        "listener.wire.protocol.map",
        (),
        "Wire protocol of each listener, as NAME:WIRE,...: KAFKA or GRPC; absent: GRPC for names that begin with GRPC.",
    ),
    text(
        "inter.broker.listener.name",
        None,
        "Listener that brokers use among themselves, by its wire protocol; absent: a gRPC listener, by "
        "security.inter.broker.protocol, else the first.",
    ),
    text(
        "control.plane.listener.name",
        None,
        "gRPC listener through which the controller and the brokers reach each other, if brokers speak Kafka's "
        "protocol among themselves; absent, or a listener of Kafka's protocol: inter.broker.listener.name.",
    ),
    whole("request.timeout.ms", 30_000, "ms", "Timeout of a request between brokers.", 1),
    whole("socket.request.max.bytes", 104_857_600, "bytes", "Largest request accepted.", 1),
    whole("socket.send.buffer.bytes", 102_400, "bytes", "Send buffer of a socket.", has_effect=False),
    whole("socket.receive.buffer.bytes", 102_400, "bytes", "Receive buffer of a socket.", has_effect=False),
    long("connections.max.idle.ms", 600_000, "ms", "Idle time after which a connection is closed; -1: never.", -1),
    whole("queued.max.requests", 500, "", "Maximum requests in flight on one connection; more wait in the client.", 1),
    long(
        "queued.max.response.bytes",
        134_217_728,
        "bytes",
        "Memory for responses that clients have not read yet, over all connections; fetches wait while it is used up. "
        "Not a setting of Kafka, which sends records from the page cache.",
        1,
    ),
    whole("num.network.threads", 3, "", "Threads that serve sockets.", 1, update="cluster-wide", has_effect=False),
    whole("num.io.threads", 8, "", "Threads that handle requests.", 1, update="cluster-wide", has_effect=False),
    whole("background.threads", 10, "", "Threads for other work.", 1, update="cluster-wide", has_effect=False),
    text(
        "inter.broker.protocol.version",
        "3.9-IV0",
        "Version that brokers speak to each other: Kafka 3.9's and no other.",
        ("3.9", "3.9-IV0"),
        illegal=(r"(?!3\.9(-IV0)?$).*", "Tidegauge speaks to other brokers as Kafka 3.9 does, and as no older version"),
    ),
)

_ZOOKEEPER = (
    text("zookeeper.connect", None, "ZooKeeper servers as host:port,... with an optional /chroot; it must be given."),
    whole("zookeeper.session.timeout.ms", 18_000, "ms", "Session timeout to ask ZooKeeper for.", 1),
    whole("zookeeper.connection.timeout.ms", None, "ms", "Timeout for reaching ZooKeeper at start; absent: 18 s.", 1),
    whole("zookeeper.max.in.flight.requests", 10, "", "Maximum requests in flight to ZooKeeper.", 1),
    flag("zookeeper.set.acl", False, "Protect znodes with ACLs.", has_effect=False),
)

_TOPICS = (
    flag("auto.create.topics.enable", True, "Create an unknown topic when a client asks for it."),
    whole("num.partitions", 1, "", "Partitions of a topic created without a count.", 1),
    whole("default.replication.factor", 1, "", "Replicas of a topic created without a factor.", 1),
    flag("delete.topic.enable", True, "Allow topics to be deleted."),
)

_REPLICATION = (
    long(
        "replica.lag.time.max.ms", 30_000, "ms", "Time after which a follower that has not caught up leaves the ISR.", 1
    ),
    whole("replica.fetch.wait.max.ms", 500, "ms", "Maximum time that a follower's fetch waits for data.", 0),
    whole("replica.fetch.min.bytes", 1, "bytes", "Minimum bytes for a follower's fetch to return before that time.", 0),
    whole("replica.fetch.max.bytes", 1_048_576, "bytes", "Soft limit for a partition in a follower's fetch.", 0),
    whole(
        "replica.fetch.response.max.bytes",
        10_485_760,
        "bytes",
        "Soft limit of a follower's fetch over all partitions.",
        0,
    ),
    long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "bytes",
        "Bytes a second that this broker sends of throttled replicas; see the topic setting.",
        0,
        update="per-broker",
    ),
    long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "bytes",
        "Bytes a second that this broker fetches of throttled replicas; see the topic setting.",
        0,
        update="per-broker",
    ),
    long(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "bytes",
        "Bytes a second that are copied from log directory to log directory of this broker.",
        0,
        update="per-broker",
    ),
    whole("replica.fetch.backoff.ms", 1000, "ms", "Back-off after a failed fetch.", 0),
    whole("replica.socket.timeout.ms", 30_000, "ms", "Timeout of a fetch between brokers.", 1),
    whole(
        "replica.socket.receive.buffer.bytes",
        65_536,
        "bytes",
        "Receive buffer of a follower's socket.",
        has_effect=False,
    ),
    whole(
        "num.replica.fetchers",
        1,
        "",
        "Threads that fetch from one leader's broker.",
        update="cluster-wide",
        has_effect=False,
    ),
    text(
        "replica.selector.class",
        None,
        "Class that selects the replica that serves a Kafka consumer: by its client.rack (KIP-392), or the leader.",
        (
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "org.apache.kafka.common.replica.LeaderSelector",
        ),
    ),
    long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        "ms",
        "Interval between writes of replication-offset-checkpoint.",
        1,
    ),
    text(
        "replica.truncation.rule",
        "kip-320",
        "Rule by which followers truncate, from Kafka's history; all but the newest lose records (not in Kafka).",
        ("high-watermark", "kip-101", "kip-279", "kip-320"),
    ),
    flag(
        "replica.reelected.leader.keeps.follower.state",
        False,
        "Kafka 3.9 counts fetches of an earlier epoch after a re-election; the default does not (not in Kafka).",
    ),
    flag(
        "controller.failover.trusts.restarted.brokers",
        False,
        "Kafka 3.9: a new controller overlooks restarts; the default gives such leaders a new epoch (not in Kafka).",
    ),
    whole(
        "min.insync.replicas",
        1,
        "",
        "In-sync replicas that acks=all needs, and below which the high watermark does not advance.",
        1,
        update="cluster-wide",
    ),
    flag(
        "unclean.leader.election.enable",
        False,
        "Allow a leader from outside the ISR; acknowledged records may be lost.",
        update="cluster-wide",
    ),
    whole("fetch.max.bytes", 57_671_680, "bytes", "Soft limit of a consumer's fetch.", 1024),
    whole(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "",
        "Maximum number of incremental fetch sessions of Kafka clients.",
        0,
    ),
    whole(
        "fetch.purgatory.purge.interval.requests",
        1000,
        "",
        "Maximum completed fetches that stay in the purgatory.",
        has_effect=False,
    ),
    whole(
        "producer.purgatory.purge.interval.requests",
        1000,
        "",
        "Maximum completed produce requests that stay in the purgatory.",
        has_effect=False,
    ),
    whole(
        "delete.records.purgatory.purge.interval.requests",
        1,
        "",
        "Maximum completed delete-records requests that stay in the purgatory.",
        has_effect=False,
    ),
)

_CONTROLLER = (
    flag("auto.leader.rebalance.enable", True, "Elect preferred leaders automatically."),
    long("leader.imbalance.check.interval.seconds", 300, "s", "Interval between checks of leader imbalance.", 1),
    Setting(
        "leader.imbalance.per.broker.percentage",
        "int",
        10,
        "Leaders other than the preferred one that are tolerated per broker.",
        "%",
        0,
        100,
    ),
    whole("controller.socket.timeout.ms", 30_000, "ms", "Timeout of a control request.", 1),
    flag("controlled.shutdown.enable", True, "Move leadership to other brokers before stopping."),
    whole("controlled.shutdown.max.retries", 3, "", "Maximum attempts at a controlled shutdown.", 1),
    long("controlled.shutdown.retry.backoff.ms", 5000, "ms", "Back-off between those attempts.", 0),
)

_QUOTAS = (
    whole("quota.window.num", 11, "", "Samples over which client quotas are measured.", 1),
    whole("quota.window.size.seconds", 1, "s", "Time span of each.", 1),
    whole("controller.quota.window.num", 11, "", "Samples whose mutations of topics may come at once (KIP-599).", 1),
    whole("controller.quota.window.size.seconds", 1, "s", "Time span of each.", 1),
)

_OWN = (
    text(
        "tidegauge.as.kafka",
        None,
        "Release of Kafka that Kafka's clients see, such as 3.4: its APIs and their versions, and in KRaft mode its "
        "features. Before 4.0 in ZooKeeper mode, from 4.0 on in KRaft mode (not in Kafka).",
        tuple(VERSIONS),
    ),
    flag("lab.enable", False, "Offer the Lab service with its fault switches (not in Kafka)."),
    text(
        "lab.controller.stop.file",
        None,
        "File that names the step at which the controller kills its process (not in Kafka).",
    ),
    text("lab.rules.file", None, "File with the rules for requests that hold from the start (not in Kafka)."),
    text("lab.session.file", None, "File in which the broker notes its ZooKeeper session (not in Kafka)."),
    names("lab.held", (), "Partitions T-P whose follower here is held from the start (not in Kafka)."),
    flag(
        "request.log.enable",
        False,
        "A log line for each completed request, as Kafka's logger kafka.request.logger writes (not in Kafka).",
    ),
    text("event.log.file", None, "File for the event log, one JSON object a line (not in Kafka)."),
    text(
        "metrics.listener",
        None,
        "Address of the metrics for Prometheus: HOST:PORT, or +N: that far above the first gRPC port (not in Kafka).",
    ),
)

BROKER_GROUPS: dict[str, tuple[Setting, ...]] = {
    "Identity and network": _IDENTITY_AND_NETWORK,
    "Security and connections": SECURITY_SETTINGS,
    "ZooKeeper": _ZOOKEEPER,
    "Topics": _TOPICS,
    "Replication": _REPLICATION,
    "Controller": _CONTROLLER,
    "Log": LOG_SETTINGS,
    "Consumer groups": GROUP_SETTINGS,
    "Share groups": SHARE_SETTINGS,
    "Transactions": TRANSACTION_SETTINGS,
    "Client quotas": _QUOTAS,
    "Tidegauge's own": _OWN,
}

BROKER_SETTINGS: dict[str, Setting] = {setting.name: setting for group in BROKER_GROUPS.values() for setting in group}
_OTHER_DEFAULTS = {
    "group.coordinator.append.linger.ms": -1,
    "group.coordinator.threads": 4,
    "log.message.timestamp.after.max.ms": 3_600_000,
    "num.recovery.threads.per.data.dir": 2,
}
_ADVERTISED = "advertised.listeners"
_PROTOCOLS = "group.coordinator.rebalance.protocols"
_KRAFT_PROTOCOLS = ("classic", "consumer", "streams")
_DYNAMIC_IN_KAFKA_4 = ("group.consumer.assignment.interval.ms", "group.share.assignment.interval.ms")
"""``GroupCoordinatorConfig.RECONFIGURABLE_CONFIGS``, but for what brokers here do not have."""
KRAFT_BROKER_SETTINGS = BROKER_SETTINGS | {
    **{name: replace(BROKER_SETTINGS[name], default=default) for name, default in _OTHER_DEFAULTS.items()},
    **{name: replace(BROKER_SETTINGS[name], update="cluster-wide") for name in _DYNAMIC_IN_KAFKA_4},
    _PROTOCOLS: replace(BROKER_SETTINGS[_PROTOCOLS], default=_KRAFT_PROTOCOLS, choices=_KRAFT_PROTOCOLS),
    _ADVERTISED: replace(BROKER_SETTINGS[_ADVERTISED], update="read-only"),
}
"""The settings of a broker in KRaft mode: the same ones with Kafka 4's defaults (KIP-1030, KIP-848).

A broker registers its addresses at its start alone: ``advertised.listeners`` is in the ``RECONFIGURABLE_CONFIGS`` of no
part of Kafka 4 (``DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS``).
"""
