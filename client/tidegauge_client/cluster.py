"""A client's connection to a cluster: bootstrap, channels, and metadata that is refreshed on demand.

Rules:
    1. A dead or paused broker costs at most one second, and is asked last the next time. A client that knows no broker
       yet, and to which none responds, asks once more those that took too long, with five seconds for the response (one
       attempt to connect has a second): a busy machine is no reason to give up.
    2. Brokers are asked in rotation: a broker that is partitioned from the cluster responds with old metadata, and a
       client that kept asking it would never learn of a new leader.
    3. One refresh runs at a time; a caller that needs one meanwhile shares its result, unless it wants a topic that the
       running one does not request.
    4. A caller that waits for metadata while another one closes the client gets ``ClosedError``: it was not cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.near_names import did_you_mean
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge.waits import carried_out
from tidegauge_client import metadata
from tidegauge_client.bootstrap import parse_bootstrap
from tidegauge_client.channels import Channels, Unreachable, call
from tidegauge_client.handshake import tls_reason
from tidegauge_client.kafka_address import grpc_addresses
from tidegauge_client.kafka_wire import KafkaWire
from tidegauge_client.metadata import ClusterInfo, Leader
from tidegauge_client.wires import Wire, check_wire
from tidegauge_client.zookeeper_port import is_zookeeper

PROBE_TIMEOUT_MS = 1_000
"""Timeout of a metadata request to a single broker."""
PATIENT_TIMEOUT_MS = 5_000
"""Of the second request of a client that knows no broker yet (rule 1)."""
FAILURE_MEMORY_MS = 10_000
"""How long an unresponsive broker is deprioritised."""
DEFAULT_METADATA_MAX_AGE_MS = 300_000


def now_ms() -> float:
    """Return the monotonic clock in ms, for deadlines and back-off, never for timestamps."""
    return time.monotonic() * 1000


_FINAL = {
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
"""Errors after which metadata is not asked for again."""


class HandshakeError(TidegaugeError):
    """BROKER_NOT_AVAILABLE because the TLS handshake fails: it is not retried (Kafka's SslAuthenticationException)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, message)


class ClosedError(TidegaugeError):
    """INVALID_REQUEST: the client was stopped while a call waited for metadata (rule 4)."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, "the client was stopped before the cluster's metadata had come")


class Cluster:
    """Connection state that producer, consumer and admin client share.

    Attributes:
        info: the current metadata; replaced as a whole, never changed in place.
        channels: to all brokers asked so far, over gRPC.
        kafka: requests over Kafka's protocol, and which brokers serve it.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        retry_backoff_ms: float = 100,
        metadata_max_age_ms: float = DEFAULT_METADATA_MAX_AGE_MS,
        allow_auto_topic_creation: bool = True,
        client_id: str = "",
        wire: Wire = "kafka",
    ) -> None:
        check_wire(wire)
        self._data_over_kafka = wire == "kafka"
        self._data_addresses: dict[int, str] = {}
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._retry_backoff_ms = retry_backoff_ms
        self._max_age_ms = metadata_max_age_ms
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self.channels = Channels(self._bootstrap.security)
        self.kafka = KafkaWire(self._bootstrap.security, self._bootstrap.kafka_listeners, client_id)
        self.info = ClusterInfo()
        self._topics: set[str] = set()
        self._failed_at_ms: dict[str, float] = {}
        self._turn = 0
        self._refreshed_at_ms = -metadata_max_age_ms
        self._attempted_at_ms = -retry_backoff_ms
        self._refreshing: asyncio.Task[ClusterInfo] | None = None
        self._refreshing_topics: frozenset[str] = frozenset()
        self._background: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []
        self._is_closed = False

    def open(self) -> None:
        """Allow refreshes, after a ``close`` too."""
        self._is_closed = False

    async def close(self) -> None:
        """Stop refreshing and close all channels, also if the caller is cancelled."""
        self._is_closed = True
        await carried_out(self._close())

    async def _close(self) -> None:
        tasks: list[asyncio.Task[Any]] = [task for task in (self._background, self._refreshing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.kafka.close()
        await self.channels.close()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a listener on the loop after each refresh and each accepted hint."""
        self._listeners.append(listener)

    def addresses(self) -> list[str]:
        """Return the addresses to ask next, in order (rules 1 and 2)."""
        known = [broker.address for broker in self.info.brokers.values()]
        return self.in_turn(dict.fromkeys([*known, *self._bootstrap]))

    def in_turn(self, addresses: Iterable[str]) -> list[str]:
        """Return some addresses in the order to ask them (rules 1, 2)."""
        everyone = list(addresses)
        self._turn += 1
        turn = self._turn % len(everyone)
        rotated = everyone[turn:] + everyone[:turn]
        recently_ms = now_ms() - FAILURE_MEMORY_MS
        failed = {address: at_ms for address, at_ms in self._failed_at_ms.items() if at_ms > recently_ms}
        return sorted(rotated, key=lambda address: failed.get(address, recently_ms))

    async def ask(self, address: str, request: metadata_pb2.MetadataRequest, timeout_ms: float) -> ClusterInfo:
        """Return one broker's own view, without changing this client's metadata.

        Raises:
            TidegaugeError: it does not respond.
        """
        stub = self.channels.broker(address)
        return metadata.from_response(await call(stub.Metadata, request, timeout_ms=timeout_ms, address=address))

    async def ask_any(self, request: metadata_pb2.MetadataRequest) -> ClusterInfo:
        """Return the first response that any broker with metadata gives; rule 1.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no broker responds, or none has metadata yet; ``HandshakeError``, none
                responds because of TLS;
                SASL_AUTHENTICATION_FAILED, a broker refuses the credentials, and no other one takes them.
        """
        problems: list[str] = []
        unreachable: list[str] = []
        insecure: list[str] = []
        hung_up: list[str] = []
        refused: TidegaugeError | None = None
        to_ask = [(address, PROBE_TIMEOUT_MS) for address in self.addresses()]
        for address, timeout_ms in to_ask:
            try:
                response = await self.ask(address, request, timeout_ms)
            except TidegaugeError as error:
                self.note_failure(address)
                if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                    refused = error
                was_slow = isinstance(error, Unreachable) and error.was_slow
                is_late = was_slow or error.code is ErrorCode.REQUEST_TIMED_OUT
                if is_late and timeout_ms == PROBE_TIMEOUT_MS and not self.info.brokers:
                    if was_slow:
                        await self.channels.discard(address)
                    to_ask.append((address, PATIENT_TIMEOUT_MS))  # asked in this very loop, after the others
                    continue
                if isinstance(error, Unreachable):
                    hung_up += [address] if error.hung_up else []
                    found = await self._replace_kafka_address(address) if error.hung_up else []
                    to_ask += [(one, PROBE_TIMEOUT_MS) for one in found]  # asked in this very loop, too
                    if not found and (reason := await tls_reason(error, address, self.channels.security)):
                        insecure.append(f"the broker at {address} can't be reached: {reason}")
                if isinstance(error, Unreachable) and error.hung_up and self.channels.security.is_tls:
                    problems.append(_without_grpc_over_tls(error, address))
                elif isinstance(error, Unreachable) and error.reason is None and not error.is_unnamed:
                    unreachable.append(address)
                else:
                    problems.append(error.message)
            else:
                if response.brokers:
                    self._failed_at_ms.pop(address, None)
                    return response
                self.note_failure(address)
                problems.append(f"{address} waits for a controller's metadata")
        if refused is not None:
            raise refused
        if insecure:
            raise HandshakeError(insecure[0])
        for address in hung_up if not self.info.brokers else []:
            if address in unreachable and await is_zookeeper(address):
                unreachable.remove(address)
                problems.append(f"at {address} a ZooKeeper responds: that is its port, and no broker's")
        if unreachable:
            brokers = "brokers" if len(unreachable) > 1 else "broker"
            problems.insert(0, f"the {brokers} at {', '.join(unreachable)} cannot be reached")
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"no broker responds ({'; '.join(problems)}). Of a cluster that `tidegauge up` made, `tidegauge status` "
            "shows the processes, and `tidegauge up -d` starts them; of another one, see whether this address is its",
        )

    async def _replace_kafka_address(self, address: str) -> list[str]:
        """Put a broker's gRPC addresses in the place of its address for Kafka clients; return those that are new."""
        found = await grpc_addresses(address, self.channels.security)
        if found and address in self._bootstrap:
            self._bootstrap.remove(address)
        new = [one for one in found if one not in self._bootstrap]
        self._bootstrap.extend(new)
        return new

    def note_failure(self, address: str) -> None:
        """Remember that a broker did not respond, so that it is asked last, over either wire."""
        self._failed_at_ms[address] = now_ms()
        for broker in self.info.brokers.values():
            of_kafka = self.kafka.address_of(broker)
            if address in {broker.address, of_kafka} and of_kafka is not None:
                self._failed_at_ms |= dict.fromkeys((broker.address, of_kafka), now_ms())
                self.kafka.failed(broker, address)
                self._choose_data_addresses()

    # Metadata -----------------------------------------------------------------------------------------------

    def add_topics(self, topics: Collection[str]) -> None:
        """Request these topics from the next refresh on."""
        self._topics.update(topics)

    async def refresh(self) -> ClusterInfo:
        """Refresh the metadata now.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no broker responds; ``ClosedError`` (rule 4).
        """
        if self._is_closed:
            raise ClosedError
        running = self._refreshing
        if running is not None and not running.done():
            if self._topics <= self._refreshing_topics:
                return await _outcome(running)
            with contextlib.suppress(TidegaugeError):
                await _outcome(running)
            return await self.refresh()
        self._refreshing_topics = frozenset(self._topics)
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh_once())
        self._refreshing.add_done_callback(_note_outcome)
        return await _outcome(self._refreshing)

    async def _refresh_once(self) -> ClusterInfo:
        self._attempted_at_ms = now_ms()
        request = metadata_pb2.MetadataRequest(
            topics=sorted(self._refreshing_topics), allow_auto_topic_creation=self._allow_auto_topic_creation
        )
        response = await self.ask_any(request)
        self.info = metadata.merge(self.info, response)
        self._choose_data_addresses()
        self._refreshed_at_ms = now_ms()
        self._tell()
        return self.info

    def request_refresh(self) -> None:
        """Refresh in the background, no sooner than the back-off after the last attempt."""
        if self._background is None or self._background.done():
            self._background = asyncio.get_running_loop().create_task(self._refresh_later())

    def refresh_if_old(self) -> None:
        """Refresh in the background when the metadata is older than metadata.max.age.ms."""
        if now_ms() - self._refreshed_at_ms >= self._max_age_ms:
            self.request_refresh()

    async def _refresh_later(self) -> None:
        wait_ms = self._attempted_at_ms + self._retry_backoff_ms - now_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
        try:
            await self.refresh()
        except TidegaugeError:
            # The caller that needs it asks again after the back-off.
            self._tell()

    async def ensure_topics(self, topics: Collection[str], *, timeout_ms: float) -> ClusterInfo:
        """Wait until all these topics are known.

        Raises:
            TidegaugeError: the last error of a broker, when the timeout has passed; INVALID_TOPIC_EXCEPTION,
                SASL_AUTHENTICATION_FAILED and TOPIC_AUTHORIZATION_FAILED at once.
        """
        self.add_topics(topics)
        deadline_ms = now_ms() + timeout_ms
        while True:
            problem: TidegaugeError | None = None
            try:
                await self.refresh()
            except TidegaugeError as error:
                problem = error
            for name in sorted(topics):
                problem = problem or self._topic_problem(name)
            if problem is None:
                return self.info
            is_final = isinstance(problem, HandshakeError | ClosedError) or problem.code in _FINAL
            if is_final or now_ms() >= deadline_ms:
                self._topics.difference_update(n for n in topics if self._topic_problem(n) is not None)
                raise await self._with_a_near_name(problem, topics)
            await asyncio.sleep(min(self._retry_backoff_ms, max(1.0, deadline_ms - now_ms())) / 1000)

    async def _with_a_near_name(self, problem: TidegaugeError, topics: Collection[str]) -> TidegaugeError:
        """Return the error of a missing topic with a near name."""
        missing = next((name for name in sorted(topics) if self._topic_problem(name) is not None), None)
        if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or missing is None:
            return problem
        try:
            known = (await self.ask_any(metadata_pb2.MetadataRequest(all_topics=True))).topics
        except TidegaugeError:
            return problem
        return TidegaugeError(problem.code, unknown_topic(missing, sorted(known)))

    def _topic_problem(self, name: str) -> TidegaugeError | None:
        topic = self.info.topics.get(name)
        if topic is None:
            return TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown_topic(name))
        if topic.error is ErrorCode.NONE:
            return None
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return TidegaugeError(topic.error, unknown_topic(name))
        return TidegaugeError(topic.error, topic.error_message)

    def leader(self, topic_partition: TopicPartition) -> Leader | None:
        """Return the partition's known leader, with its address for data."""
        return self.info.leader(topic_partition, self._data_addresses)

    def anyone(self) -> str:
        """Return the address of some broker, on the wire for data."""
        return self.in_turn(self._data_addresses.values())[0] if self._data_addresses else self.addresses()[0]

    def is_of_kafka(self, address: str) -> bool:
        """Return whether a leader's address is its listener for Kafka clients."""
        return address in self._data_addresses.values()

    def _choose_data_addresses(self) -> None:
        brokers = self.info.brokers.values() if self._data_over_kafka else ()
        found = {one.id: self.kafka.data_address(one) for one in brokers}
        self._data_addresses = {broker_id: address for broker_id, address in found.items() if address is not None}

    def hint(self, topic_partition: TopicPartition, leader_id: int, leader_epoch: int) -> bool:
        """Accept a broker's hint about the leader; return whether it was newer."""
        changed = metadata.with_leader(self.info, topic_partition, leader_id, leader_epoch)
        if changed is self.info:
            return False
        self.info = changed
        self._tell()
        return True

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def _without_grpc_over_tls(error: Unreachable, address: str) -> str:
    """Return the likely defect of an address that served no TLS client."""
    if error.is_not_grpc:
        return f"{address} speaks TLS, but not gRPC; give the address of a gRPC listener"
    return (
        f"{address} closed the connection before TLS was established: it may be a listener of plain text; use the "
        "address of an SSL listener, or security.protocol=PLAINTEXT"
    )


async def _outcome(refresh: asyncio.Task[ClusterInfo]) -> ClusterInfo:
    """Return a refresh's metadata; a cancelled caller does not end the refresh.

    Raises:
        ClosedError: the client was closed meanwhile.
    """
    await asyncio.wait({refresh})
    if refresh.cancelled():
        raise ClosedError
    return refresh.result()


def _note_outcome(refresh: asyncio.Task[ClusterInfo]) -> None:
    """Take the failure of a refresh whose callers were cancelled: asyncio would log it as one that nothing handles."""
    if not refresh.cancelled():
        refresh.exception()


def unknown_topic(name: str, known: Collection[str] = ()) -> str:
    """Return the sentence for a topic that no broker knows.

    Args:
        name: the topic.
        known: names of the topics that there are, as far as they are known, of which the user may have meant one.
    """
    shows = "; `tidegauge list-topics` shows what does"
    otherwise = f"{shows}, `tidegauge create-topic` makes it, unless its deletion has not ended"
    return f"Topic '{name}' does not exist as expected{did_you_mean(name, known, otherwise)}"
