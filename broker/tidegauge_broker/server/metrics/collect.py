"""Conversion of a broker's state and counters to metrics by Kafka's names. Pure.

Names and labels are those that the JMX exporter's example rules for Kafka give (``lowercaseOutputName``): a domain, a
type and a name in lower case, ``PerSec`` counters as ``_total``, key properties as labels in their own case. So public
dashboards find them. Metrics of the active controller are 0 elsewhere, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import NO_LEADER
from tidegauge.groups import GroupState
from tidegauge.java_text import sanitized
from tidegauge.partition import TopicPartition
from tidegauge.transactions import TransactionState
from tidegauge_broker.coordinator.views import Counters, Gauges, TransactionGauges
from tidegauge_broker.quotas.client_quota import Reading
from tidegauge_broker.replica.messages import ReplicaView
from tidegauge_broker.server.metrics.exposition import Family, counter, gauge
from tidegauge_broker.server.metrics.meters import Meters, RequestMeter
from tidegauge_broker.server.metrics.share_families import ShareReading, share_families

LATE_TRANSACTION_BUFFER_MS = 5 * 60_000
"""Time beyond transaction.max.timeout.ms that an open transaction may be silent (ProducerStateManager)."""
_TOPIC_COUNTERS = {
    "messagesin": "Records appended by producers.",
    "bytesin": "Bytes that producers sent.",
    "bytesout": "Bytes that consumers got.",
    "replicationbytesout": "Bytes that followers got.",
    "totalproducerequests": "Produce requests.",
    "totalfetchrequests": "Fetches of consumers.",
    "failedproducerequests": "Produce requests that failed.",
    "failedfetchrequests": "Fetches of consumers that failed.",
    "producemessageconversions": "Records that came in a message format before record batches.",
    "fetchmessageconversions": "Records that were converted for consumers that know only such formats.",
}


@dataclass(slots=True)
class Replica:
    """One local replica.

    Attributes:
        oldest_transaction_ms: time of the last batch of the producer whose open transaction begins first, in ms since
            1970; -1: none is open.
    """

    view: ReplicaView
    size_bytes: int = 0
    segments: int = 0
    min_isr: int = 1
    is_reassigning: bool = False
    adding_count: int = 0
    oldest_transaction_ms: int = -1

    @property
    def leads(self) -> bool:
        """Whether this broker leads the partition."""
        return self.view.role == "leader"

    @property
    def replica_count(self) -> int:
        """Assigned replicas, as a leader knows them."""
        return len(self.view.remote_replicas) + 1

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, at most the replication factor."""
        return min(self.min_isr, self.replica_count)


@dataclass(slots=True)
class Snapshot:
    """A broker at one moment.

    Attributes:
        replicas: those that it hosts.
        cluster: every partition, as its metadata cache has it.
        live: registered brokers.
        is_controller: whether it is the active controller.
        purgatories: operations that wait, by Kafka's name of the purgatory.
        meters: its counters.
        offline_directories: log directories that failed.
        connections: open ones, by the listener's name.
        groups: consumer groups and offsets that it coordinates.
        group_counters: what its group coordinator has counted.
        transactions: transactional ids that it coordinates, and the markers that wait.
        now_ms: the time, by the broker's own clock.
        wall_ms: the wall-clock time, in which records and transactions have their times.
        max_transaction_timeout_ms: transaction.max.timeout.ms.
        quotas: what clients used of their quotas, with Kafka's name of the kind.
        shares: of share groups; None: they are not served.
    """

    replicas: Sequence[Replica]
    cluster: Sequence[PartitionState]
    live: Collection[int]
    is_controller: bool
    meters: Meters
    purgatories: Mapping[str, int] = field(default_factory=dict)
    offline_directories: int = 0
    connections: Mapping[str, int] = field(default_factory=dict)
    groups: Gauges = field(default_factory=Gauges)
    group_counters: Counters = field(default_factory=Counters)
    transactions: TransactionGauges = field(default_factory=TransactionGauges)
    now_ms: int = 0
    wall_ms: int = 0
    max_transaction_timeout_ms: int = 0
    quotas: Sequence[tuple[str, Reading]] = ()
    shares: ShareReading | None = None

    def is_late(self, replica: Replica) -> bool:
        """Return whether an open transaction has been silent for too long (ProducerStateManager.hasLateTransaction)."""
        last_ms = replica.oldest_transaction_ms
        return last_ms > 0 and self.wall_ms - last_ms > self.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS


def families(now: Snapshot) -> Iterator[Family]:
    """All metrics."""
    state = "0 not running, 1 starting, 3 running, 6 in a controlled shutdown."
    yield gauge("kafka_server_kafkaserver_brokerstate", state, now.meters.broker_state)
    yield from _replica_manager(now)
    yield from _controller(now)
    yield from _partitions(now)
    yield from _logs(now)
    yield from _followers(now)
    yield from _topics(now.meters)
    yield from _requests(now.meters)
    yield from _sessions(now.meters)
    yield from _groups(now.groups, now.group_counters)
    yield from _transactions(now.transactions)
    yield from _verifications(now.meters.verifications)
    yield from _loads(now)
    yield from _quotas(now.quotas)
    if now.shares is not None:
        meters = now.meters
        of_coordinator = meters.share_coordinator_loads, meters.share_writes
        yield from share_families(now.shares, meters.share_loads, *of_coordinator, now.now_ms)
    connections = Family("kafka_server_socket_server_metrics_connection_count", "gauge", "Connections that are open.")
    for listener, count in now.connections.items():
        connections.add(count, listener=listener)
    yield connections


def _replica_manager(now: Snapshot) -> Iterator[Family]:
    led = [one for one in now.replicas if one.leads]
    counts = {
        "partitioncount": ("Replicas on this broker.", len(now.replicas)),
        "leadercount": ("Partitions that this broker leads.", len(led)),
        "offlinereplicacount": ("Replicas here whose log directory failed.", sum(_is_offline(r) for r in now.replicas)),
        "underreplicatedpartitions": ("Partitions led here with replicas out of the ISR.", sum(map(_is_under, led))),
        "underminisrpartitioncount": ("Partitions led here below min.insync.replicas.", sum(map(_is_below, led))),
        "reassigningpartitions": (
            "Partitions led here that get other replicas.",
            sum(one.is_reassigning for one in led),
        ),
        "partitionswithlatetransactionscount": (
            "Partitions led here with an open transaction that no timeout has ended.",
            sum(map(now.is_late, led)),
        ),
        "atminisrpartitioncount": ("Partitions led here exactly at min.insync.replicas.", sum(map(_is_at, led))),
    }
    for name, (meaning, value) in counts.items():
        yield gauge(f"kafka_server_replicamanager_{name}", meaning, value)
    for name, meaning in (
        ("isrshrinks", "Times that a partition led here lost in-sync replicas for lagging."),
        ("isrexpands", "Times that a partition led here gained an in-sync replica."),
        ("failedisrupdates", "Proposed ISRs that the controller refused."),
    ):
        yield counter(f"kafka_server_replicamanager_{name}_total", meaning, now.meters.counts[name])
    waiting = Family("kafka_server_delayedoperationpurgatory_purgatorysize", "gauge", "Operations that wait.")
    for operation, count in now.purgatories.items():
        waiting.add(count, delayedOperation=operation)
    yield waiting


def _is_offline(replica: Replica) -> bool:
    return replica.view.role == "offline"


def _is_under(replica: Replica) -> bool:
    return len(replica.view.isr) < replica.replica_count - replica.adding_count


def _is_below(replica: Replica) -> bool:
    return len(replica.view.isr) < replica.effective_min_isr


def _is_at(replica: Replica) -> bool:
    return len(replica.view.isr) == replica.effective_min_isr


def _controller(now: Snapshot) -> Iterator[Family]:
    cluster = now.cluster if now.is_controller else ()
    leaderless = [one for one in cluster if one.leader == NO_LEADER or one.leader not in now.live]
    moved = [one for one in cluster if one.replicas and one.leader != one.replicas[0]]
    counts = {
        "activecontrollercount": ("1 at the active controller, else 0.", int(now.is_controller)),
        "activebrokercount": ("Registered brokers.", len(now.live) if now.is_controller else 0),
        "offlinepartitionscount": ("Partitions without a leader.", len(leaderless)),
        "globaltopiccount": ("Topics.", len({one.topic_partition.topic for one in cluster})),
        "globalpartitioncount": ("Partitions.", len(cluster)),
        "preferredreplicaimbalancecount": ("Partitions led by another than the first of AR.", len(moved)),
    }
    for name, (meaning, value) in counts.items():
        yield gauge(f"kafka_controller_kafkacontroller_{name}", meaning, value)
    stats = "kafka_controller_controllerstats"
    elections, unclean = now.meters.counts["elections"], now.meters.counts["uncleanelections"]
    yield counter(f"{stats}_leaderelectionrateandtimems_count", "Elections that this controller decided.", elections)
    yield counter(f"{stats}_uncleanleaderelections_total", "Those from outside the ISR.", unclean)


def _labels(at: TopicPartition) -> dict[str, str]:
    return {"topic": at.topic, "partition": str(at.partition)}


def _partitions(now: Snapshot) -> Iterator[Family]:
    """Kafka's kafka.cluster:type=Partition; a replica that does not lead has 0, as there."""
    name = "kafka_cluster_partition"
    under = Family(f"{name}_underreplicated", "gauge", "1 where a partition led here has replicas out of the ISR.")
    in_sync = Family(f"{name}_insyncreplicascount", "gauge", "In-sync replicas of a partition led here, else 0.")
    assigned = Family(f"{name}_replicascount", "gauge", "Assigned replicas of a partition led here, else 0.")
    below = Family(f"{name}_underminisr", "gauge", "1 where a partition led here is below min.insync.replicas.")
    unstable = Family(f"{name}_laststableoffsetlag", "gauge", "HW less last stable offset of a partition led here.")
    at_min = Family(f"{name}_atminisr", "gauge", "1 where a partition led here is exactly at min.insync.replicas.")
    for one in now.replicas:
        labels = _labels(one.view.topic_partition)
        under.add(one.leads and _is_under(one), **labels)
        in_sync.add(len(one.view.isr) if one.leads else 0, **labels)
        assigned.add(one.replica_count if one.leads else 0, **labels)
        below.add(one.leads and _is_below(one), **labels)
        at_min.add(one.leads and _is_at(one), **labels)
        unstable.add(one.view.high_watermark - one.view.last_stable_offset if one.leads else 0, **labels)
    yield from (under, in_sync, assigned, below, at_min, unstable)


def _logs(now: Snapshot) -> Iterator[Family]:
    offline = "kafka_log_logmanager_offlinelogdirectorycount"
    yield gauge(offline, "Log directories of this broker that failed.", now.offline_directories)
    end = Family("kafka_log_log_logendoffset", "gauge", "Log end offset of the local replica.")
    start = Family("kafka_log_log_logstartoffset", "gauge", "Log start offset of the local replica.")
    size = Family("kafka_log_log_size", "gauge", "Bytes of the local replica.")
    segments = Family("kafka_log_log_numlogsegments", "gauge", "Segments of the local replica.")
    committed = Family("tidegauge_log_highwatermark", "gauge", "High watermark of the local replica (not in Kafka).")
    stable = Family(
        "tidegauge_log_laststableoffset", "gauge", "Last stable offset of the local replica (not in Kafka)."
    )
    epoch = Family("tidegauge_partition_leaderepoch", "gauge", "Leader epoch of the local replica (not in Kafka).")
    for one in now.replicas:
        view, labels = one.view, _labels(one.view.topic_partition)
        if not _is_offline(one):
            end.add(view.log_end_offset, **labels)
            start.add(view.log_start_offset, **labels)
            size.add(one.size_bytes, **labels)
            segments.add(one.segments, **labels)
            committed.add(view.high_watermark, **labels)
            stable.add(view.last_stable_offset, **labels)
        epoch.add(view.leader_epoch, **labels)
    yield from (end, start, size, segments, committed, stable, epoch)


def _followers(now: Snapshot) -> Iterator[Family]:
    lag = Family("kafka_server_fetcherlagmetrics_consumerlag", "gauge", "Records that this follower lacked at last.")
    behind = Family("tidegauge_partition_replicalag", "gauge", "Records a replica lacks, as its leader knows.")
    longest = 0
    for one in now.replicas:
        view, at = one.view, one.view.topic_partition
        leader, records = now.meters.lags.get(at, (NO_LEADER, 0))
        if view.role == "follower" and leader == view.leader:
            lag.add(records, clientId=f"ReplicaFetcherThread-0-{leader}", **_labels(at))
            longest = max(longest, records)
        for remote in view.remote_replicas if one.leads else ():
            if remote.log_end_offset >= 0:
                lacks = max(0, view.log_end_offset - remote.log_end_offset)
                behind.add(lacks, replica=str(remote.broker_id), **_labels(at))
    most = Family("kafka_server_replicafetchermanager_maxlag", "gauge", "The largest lag of this broker's followers.")
    most.add(longest, clientId="Replica")
    yield from (lag, most, behind)


def _topics(meters: Meters) -> Iterator[Family]:
    for name, meaning in _TOPIC_COUNTERS.items():
        family = Family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", meaning)
        family.add(sum(counts[name] for counts in meters.topics.values()))
        for topic, counts in sorted(meters.topics.items()):
            family.add(counts[name], topic=topic)
        yield family


def _requests(meters: Meters) -> Iterator[Family]:
    name = "kafka_network_requestmetrics"
    count = Family(f"{name}_requests_total", "counter", "Requests with a response.")
    errors = Family(f"{name}_errors_total", "counter", "Requests with an error in their response.")
    times = Family(f"{name}_totaltimems", "summary", "Time from a request's arrival to its response, in ms.")
    for request, meter in sorted(meters.requests.items()):
        count.add(meter.count, request=request)
        errors.add(meter.errors, request=request)
        _add_times(times, meter, request=request)
    yield from (count, errors, times)


def _add_times(times: Family, meter: RequestMeter, **labels: str) -> None:
    """Add quantiles, sum and count of a meter to a summary."""
    for share, milliseconds in meter.quantiles().items():
        times.add(milliseconds, **labels, quantile=f"{share:.2f}" if share < 0.999 else str(share))
    times.add(meter.sum_ms, "_sum", **labels)
    times.add(meter.count, "_count", **labels)


def _verifications(meter: RequestMeter) -> Iterator[Family]:
    """Yield Kafka's metrics of AddPartitionsToTxnManager (KIP-890)."""
    name = "kafka_server_addpartitionstotxnmanager"
    times = Family(f"{name}_verificationtimems", "summary", "Time that verifications of transactions took, in ms.")
    _add_times(times, meter)
    yield times
    failed = "Partitions whose verification failed."
    yield counter(f"{name}_verificationfailurerate_count", failed, meter.errors)


def _loads(now: Snapshot) -> Iterator[Family]:
    """Yield how long coordinators took to load partitions, by the names of Kafka's two groups of metrics."""
    for kind, loads in (("group", now.meters.group_loads), ("transaction", now.meters.transaction_loads)):
        longest, mean = loads.max_and_avg(now.now_ms)
        name = f"kafka_server_{kind}_coordinator_metrics_partition_load_time"
        yield gauge(f"{name}_max", "Longest load of a partition in the last minute, in ms; NaN: none.", longest)
        yield gauge(f"{name}_avg", "Mean of these times, in ms; NaN: none.", mean)


_OF_QUOTAS = {
    "byte-rate": "Bytes a second of clients with a quota of theirs or of others.",
    "request-time": "Time that the event loop spent on their requests, as a percentage.",
    "tokens": "Partitions that they may create or delete before their quota is exhausted.",
    "mutation-rate": "Partitions a second that they created or deleted.",
    "throttle-time": "Mean of the times for which they were throttled, in ms; NaN: none.",
}


def _quotas(readings: Sequence[tuple[str, Reading]]) -> Iterator[Family]:
    """Yield Kafka's metrics of types Produce, Fetch, Request and ControllerMutation; an empty name is no label."""
    for metric, meaning in _OF_QUOTAS.items():
        family = Family(f"kafka_server_quota_{metric.replace('-', '_')}", "gauge", meaning)
        for kind, reading in readings:
            if reading.metric == metric:
                names = {"user": sanitized(reading.sharers.user), "clientId": reading.sharers.client_id}
                family.add(reading.value, resource=kind, **{key: name for key, name in names.items() if name})
        yield family


def _sessions(meters: Meters) -> Iterator[Family]:
    name = "kafka_server_sessionexpirelistener_zookeeper"
    for state, kafkas in (("lost", "expires"), ("suspended", "disconnects"), ("connected", "syncconnects")):
        meaning = f"Times that the session with ZooKeeper was {state}."
        yield counter(f"{name}{kafkas}_total", meaning, meters.counts[f"session {state}"])


def _groups(gauges: Gauges, counters: Counters) -> Iterator[Family]:
    """Yield Kafka's metrics of types GroupMetadataManager and group-coordinator-metrics."""
    name = "kafka_coordinator_group_groupmetadatamanager"
    yield gauge(f"{name}_numgroups", "Consumer groups that this broker coordinates.", sum(gauges.groups.values()))
    yield gauge(f"{name}_numoffsets", "Committed offsets of these groups.", gauges.offsets)
    for state in GroupState:
        count = gauges.groups.get(state, 0)
        yield gauge(f"{name}_numgroups{state.value.lower()}", f"Those in state {state.value}.", count)
    name = "kafka_server_group_coordinator_metrics"
    for counted, meaning, value in (
        ("offset_commit_count", "Offsets committed.", counters.offset_commits),
        ("offset_expiration_count", "Offsets expired.", counters.offset_expirations),
        ("offset_deletion_count", "Offsets deleted by requests.", counters.offset_deletions),
        ("group_completed_rebalance_count", "Rebalances completed.", counters.completed_rebalances),
    ):
        yield counter(f"{name}_{counted}", meaning, value)
    if not gauges.consumer_groups:
        return
    rebalances = "Rises of consumer groups' epochs by heartbeats."
    yield counter(f"{name}_consumer_group_rebalance_count", rebalances, counters.consumer_group_rebalances)
    by_protocol = Family(f"{name}_group_count", "gauge", "Groups that this broker coordinates, by protocol.")
    by_protocol.add(sum(gauges.groups.values()), protocol="classic")
    by_protocol.add(sum(gauges.consumer_groups.values()), protocol="consumer")
    yield by_protocol
    by_state = Family(f"{name}_consumer_group_count", "gauge", "Consumer groups (KIP-848), by state.")
    for consumer_state, count in gauges.consumer_groups.items():
        by_state.add(count, state=consumer_state.value.lower())
    yield by_state


def _transactions(gauges: TransactionGauges) -> Iterator[Family]:
    """Yield Kafka's metrics of TransactionMarkerChannelManager, and the transactional ids by state (not in Kafka)."""
    name = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
    waiting = "Markers whose partition has no leader that is alive."
    yield gauge(f"{name}_unknowndestinationqueuesize", waiting, gauges.unknown_destination_queue_size)
    retried = "Transactions whose last record could not be written yet."
    yield gauge(f"{name}_logappendretryqueuesize", retried, gauges.log_append_retry_queue_size)
    ids = Family("tidegauge_transactionalids", "gauge", "Transactional ids coordinated here, by state (not in Kafka).")
    for state in (one for one in TransactionState if one not in _NEVER_KEPT):
        ids.add(gauges.transactions.get(state, 0), state=state.value)
    yield ids


_NEVER_KEPT = {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
