"""The one declarative table of settings: Kafka's name, type, default, unit, range, meaning, who may change it.

``server.properties``, topic configs, ``--set`` and ``docs/configuration.md`` come from here. Defaults are those
of Kafka 3.9 (kafka-behaviour 9); a setting that Kafka does not have says so in its text. Only settings that
Tidegauge honours stand here. Values are checked once, when they are read; inside, a parsed value is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidegauge.errors import ErrorCode, TidegaugeError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

Kind = Literal["int", "bool", "float", "text", "list"]
Scope = Literal["broker", "topic"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: Kafka's name.
        kind: how its text is read.
        default: the parsed default; None where absent means something of its own.
        meaning: one sentence, with the unit.
        minimum, maximum: inclusive bounds of a number.
        choices: legal texts (for a list: legal members).
        broker_key: for a topic setting, the broker setting that gives its default.
        dynamic: whether it may change while the broker runs.
    """

    name: str
    kind: Kind
    default: Any
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    broker_key: str | None = None
    dynamic: bool = False

    def parse(self, text: str) -> Any:
        """Read a value.

        Raises:
            TidegaugeError: INVALID_CONFIG, with the key, the value and what would be legal.
        """
        text = text.strip()
        try:
            value = self._convert(text)
        except ValueError:
            raise self._refusal(text) from None
        if self.kind in {"int", "float"} and (
            (self.minimum is not None and value < self.minimum) or (self.maximum is not None and value > self.maximum)
        ):
            raise self._refusal(text)
        if self.choices:
            members = value if self.kind == "list" else [value]
            if not members or any(member not in self.choices for member in members):
                raise self._refusal(text)
        return value

    def _convert(self, text: str) -> Any:
        if self.kind == "int":
            return int(text)
        if self.kind == "float":
            return float(text)
        if self.kind == "bool":
            return {"true": True, "false": False}[text.lower()] if text.lower() in {"true", "false"} else self._no(text)
        if self.kind == "list":
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return text

    @staticmethod
    def _no(text: str) -> Any:
        raise ValueError(text)

    def legal(self) -> str:
        """What is legal, for people."""
        if self.choices:
            return " or ".join(self.choices)
        if self.kind == "bool":
            return "true or false"
        if self.kind in {"int", "float"}:
            noun = "a whole number" if self.kind == "int" else "a number"
            if self.minimum is not None and self.maximum is not None:
                return f"{noun} from {self.minimum:g} to {self.maximum:g}"
            if self.minimum is not None:
                return f"{noun}, at least {self.minimum:g}"
            return noun
        return "text"

    def text_of(self, value: Any) -> str:
        """A parsed value as it would stand in a properties file."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _refusal(self, text: str) -> TidegaugeError:
        return TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {text!r} for configuration {self.name}: it must be {self.legal()}",
        )


def _broker_settings() -> list[Setting]:
    s = Setting
    return [
        # Identity and network
        s("broker.id", "int", -1, "Id of this broker; -1: taken from meta.properties or generated.", -1, INT_MAX),
        s("broker.rack", "text", None, "Rack of this broker, for rack-aware assignment."),
        s("listeners", "text", "PLAINTEXT://127.0.0.1:9092", "Address and port to bind."),
        s("advertised.listeners", "text", None, "Address and port that clients shall use; default: listeners."),
        s("log.dirs", "list", ("/tmp/kafka-logs",), "Folders for partition logs.", dynamic=False),
        s("request.timeout.ms", "int", 30000, "Time for a request between brokers, in ms.", 1, INT_MAX),
        s("socket.request.max.bytes", "int", 104857600, "Largest request accepted, in bytes.", 1, INT_MAX),
        # ZooKeeper
        s("zookeeper.connect", "text", None, "ZooKeeper servers as host:port,... with an optional /chroot."),
        s("zookeeper.session.timeout.ms", "int", 18000, "ZooKeeper session timeout, in ms.", 1, INT_MAX),
        s("zookeeper.connection.timeout.ms", "int", None, "Time to reach ZooKeeper at start, in ms.", 1, INT_MAX),
        s("zookeeper.max.in.flight.requests", "int", 10, "Pipelined requests to ZooKeeper.", 1, INT_MAX),
        # Topics
        s("auto.create.topics.enable", "bool", True, "Create an unknown topic when a client asks for it."),
        s("num.partitions", "int", 1, "Partitions of a topic created without a count.", 1, INT_MAX),
        s("default.replication.factor", "int", 1, "Replicas of a topic created without a factor.", 1, 32767),
        s("delete.topic.enable", "bool", True, "Allow topics to be deleted."),
        # Replication
        s(
            "replica.lag.time.max.ms",
            "int",
            30000,
            "Longest time not caught up before leaving the ISR, in ms.",
            1,
            INT_MAX,
        ),
        s("replica.fetch.wait.max.ms", "int", 500, "How long a follower's fetch waits for data, in ms.", 0, INT_MAX),
        s("replica.fetch.min.bytes", "int", 1, "Bytes that end a follower's wait.", 0, INT_MAX),
        s("replica.fetch.max.bytes", "int", 1048576, "Soft limit for a partition in a fetch, in bytes.", 0, INT_MAX),
        s("replica.fetch.response.max.bytes", "int", 10485760, "Soft limit of a whole fetch, in bytes.", 0, INT_MAX),
        s("replica.fetch.backoff.ms", "int", 1000, "Pause after a failed fetch, in ms.", 0, INT_MAX),
        s("replica.socket.timeout.ms", "int", 30000, "Time for a fetch between brokers, in ms.", 1, INT_MAX),
        s(
            "replica.high.watermark.checkpoint.interval.ms",
            "int",
            5000,
            "Time between two writes of replication-offset-checkpoint, in ms.",
            1,
            LONG_MAX,
        ),
        s(
            "replica.truncation.rule",
            "text",
            "kip-320",
            "By which step of Kafka's history followers truncate; so far only the newest (not in Kafka).",
            choices=("kip-320",),
        ),
        s(
            "replica.reelected.leader.keeps.follower.state",
            "bool",
            False,
            "Kafka 3.9 counts fetches of an earlier epoch after a re-election; the default does not (not in Kafka).",
        ),
        s(
            "min.insync.replicas",
            "int",
            1,
            "In-sync replicas that acks=all needs, and below which the high watermark stands still.",
            1,
            INT_MAX,
            dynamic=True,
        ),
        s(
            "unclean.leader.election.enable",
            "bool",
            False,
            "Allow a leader from outside the ISR; may lose acknowledged records.",
            dynamic=True,
        ),
        s("fetch.max.bytes", "int", 57671680, "Soft limit of a consumer's fetch, in bytes.", 1024, INT_MAX),
        # Controller
        s("auto.leader.rebalance.enable", "bool", True, "Give leadership back to preferred leaders by itself."),
        s(
            "leader.imbalance.check.interval.seconds",
            "int",
            300,
            "Time between two looks at the balance, in seconds.",
            1,
            INT_MAX,
        ),
        s(
            "leader.imbalance.per.broker.percentage",
            "int",
            10,
            "Misplaced leaders of a broker that are tolerated, in percent.",
            0,
            100,
        ),
        s("controller.socket.timeout.ms", "int", 30000, "Time for a control request, in ms.", 1, INT_MAX),
        s("controlled.shutdown.enable", "bool", True, "Move leaders away before stopping."),
        s("controlled.shutdown.max.retries", "int", 3, "Attempts at that.", 1, INT_MAX),
        s("controlled.shutdown.retry.backoff.ms", "int", 5000, "Pause between attempts, in ms.", 0, INT_MAX),
        # Log
        s("message.max.bytes", "int", 1048588, "Largest record batch, in bytes.", 0, INT_MAX, dynamic=True),
        s(
            "log.segment.bytes",
            "int",
            1073741824,
            "Size at which a segment is rolled, in bytes.",
            14,
            INT_MAX,
            dynamic=True,
        ),
        s("log.roll.ms", "int", 604800000, "Age at which a segment is rolled, in ms.", 1, LONG_MAX, dynamic=True),
        s("log.index.size.max.bytes", "int", 10485760, "Largest index file, in bytes.", 4, INT_MAX, dynamic=True),
        s("log.index.interval.bytes", "int", 4096, "Log bytes between two index entries.", 0, INT_MAX, dynamic=True),
        s(
            "log.retention.ms",
            "int",
            604800000,
            "Age at which segments are deleted, in ms; -1: never.",
            -1,
            LONG_MAX,
            dynamic=True,
        ),
        s(
            "log.retention.bytes",
            "int",
            -1,
            "Size of a partition above which segments are deleted, in bytes; -1: none.",
            -1,
            LONG_MAX,
            dynamic=True,
        ),
        s("log.retention.check.interval.ms", "int", 300000, "Time between two looks at retention, in ms.", 1, LONG_MAX),
        s(
            "log.segment.delete.delay.ms",
            "int",
            60000,
            "Time before a deleted file goes, in ms.",
            0,
            LONG_MAX,
            dynamic=True,
        ),
        s(
            "log.cleanup.policy",
            "list",
            ("delete",),
            "delete, compact, or both.",
            choices=("delete", "compact"),
            dynamic=True,
        ),
        s("log.cleaner.enable", "bool", True, "Compact the logs of topics whose cleanup.policy has compact."),
        s(
            "log.cleaner.backoff.ms",
            "int",
            15000,
            "Pause when there is no log to compact, in ms.",
            0,
            LONG_MAX,
            dynamic=True,
        ),
        s(
            "log.cleaner.dedupe.buffer.size",
            "int",
            134217728,
            "Memory for the map of keys of one compaction, in bytes; it bounds how much is compacted at once.",
            1048576,
            LONG_MAX,
            dynamic=True,
        ),
        s(
            "log.cleaner.min.cleanable.ratio",
            "float",
            0.5,
            "Share of bytes not yet compacted above which a log is compacted.",
            0,
            1,
            dynamic=True,
        ),
        s(
            "log.cleaner.delete.retention.ms",
            "int",
            86400000,
            "How long a tombstone stays after its first compaction, in ms.",
            0,
            LONG_MAX,
            dynamic=True,
        ),
        s(
            "log.cleaner.min.compaction.lag.ms",
            "int",
            0,
            "Time that a record stays uncompacted at least, in ms.",
            0,
            LONG_MAX,
            dynamic=True,
        ),
        s(
            "log.cleaner.max.compaction.lag.ms",
            "int",
            LONG_MAX,
            "Time after which a record makes its log be compacted whatever the ratio, in ms.",
            1,
            LONG_MAX,
            dynamic=True,
        ),
        s(
            "log.flush.interval.messages",
            "int",
            LONG_MAX,
            "Records after which a log is flushed to disk.",
            1,
            LONG_MAX,
            dynamic=True,
        ),
        s(
            "log.flush.offset.checkpoint.interval.ms",
            "int",
            60000,
            "Time between two writes of recovery-point-offset-checkpoint, in ms.",
            0,
            INT_MAX,
        ),
        s(
            "log.flush.start.offset.checkpoint.interval.ms",
            "int",
            60000,
            "Time between two writes of log-start-offset-checkpoint, in ms.",
            0,
            INT_MAX,
        ),
        s(
            "log.initial.task.delay.ms",
            "int",
            30000,
            "Pause before the log's periodic tasks begin, in ms.",
            0,
            LONG_MAX,
        ),
        s("num.recovery.threads.per.data.dir", "int", 1, "Threads that recover the logs of a folder.", 1, INT_MAX),
        s(
            "log.message.timestamp.type",
            "text",
            "CreateTime",
            "Whose time a record carries.",
            choices=("CreateTime", "LogAppendTime"),
            dynamic=True,
        ),
        s(
            "producer.id.expiration.ms",
            "int",
            86400000,
            "Idle time after which a producer is forgotten, in ms.",
            1,
            INT_MAX,
        ),
        # Tidegauge's own
        s("lab.enable", "bool", False, "Offer the Lab service with its fault switches (not in Kafka)."),
        s("event.log.file", "text", None, "File for the event log, one JSON object a line (not in Kafka)."),
    ]


def _topic_settings() -> list[Setting]:
    s = Setting
    return [
        s(
            "cleanup.policy",
            "list",
            ("delete",),
            "delete, compact, or both.",
            choices=("delete", "compact"),
            broker_key="log.cleanup.policy",
        ),
        s(
            "delete.retention.ms",
            "int",
            86400000,
            "How long a tombstone stays after its first compaction, in ms.",
            0,
            LONG_MAX,
            broker_key="log.cleaner.delete.retention.ms",
        ),
        s(
            "file.delete.delay.ms",
            "int",
            60000,
            "Time before a deleted file goes, in ms.",
            0,
            LONG_MAX,
            broker_key="log.segment.delete.delay.ms",
        ),
        s(
            "flush.messages",
            "int",
            LONG_MAX,
            "Records after which the log is flushed to disk.",
            1,
            LONG_MAX,
            broker_key="log.flush.interval.messages",
        ),
        s(
            "index.interval.bytes",
            "int",
            4096,
            "Log bytes between two index entries.",
            0,
            INT_MAX,
            broker_key="log.index.interval.bytes",
        ),
        s(
            "max.compaction.lag.ms",
            "int",
            LONG_MAX,
            "Time after which a record makes its log be compacted whatever the ratio, in ms.",
            1,
            LONG_MAX,
            broker_key="log.cleaner.max.compaction.lag.ms",
        ),
        s(
            "max.message.bytes",
            "int",
            1048588,
            "Largest record batch, in bytes.",
            0,
            INT_MAX,
            broker_key="message.max.bytes",
        ),
        s(
            "message.timestamp.type",
            "text",
            "CreateTime",
            "Whose time a record carries.",
            choices=("CreateTime", "LogAppendTime"),
            broker_key="log.message.timestamp.type",
        ),
        s(
            "min.cleanable.dirty.ratio",
            "float",
            0.5,
            "Share of bytes not yet compacted above which the log is compacted.",
            0,
            1,
            broker_key="log.cleaner.min.cleanable.ratio",
        ),
        s(
            "min.compaction.lag.ms",
            "int",
            0,
            "Time that a record stays uncompacted at least, in ms.",
            0,
            LONG_MAX,
            broker_key="log.cleaner.min.compaction.lag.ms",
        ),
        s(
            "min.insync.replicas",
            "int",
            1,
            "In-sync replicas that acks=all needs.",
            1,
            INT_MAX,
            broker_key="min.insync.replicas",
        ),
        s(
            "retention.bytes",
            "int",
            -1,
            "Size above which segments are deleted, in bytes; -1: none.",
            -1,
            LONG_MAX,
            broker_key="log.retention.bytes",
        ),
        s(
            "retention.ms",
            "int",
            604800000,
            "Age at which segments are deleted, in ms; -1: never.",
            -1,
            LONG_MAX,
            broker_key="log.retention.ms",
        ),
        s(
            "segment.bytes",
            "int",
            1073741824,
            "Size at which a segment is rolled, in bytes.",
            14,
            INT_MAX,
            broker_key="log.segment.bytes",
        ),
        s(
            "segment.index.bytes",
            "int",
            10485760,
            "Largest index file, in bytes.",
            4,
            INT_MAX,
            broker_key="log.index.size.max.bytes",
        ),
        s(
            "segment.ms",
            "int",
            604800000,
            "Age at which a segment is rolled, in ms.",
            1,
            LONG_MAX,
            broker_key="log.roll.ms",
        ),
        s(
            "unclean.leader.election.enable",
            "bool",
            False,
            "Allow a leader from outside the ISR.",
            broker_key="unclean.leader.election.enable",
        ),
    ]


BROKER_SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _broker_settings()}
TOPIC_SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _topic_settings()}


@dataclass(frozen=True, slots=True)
class Values:
    """Parsed settings of one scope: those that were given, over the defaults."""

    table: Mapping[str, Setting]
    given: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """The value in force; KeyError for a name that the table lacks."""
        if name in self.given:
            return self.given[name]
        return self.table[name].default

    def integer(self, name: str) -> int:
        """An int setting."""
        return int(self[name])

    def flag(self, name: str) -> bool:
        """A bool setting."""
        return bool(self[name])

    def text(self, name: str) -> str:
        """A text setting; an absent one is empty."""
        value = self[name]
        return "" if value is None else str(value)

    def is_default(self, name: str) -> bool:
        """Whether nobody gave it."""
        return name not in self.given


def read_properties(text: str) -> dict[str, str]:
    """Read a Java properties file as far as server.properties needs it: ``key=value``, ``#`` and ``!`` comments."""
    found: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        cut = min((at for at in (line.find("="), line.find(":")) if at >= 0), default=len(line))
        found[line[:cut].strip()] = line[cut + 1 :].strip()
    return found


def read_assignments(pairs: Iterable[str], what: str) -> dict[str, str]:
    """Read ``key=value`` texts of the command line.

    Raises:
        TidegaugeError: INVALID_CONFIG, a text has no ``=``.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"{what} {pair!r} must have the form key=value")
        found[key.strip()] = value.strip()
    return found


def parse_broker_settings(texts: Mapping[str, str]) -> tuple[Values, list[str]]:
    """Parse a broker's settings and hold Kafka's cross checks.

    Returns:
        The values, and the names that the table lacks (Kafka warns of those and goes on).

    Raises:
        TidegaugeError: INVALID_CONFIG, a value is illegal or two contradict each other.
    """
    given = {name: BROKER_SETTINGS[name].parse(text) for name, text in texts.items() if name in BROKER_SETTINGS}
    values = Values(BROKER_SETTINGS, given)
    for other in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if values["replica.fetch.wait.max.ms"] > values[other]:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"replica.fetch.wait.max.ms ({values['replica.fetch.wait.max.ms']}) must not be larger than "
                f"{other} ({values[other]}): followers would be taken for dead or lagging while they wait",
            )
    return values, sorted(name for name in texts if name not in BROKER_SETTINGS)


def parse_topic_settings(texts: Mapping[str, str], broker: Values | None = None) -> Values:
    """Parse a topic's settings over its broker's.

    Raises:
        TidegaugeError: INVALID_CONFIG, a name is unknown or a value illegal.
    """
    given: dict[str, Any] = {}
    if broker is not None:
        for setting in TOPIC_SETTINGS.values():
            key = setting.broker_key
            if key is not None and not broker.is_default(key):
                given[setting.name] = broker[key]
    for name, text in texts.items():
        if name not in TOPIC_SETTINGS:
            raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        given[name] = TOPIC_SETTINGS[name].parse(text)
    return Values(TOPIC_SETTINGS, given)
