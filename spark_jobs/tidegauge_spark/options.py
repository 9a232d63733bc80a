"""The options of the data source, read once and rejected with a sentence.

Contract: pure. Names, meaning, precedence and defaults are those of Spark's Kafka source, so that between the two only
``format`` changes; names are compared without case, as Spark does. ``bootstrap.servers`` is accepted with and without
the prefix ``kafka.``. An option that would silently differ from Spark is rejected; unknown options are ignored, as
Spark does.

Precedence: startingTimestamp, startingOffsetsByTimestamp, startingOffsets; the same for the end.

Source: ``KafkaSourceProvider`` (its sentences too), structured-streaming-kafka-integration.md of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition, topic_name_problem
from tidegauge_spark.offsets import EARLIEST, LATEST, parse_assignment, parse_offsets

REFUSED = {
    "auto.offset.reset": ". Instead set the source option 'startingOffsets' to 'earliest' or 'latest' to specify "
    "where to start",
    "key.deserializer": " as keys are always binary. Use DataFrame operations to explicitly deserialize the keys",
    "value.deserializer": " as values are always binary. Use DataFrame operations to explicitly deserialize the values",
    "enable.auto.commit": ": offsets are kept in the query's checkpoint",
    "interceptor.classes": ": interceptors could change what is read",
}
"""Why each of these options of Kafka, with the prefix ``kafka.``, "is not supported"."""
STRATEGIES = {
    "subscribe": "No topics to subscribe to as specified value for option 'subscribe' is '{}'",
    "subscribePattern": "Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{}'",
    "assign": "No topicpartitions to assign as specified value for option 'assign' is '{}'",
}
"""The options that name what is read, and the sentence for an empty one."""
ENDING = {
    "endingoffsets": "ending offset not valid in streaming queries",
    "endingoffsetsbytimestamp": "ending timestamp not valid in streaming queries",
    "endingtimestamp": "ending timestamp not valid in streaming queries",
}
IGNORED = {
    "kafka.group.id": "this source is no member of a consumer group",
    "groupidprefix": "this source is no member of a consumer group",
}
IGNORED_IN_BATCH = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay")
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000


class Subscription(NamedTuple):
    """The partitions that are read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    pattern: str = ""

    def covers(self, topic_partition: TopicPartition) -> bool:
        """Return whether a partition, if it exists, is one of them."""
        if self.pattern:
            return re.search(self.pattern, topic_partition.topic) is not None
        return topic_partition.topic in self.topics or topic_partition in self.assigned

    def __str__(self) -> str:
        if self.topics:
            return f"Subscribe[{', '.join(self.topics)}]"
        if self.assigned:
            return f"Assign[{', '.join(map(str, self.assigned))}]"
        return f"SubscribePattern[{self.pattern}]"


class OffsetLimit(NamedTuple):
    """Where reading begins or ends.

    Attributes:
        everywhere: EARLIEST or LATEST for all partitions; None when ``offsets`` or a time is given.
        offsets: an offset, or EARLIEST or LATEST, for each partition.
        timestamp_ms: for all partitions, the first record at or after this time.
        timestamps_ms: the same for each partition.
    """

    everywhere: int | None = None
    offsets: Mapping[TopicPartition, int] = {}
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] = {}


class SecurityProperties(tuple[tuple[str, str], ...]):
    """``security.protocol``, ``ssl.*`` and ``sasl.*`` as Kafka names them; they hold secrets, and are never shown.

    Files are read when a connection is made, on the driver and on each worker, as Spark's own source does.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"SecurityProperties({', '.join(name for name, _ in self)})"


def security_properties(options: Mapping[str, str]) -> SecurityProperties:
    """Return the security properties among a reader's or writer's options.

    Raises:
        TidegaugeError: INVALID_CONFIG, an unknown protocol.
    """
    found = {
        name.removeprefix("kafka."): str(value)
        for name, value in options.items()
        if name == "kafka.security.protocol" or name.startswith(("kafka.ssl.", "kafka.sasl."))
    }
    protocol = found.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "SASL_PLAINTEXT":
        raise _refuse(
            "kafka.security.protocol is SASL_PLAINTEXT: over gRPC credentials travel under TLS alone; write SASL_SSL"
        )
    if protocol not in {"PLAINTEXT", "SSL", "SASL_SSL"}:
        raise _refuse(f"kafka.security.protocol is {protocol!r}; it must be PLAINTEXT, SSL or SASL_SSL")
    return SecurityProperties(sorted(found.items()))


class ConnectionOptions(NamedTuple):
    """How to connect to the cluster.

    Attributes:
        bootstrap_servers: bootstrap addresses.
        request_timeout_ms: timeout of one call, which detects a paused broker.
        api_timeout_ms: how long requests for partitions and offsets are retried.
        poll_timeout_ms: how long a task continues without reading a single record.
        fetch_max_bytes: soft limit of one response.
        retry_backoff_ms: back-off after the first failure; doubled up to a second.
        security: how connections are protected.
        reads_committed: whether records of open and of aborted transactions are left out (read_committed, KIP-98).
    """

    bootstrap_servers: tuple[str, ...]
    request_timeout_ms: int = 5_000
    api_timeout_ms: int = 60_000
    poll_timeout_ms: int = 120_000
    fetch_max_bytes: int = 1_048_576
    retry_backoff_ms: int = 100
    security: SecurityProperties = SecurityProperties()
    reads_committed: bool = False


class Columns(NamedTuple):
    """The optional columns: headers; leaderEpoch and highWatermark, which Kafka's source does not have."""

    headers: bool = False
    leader_epoch: bool = False


class Options(NamedTuple):
    """All options of one reader."""

    connection: ConnectionOptions
    subscription: Subscription
    starting: OffsetLimit
    ending: OffsetLimit
    latest_if_no_match: bool
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    columns: Columns
    offset_retries: int
    offset_retry_interval_ms: int


def _refuse(message: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, message)


def whole_number(options: Mapping[str, str], name: str, default: int | None, lowest: int) -> int | None:
    """Return an integer, or the default.

    Raises:
        TidegaugeError: INVALID_CONFIG, not a number or below the lowest.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        number = int(str(text))
    except ValueError:
        number = lowest - 1
    if number < lowest:
        must = "must be a positive whole number" if lowest == 1 else f"must be a whole number of at least {lowest}"
        raise _refuse(f"{name} {must}, not {text!r}")
    return number


def _number(options: Mapping[str, str], name: str, default: int, lowest: int = 1) -> int:
    value = whole_number(options, name, default, lowest)
    assert value is not None
    return value


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Return true or false, or the default.

    Raises:
        TidegaugeError: INVALID_CONFIG, anything else.
    """
    text = str(options.get(name.lower(), default)).lower()
    if text not in {"true", "false"}:
        raise _refuse(f"{name} is {text!r}; it must be true or false")
    return text == "true"


def parse_bootstrap_servers(text: str) -> tuple[str, ...]:
    """Read ``host:port,host:port``.

    Raises:
        TidegaugeError: INVALID_CONFIG, empty or an address without a port.
    """
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise _refuse(f"Invalid url in bootstrap.servers: {address}. Write host:port, for example 127.0.0.1:19092")
    if not addresses:
        raise _refuse(
            "No resolvable bootstrap urls given in bootstrap.servers: option kafka.bootstrap.servers is empty"
        )
    return addresses


def _bootstrap_servers(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get("kafka.bootstrap.servers") or options.get("bootstrap.servers")
    if not text:
        raise _refuse(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer: host:port,host:port"
        )
    return parse_bootstrap_servers(text)


def _connection(options: Mapping[str, str]) -> ConnectionOptions:
    default = ConnectionOptions(_bootstrap_servers(options))
    return default._replace(
        request_timeout_ms=_number(options, "kafka.request.timeout.ms", default.request_timeout_ms),
        api_timeout_ms=_number(options, "kafka.default.api.timeout.ms", default.api_timeout_ms),
        poll_timeout_ms=_number(options, "kafkaConsumer.pollTimeoutMs", default.poll_timeout_ms),
        fetch_max_bytes=_number(options, "kafka.max.partition.fetch.bytes", default.fetch_max_bytes),
        retry_backoff_ms=_number(options, "kafka.retry.backoff.ms", default.retry_backoff_ms),
        security=security_properties(options),
        reads_committed=_reads_committed(options),
    )


def _reads_committed(options: Mapping[str, str]) -> bool:
    """Return whether ``kafka.isolation.level`` is read_committed; the default is that of Kafka's consumer."""
    level = str(options.get("kafka.isolation.level", "read_uncommitted"))
    if level not in {"read_committed", "read_uncommitted"}:
        raise _refuse(
            f"Invalid value {level} for configuration isolation.level: String must be one of: read_committed, "
            "read_uncommitted"
        )
    return level == "read_committed"


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in STRATEGIES if name.lower() in options]
    named = f"for Kafka source: {', '.join(STRATEGIES)}"
    if not given:
        raise _refuse(f"One of the following options must be specified {named}")
    if len(given) > 1:
        raise _refuse(f"Only one of the following options can be specified {named}. Given are {', '.join(given)}")
    text = str(options[given[0].lower()]).strip()
    if not text.strip(", "):
        raise _refuse(STRATEGIES[given[0]].format(options[given[0].lower()]))
    if given[0] == "assign":
        return Subscription(assigned=parse_assignment(text))
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        for topic in topics:
            problem = topic_name_problem(topic)
            if problem:
                raise TidegaugeError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return Subscription(topics=topics)
    try:
        re.compile(text)
    except re.error as error:
        raise _refuse(f"subscribePattern {text!r} is not a regular expression: {error}") from None
    return Subscription(pattern=text)


def _limit(options: Mapping[str, str], side: str, default: int, forbidden: int | None) -> OffsetLimit:
    """Return where one side of the range is; ``forbidden`` is EARLIEST or LATEST where that makes no sense."""
    name = f"{side}Offsets"
    timestamp = options.get(f"{side}Timestamp".lower())
    if timestamp is not None:
        return OffsetLimit(timestamp_ms=_timestamp_ms(f"{side}Timestamp", str(timestamp).strip()))
    by_timestamp = options.get(f"{name}ByTimestamp".lower())
    if by_timestamp is not None:
        return OffsetLimit(timestamps_ms=parse_offsets(f"{name}ByTimestamp", str(by_timestamp), lowest=0))
    words = {"earliest": EARLIEST, "latest": LATEST}
    text = options.get(name.lower())
    word = default if text is None else words.get(str(text).strip().lower())
    offsets = {} if word is not None else parse_offsets(name, str(text))
    senseless = "latest" if forbidden == LATEST else "earliest"
    if word is not None and word == forbidden:
        raise _refuse(f"{side} offset can't be {senseless} for batch queries on Kafka: nothing would be read")
    for one, offset in offsets.items():
        if offset == forbidden:
            which = "startingOffsets" if side == "starting" else "ending offset"
            raise _refuse(f"{which} for {one} can't be {senseless} for batch queries on Kafka: nothing would be read")
    return OffsetLimit(everywhere=word, offsets=offsets)


def _timestamp_ms(name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise _refuse(f"{name}: Expected a single long value, got {text}; it is in ms since 1970")
    return number


def _check_sides(starting: OffsetLimit, ending: OffsetLimit) -> None:
    """Check of a batch that both sides name the same partitions, and no start is behind its end."""
    for what, begins, ends in (
        ("offset", starting.offsets, ending.offsets),
        ("timestamp", starting.timestamps_ms, ending.timestamps_ms),
    ):
        if not begins or not ends:
            continue
        if begins.keys() != ends.keys():
            sentences = (", ".join(map(str, sorted(one))) for one in (begins, ends))
            raise _refuse(
                "The specified start offset and end offset should have the same topic-partitions. Topic-partitions for "
                "start offset: {}, topic-partitions for end offset: {}".format(*sentences)
            )
        for one, begin in sorted(begins.items()):
            if begin > ends[one] >= 0:
                raise _refuse(
                    f"The specified start {what} {begin} is greater than the end {what} {ends[one]} for topic "
                    f"{one.topic} partition {one.partition}"
                )


def _strategy(options: Mapping[str, str]) -> bool:
    text = str(options.get("startingoffsetsbytimestampstrategy", "error")).lower()
    if text not in {"error", "latest"}:
        raise _refuse(f"startingOffsetsByTimestampStrategy is {text!r}; it must be error or latest")
    return text == "latest"


def duration_ms(options: Mapping[str, str], name: str, default: int) -> int:
    """Return Spark's duration: a number with a unit (``15m``, ``500ms``, ``2h``), without one milliseconds.

    Raises:
        TidegaugeError: INVALID_CONFIG, not a duration.
    """
    text = str(options.get(name.lower(), f"{default}ms")).strip().lower()
    parts = re.fullmatch(r"([0-9]+)\s*(|us|ms|s|m|min|h|d)", text)
    if parts is None:
        raise _refuse(f"{name} is {text!r}; it must be a time such as 500ms, 30s, 15m or 2h")
    units_ms = {"": 1.0, "us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
    return int(int(parts[1]) * units_ms[parts[2]])


def ignored_options(given: Mapping[str, str], *, streaming: bool) -> list[str]:
    """Return a sentence for each option that Spark's source would use and this one does not."""
    options = {name.lower() for name in given}
    sentences = [f"Option '{name}' is ignored: {why}" for name, why in IGNORED.items() if name in options]
    if not streaming:
        sentences += [f"Option '{name}' is ignored in batch queries" for name in IGNORED_IN_BATCH if name in options]
    return sentences


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """Read the options of a batch or a streaming reader.

    Raises:
        TidegaugeError: INVALID_CONFIG, INVALID_REQUEST or INVALID_TOPIC_EXCEPTION with a sentence about it.
    """
    options = {name.lower(): value for name, value in given.items()}
    for name, why in REFUSED.items():
        if f"kafka.{name}" in options:
            raise _refuse(f"Kafka option '{name}' is not supported{why}")
    for name, why in ENDING.items():
        if streaming and name in options:
            raise _refuse(f"{why}: leave out option '{name}'")

    most = whole_number(options, "maxOffsetsPerTrigger", None, 1)
    least = whole_number(options, "minOffsetsPerTrigger", None, 1)
    if most is not None and least is not None and least > most:
        raise _refuse(
            f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most}): no batch "
            "could ever be large enough"
        )
    starting = _limit(options, "starting", LATEST if streaming else EARLIEST, None if streaming else LATEST)
    ending = _limit(options, "ending", LATEST, EARLIEST)
    _check_sides(starting, ending)
    return Options(
        connection=_connection(options),
        subscription=_subscription(options),
        starting=starting,
        ending=ending,
        latest_if_no_match=_strategy(options),
        fail_on_data_loss=flag(options, "failOnDataLoss", True),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=duration_ms(options, "maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS),
        min_partitions=whole_number(options, "minPartitions", None, 1),
        max_records_per_partition=whole_number(options, "maxRecordsPerPartition", None, 1),
        columns=Columns(flag(options, "includeHeaders", False), flag(options, "includeLeaderEpoch", False)),
        offset_retries=_number(options, "fetchOffset.numRetries", 3, 0),
        offset_retry_interval_ms=_number(options, "fetchOffset.retryIntervalMs", 1_000, 0),
    )
