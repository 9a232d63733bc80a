"""The table of settings of a controller in KRaft mode: Kafka 4.3's names, defaults and ranges.

Source: Kafka's KRaftConfigs, QuorumConfig, MetadataLogConfig, ServerConfigs; KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings.broker_groups import GROUP_SETTINGS
from tidegauge.settings.broker_security import SECURITY_SETTINGS
from tidegauge.settings.broker_share import SHARE_SETTINGS
from tidegauge.settings.group import BOUNDING
from tidegauge.settings.model import Setting, Values
from tidegauge.settings.parsing import setting_in
from tidegauge.settings.tables import flag, long, names, text, whole

ROLES = ("broker", "controller")
_VOTER = r"-?[0-9]+@[^@,\s]+:[0-9]{1,5}"
_SERVER = r"(\[[0-9A-Fa-f:.]+\]|[^:,\s]+):[0-9]{1,5}"
_MIB = 1024 * 1024
_DAY_MS = 86_400_000

_IDENTITY = (
    names("process.roles", None, "Roles of the process: controller here; it must be given.", ROLES),
    whole("node.id", None, "", "Id of this node, unique among controllers and brokers; it must be given.", 0),
    text("listeners", None, "Addresses to bind, as NAME://HOST:PORT,...; a controller has only its role's."),
    text("advertised.listeners", None, "Addresses given to other nodes, by listener name; absent: listeners."),
    names("controller.listener.names", None, "Names of the controllers' listeners; the first one is dialled."),
    names(
        "listener.security.protocol.map",
        ("CONTROLLER:PLAINTEXT",),
        "Protocol of each listener, as NAME:PROTOCOL,...: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; else by its name.",
    ),
    names("log.dirs", None, "Log directories; absent: log.dir."),
    text("log.dir", "/tmp/kafka-logs", "The log directory, if log.dirs is absent."),
    text("metadata.log.dir", None, "Directory of the metadata log; absent: the first of log.dirs."),
    text("event.log.file", None, "File of the node's events, as JSON lines; absent: none. Not a setting of Kafka."),
    text(
        "metrics.listener",
        None,
        "Address of the metrics for Prometheus: HOST:PORT, or +N: that far above the first listener's port; if the "
        "process is a broker, too, above the broker's. Not a setting of Kafka.",
    ),
    text(
        "lab.listener",
        None,
        "HOST:PORT for health and the lab's faults over gRPC; absent: none. Not a setting of Kafka.",
    ),
    whole("socket.request.max.bytes", 104_857_600, "bytes", "Largest request accepted.", 1),
    long("connections.max.idle.ms", 600_000, "ms", "Idle time after which a connection is closed; -1: never.", -1),
)
_QUORUM = (
    names(
        "controller.quorum.voters",
        (),
        "Static voters, as ID@HOST:PORT,...; empty: the voters are in the log (KIP-853).",
        members=(_VOTER, "a list of ID@HOST:PORT"),
    ),
    names(
        "controller.quorum.bootstrap.servers",
        (),
        "Controllers at which to look for the leader, as HOST:PORT,...",
        members=(_SERVER, "a list of HOST:PORT"),
    ),
    whole(
        "controller.quorum.election.timeout.ms",
        1000,
        "ms",
        "A candidate waits for votes between this time and its double.",
        0,
    ),
    whole(
        "controller.quorum.fetch.timeout.ms",
        2000,
        "ms",
        "A follower stands for election if its leader does not respond for this long; a leader resigns after one and a "
        "half times this long without fetches of a majority.",
        0,
    ),
    whole(
        "controller.quorum.election.backoff.max.ms",
        1000,
        "ms",
        "Longest wait of a voter that a resigned leader does not prefer.",
        0,
    ),
    whole("controller.quorum.append.linger.ms", 25, "ms", "How long records are gathered into one batch.", 0),
    whole("controller.quorum.request.timeout.ms", 2000, "ms", "Timeout of a request in the quorum.", 0),
    whole("controller.quorum.retry.backoff.ms", 20, "ms", "Back-off after a request in the quorum that failed.", 0),
    whole("controller.quorum.fetch.max.bytes", _MIB, "bytes", "Limit of the records in one Fetch response.", 0),
    whole(
        "controller.quorum.fetch.snapshot.max.bytes",
        _MIB,
        "bytes",
        "Limit of the bytes in one FetchSnapshot response.",
        1,
    ),
    flag(
        "controller.quorum.auto.join.enable",
        False,
        "Whether a controller adds itself to the voters (KIP-853).",
        has_effect=False,
    ),
)
_METADATA_LOG = (
    whole("metadata.log.segment.bytes", 1024 * _MIB, "bytes", "Size at which a segment is rolled.", 8 * _MIB),
    whole(
        "internal.metadata.log.segment.bytes",
        None,
        "bytes",
        "Size at which a segment is rolled, without the lower limit; for tests.",
        1024,
    ),
    long("metadata.log.segment.ms", 7 * _DAY_MS, "ms", "Age at which a segment is rolled.", 1),
    long(
        "metadata.max.retention.bytes",
        100 * _MIB,
        "bytes",
        "Size of log and snapshots above which old ones are deleted; -1: no limit.",
        -1,
    ),
    long(
        "metadata.max.retention.ms", 7 * _DAY_MS, "ms", "Age above which old snapshots are deleted; -1: no limit.", -1
    ),
    long("internal.metadata.delete.delay.millis", 60_000, "ms", "Time until a deleted file is removed; for tests.", 0),
    long(
        "metadata.log.max.record.bytes.between.snapshots",
        20 * _MIB,
        "bytes",
        "Records after which a snapshot is written.",
        1,
    ),
    long(
        "metadata.log.max.snapshot.interval.ms",
        3_600_000,
        "ms",
        "Time after which a snapshot is written; 0: no limit.",
        0,
    ),
    whole(
        "metadata.max.idle.interval.ms",
        500,
        "ms",
        "How often the active controller writes a NoOpRecord; 0: never.",
        0,
    ),
)
_LIFECYCLE = (
    whole(
        "initial.broker.registration.timeout.ms",
        60_000,
        "ms",
        "Time within which a broker must have registered, or it ends.",
        1,
    ),
    long(
        "log.dir.failure.timeout.ms",
        30_000,
        "ms",
        "Time within which the controller must have acknowledged a failed log directory, or the broker ends.",
        1,
    ),
)
_CLUSTER = (
    whole("broker.session.timeout.ms", 9000, "ms", "Time without heartbeats after which a broker is fenced.", 1),
    whole("broker.heartbeat.interval.ms", 2000, "ms", "Interval of heartbeats; one waits half of it for its turn.", 1),
    whole("num.partitions", 1, "", "Partitions of a topic created without a count.", 1),
    whole("default.replication.factor", 1, "", "Replicas of a topic created without a factor.", 1),
    whole("min.insync.replicas", 1, "", "Default of the cluster, written when eligible leader replicas begin.", 1),
    flag("unclean.leader.election.enable", False, "Whether a replica outside the ISR may lead if no other can."),
    long("unclean.leader.election.interval.ms", 300_000, "ms", "Interval between looks for such partitions.", 1),
    flag("auto.leader.rebalance.enable", True, "Elect preferred leaders automatically."),
    long("leader.imbalance.check.interval.seconds", 300, "s", "Interval between checks of leader imbalance.", 1),
    flag("delete.topic.enable", True, "Allow topics to be deleted."),
    whole("controller.quota.window.num", 11, "", "Samples whose mutations of topics may come at once (KIP-599).", 1),
    whole("controller.quota.window.size.seconds", 1, "s", "Time span of each.", 1),
    text(
        "authorizer.class.name",
        "",
        "Authorizer at this controller, by the lists of the metadata; empty: all is allowed.",
        ("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ),
    text("super.users", None, "Principals that may do everything, with semicolons between them: User:admin;User:b."),
    flag("allow.everyone.if.no.acl.found", False, "Whether a resource without any list may be used by everyone."),
)

_OF_LISTENERS = frozenset(
    {
        *(one.name for one in SECURITY_SETTINGS if one.name.startswith("ssl.")),
        *("sasl.enabled.mechanisms", "sasl.jaas.config", "connections.max.reauth.ms"),
        *("connection.failed.authentication.delay.ms", "sasl.server.max.receive.size"),
    }
)
_SECURITY = (
    *(one for one in SECURITY_SETTINGS if one.name in _OF_LISTENERS),
    text(
        "sasl.mechanism.controller.protocol",
        "GSSAPI",
        "SASL mechanism by which this node logs in at controllers, if their listener has SASL; its credentials are "
        "username and password of that listener's sasl.jaas.config.",
    ),
)
_GROUPS = tuple(one for one in (*GROUP_SETTINGS, *SHARE_SETTINGS) if one.name in BOUNDING)
CONTROLLER_GROUPS: dict[str, tuple[Setting, ...]] = {
    "identity and listeners": _IDENTITY,
    "quorum": _QUORUM,
    "metadata log": _METADATA_LOG,
    "lifecycle of a broker": _LIFECYCLE,
    "brokers and topics": _CLUSTER,
    "TLS and SASL of their listeners": _SECURITY,
    "bounds of groups' settings": _GROUPS,
}
CONTROLLER_SETTINGS = {setting.name: setting for group in CONTROLLER_GROUPS.values() for setting in group}


def parse_node_settings(texts: Mapping[str, str]) -> tuple[Values, list[str]]:
    """Parse the settings of a node in KRaft mode and apply Kafka's checks across them.

    Returns:
        the values, and the names that the table lacks: Kafka logs a warning and starts.

    Raises:
        TidegaugeError: INVALID_CONFIG, a value is illegal or missing, or two contradict each other.
    """
    known = {name: setting for name in texts if (setting := setting_in(CONTROLLER_SETTINGS, name)) is not None}
    values = Values(CONTROLLER_SETTINGS, {name: setting.parse(texts[name]) for name, setting in known.items()})
    for name in ("process.roles", "node.id"):
        if not values[name] and values[name] != 0:
            raise _refusal(f'Missing required configuration "{name}" which has no default value.')
    if not values["controller.quorum.voters"] and not values["controller.quorum.bootstrap.servers"]:
        raise _refusal(
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
            "controllers or controller.quorum.voters must contain a parseable set of controllers."
        )
    if not values["controller.listener.names"]:
        raise _refusal("controller.listener.names must contain at least one value when running KRaft")
    return values, sorted(texts.keys() - known.keys())


def _refusal(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, sentence)
