"""The controller candidate of a broker: one event queue, one event at a time, over the pure decisions.

Rules:
- Everything that happens (watches, timers, requests of brokers) becomes an event in one queue; events are handled one
  after the other, so decisions never interleave. Inactive candidates ignore all events except ``/controller``'s.
- Election: a transaction [create ``/controller`` ephemeral, set ``/controller_epoch`` to e+1 expecting its version];
  the first writer wins (KafkaZkClient.registerControllerAndIncrementControllerEpoch).
- A write rejected because ``/controller_epoch`` has increased, an expired session or a failed take-over make it resign:
  no watch, no queue and no decision of the old term survives.
- An expired session is reported by ``session_expired``, at once; the candidate stays out until ``session_restored``.

Source: KafkaController, ControllerEventManager.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from tidegauge.cluster_metadata import Assignment
from tidegauge.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    Endpoint,
    PartitionsResponse,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.znodes import (
    BROKER_IDS,
    BROKER_TOPICS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    LOG_DIR_EVENT_NOTIFICATION,
    ControllerNode,
    MalformedZnode,
    decode_controller_epoch,
    encode_controller_epoch,
)
from tidegauge_controller.admin import NOT_CONTROLLER, Mutate, NewPartitions, NewTopic, TopicOutcome, unlimited
from tidegauge_controller.zookeeper.channels import Channels
from tidegauge_controller.zookeeper.client import (
    Closed,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    Watch,
    ZooKeeper,
    ZooKeeperError,
)
from tidegauge_controller.zookeeper.control_links import OpenLink
from tidegauge_controller.zookeeper.decisions import (
    broker_events,
    deletion,
    leaders,
    reassignment,
    responses,
    topic_events,
)
from tidegauge_controller.zookeeper.decisions.alter_partition import names_of, process_alter_partition
from tidegauge_controller.zookeeper.decisions.context import ControllerContext, ControllerSettings
from tidegauge_controller.zookeeper.decisions.failover import fail_over
from tidegauge_controller.zookeeper.decisions.producer_ids import allocate_producer_ids
from tidegauge_controller.zookeeper.decisions.steps import (
    CheckVersion,
    ControllerMoved,
    ControlRequest,
    CreateNode,
    DeleteNode,
    SetNode,
    Steps,
    ZnodeStat,
)
from tidegauge_controller.zookeeper.driver import Driver
from tidegauge_controller.zookeeper.stop_at import response_step, switch_of
from tidegauge_controller.zookeeper.term import Term
from tidegauge_controller.zookeeper.topic_admin import MetadataView, TopicAdmin

LOG = logging.getLogger(__name__)
FIRST_REBALANCE_SECONDS = 5.0
_WATCHED_CHILDREN = {
    BROKER_IDS: "BrokerChange",
    BROKER_TOPICS: "TopicChange",
    DELETE_TOPICS: "TopicDeletion",
    LOG_DIR_EVENT_NOTIFICATION: "LogDirEvent",
}
Response = TypeVar("Response")
Handler = Callable[[], Awaitable[None]]


class Controller:
    """One candidate for each broker process, on the broker's loop.

    Args:
        endpoint: this broker.
        control_plane_listener: name of the listener through which the controller and the brokers reach each other.
        zookeeper: its session.
        settings: its broker settings.
        metadata: its metadata cache.
        note: writes to the event log (kind, cause, fields).
        now_ms: wall clock.
        random_bytes: source of randomness.
        open_link: makes the link to a broker.

    Attributes:
        forwards: whether requests of admins are handed on: clients of this mode ask the active controller themselves.
    """

    forwards = False

    def __init__(
        self,
        *,
        endpoint: Endpoint,
        control_plane_listener: str,
        zookeeper: ZooKeeper,
        settings: Values,
        metadata: MetadataView,
        note: Callable[[str, str, dict[str, Any]], None],
        now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        open_link: OpenLink,
    ) -> None:
        self.active_controller_id: int | None = None
        self._endpoint = endpoint
        self._control_plane_listener = control_plane_listener
        self._zookeeper = zookeeper
        self._settings = settings
        self._note = note
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._open_link = open_link
        self._stop_at = switch_of(settings)
        self._topics = TopicAdmin(zookeeper, settings, metadata, random_bytes, self._stop_at)
        self._term: Term | None = None
        self._events: deque[tuple[str, Handler]] = deque()
        self._waiting_looks: set[str] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watch: Watch | None = None
        self._closing_channels: set[asyncio.Task[None]] = set()

    @property
    def is_active(self) -> bool:
        """Return whether this broker is the controller, as far as it knows."""
        return self._term is not None

    @property
    def controller_epoch(self) -> int:
        """Return the epoch of its term; 0 while it is not active."""
        return 0 if self._term is None else self._term.context.epoch

    # Start and stop

    async def start(self) -> None:
        """Begin, after the broker has registered: watch ``/controller`` and stand for election."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller-events")
        self._begin_watching()

    async def stop(self) -> None:
        """Resign and end. ``/controller`` is deleted with the session."""
        self._stop_watching()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self._resign("Shutdown")
        if self._closing_channels:
            await asyncio.wait(set(self._closing_channels))

    def session_expired(self) -> None:
        """Handle the end of the ZooKeeper session, and with it of ``/controller`` and of every queued event."""
        self._stop_watching()
        self._events.clear()
        self._waiting_looks.clear()
        self.active_controller_id = None
        self._resign("SessionExpired")

    async def session_restored(self) -> None:
        """Stand for election again after the broker has registered in a new session."""
        self._begin_watching()

    def _begin_watching(self) -> None:
        self._stop_watching()
        self._watch = self._zookeeper.watch_data(CONTROLLER, lambda: self._look("Reelect", self._reelect))

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    # Events

    def _put(self, name: str, handler: Handler) -> None:
        self._events.append((name, handler))
        self._wake.set()

    def _look(self, name: str, handler: Handler) -> None:
        """Queue a coalesced event: one that is already queued will observe the same state."""
        if name not in self._waiting_looks:
            self._waiting_looks.add(name)
            self._put(name, handler)

    async def _run(self) -> None:
        while True:
            while not self._events:
                self._wake.clear()
                await self._wake.wait()
            name, handler = self._events.popleft()
            self._waiting_looks.discard(name)
            try:
                await handler()
            except ControllerMoved as moved:
                LOG.info("%s: %s", name, moved)
                self._resign("ControllerMoved")
                if self._watch is not None:
                    self._look("Reelect", self._reelect)
            except ZooKeeperError as problem:
                LOG.info("%s was interrupted: %r", name, problem)
            except Exception:
                LOG.exception("The controller's event %s failed", name)
            self._notify_started_brokers()

    def _notify_started_brokers(self) -> None:
        """Notify, after each event, newly registered brokers that everything their start-up causes was sent to them."""
        term = self._term
        if term is not None:
            requests, term.startups_notified = broker_events.startups_complete(term.context, term.startups_notified)
            for broker_id, request in requests:
                term.channels.send(broker_id, request)

    def _decide(self, name: str, make: Callable[[ControllerContext], Steps[None]]) -> Handler:
        """Return a handler that runs a decision while active."""

        async def handle() -> None:
            term = self._term
            if term is not None:
                await term.driver.run(name, make(self._fresh(term)))

        handle.__name__ = name
        return handle

    async def _ask(
        self, name: str, make: Callable[[ControllerContext], Steps[Response]], when_inactive: Response
    ) -> Response:
        """Queue a request and wait for its result."""
        if self._term is None:
            return when_inactive
        term = self._term
        response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        term_ended = self._ended_with(term, response, when_inactive)

        async def handle() -> None:
            try:
                if self._term is not None:
                    result = await self._term.driver.run(name, make(self._fresh(self._term)))
                    if not response.done():
                        response.set_result(result)
            finally:
                term_ended()

        self._put(name, handle)
        return await response

    def _ended_with(
        self, term: Term, response: asyncio.Future[Response], when_inactive: Response
    ) -> Callable[[], None]:
        def settle() -> None:
            if not response.done():
                response.set_result(when_inactive)

        term.waiting[response] = settle
        response.add_done_callback(lambda done: term.waiting.pop(done, None))
        return settle

    # Election

    async def _reelect(self) -> None:
        """Check ``/controller``: resign if another broker holds it, stand for election if it does not exist."""
        try:
            data, stat = await self._zookeeper.get(CONTROLLER)
        except NoNode:
            self.active_controller_id = None
            self._resign("ControllerChange")
            await self._elect()
            return
        self.active_controller_id = self._controller_id(data)
        if stat.ephemeral_owner != self._zookeeper.session_id:
            self._resign("ControllerChange")
        elif self._term is None:
            # A term that ended without the znode, as by a controller epoch set by hand, must not bar the next one.
            LOG.warning("%s is this broker's, but its term has ended: deleting it for a new election", CONTROLLER)
            with contextlib.suppress(NoNode):
                await self._zookeeper.delete(CONTROLLER)

    @staticmethod
    def _controller_id(data: bytes) -> int | None:
        try:
            return ControllerNode.decode(data).broker_id
        except MalformedZnode as problem:
            LOG.warning("The controller is unknown: %s", problem)
            return None

    async def _elect(self) -> None:
        epoch, version = await self._read_epoch()
        node = ControllerNode(self._endpoint.broker_id, self._now_ms())
        try:
            responses = await self._zookeeper.multi(
                [
                    CreateNode(CONTROLLER, node.encode(), ephemeral=True),
                    SetNode(CONTROLLER_EPOCH, encode_controller_epoch(epoch + 1), version),
                ]
            )
            stat = responses[1]
        except MultiFailed:
            stat = await self._own_earlier_success(epoch + 1)
        if not isinstance(stat, ZnodeStat):
            return  # another broker was faster; the watch reports it
        self.active_controller_id = self._endpoint.broker_id
        await self._take_over(epoch + 1, stat.version)

    async def _read_epoch(self) -> tuple[int, int]:
        try:
            data, stat = await self._zookeeper.get(CONTROLLER_EPOCH)
        except NoNode:
            try:
                await self._zookeeper.create(CONTROLLER_EPOCH, encode_controller_epoch(0))
            except NodeExists:
                return await self._read_epoch()
            return 0, 0
        return decode_controller_epoch(data), stat.version

    async def _own_earlier_success(self, epoch: int) -> ZnodeStat | None:
        """Return the znode's stat if the failed election had succeeded.

        Its response was lost with the connection.
        """
        try:
            _, controller = await self._zookeeper.get(CONTROLLER)
            data, stat = await self._zookeeper.get(CONTROLLER_EPOCH)
        except NoNode:
            return None
        own = controller.ephemeral_owner == self._zookeeper.session_id
        return stat if own and decode_controller_epoch(data) == epoch else None

    async def _take_over(self, epoch: int, epoch_version: int) -> None:
        channels = Channels(self._responded, self._open_link)
        context = ControllerContext(self._endpoint.broker_id, epoch, epoch_version, self._decision_settings())
        driver = Driver(
            self._zookeeper,
            epoch_version,
            send=channels.send,
            add_broker=channels.add,
            move_broker=channels.move,
            remove_broker=channels.remove,
            changed=self._changed,
            note=self._note,
            random_bytes=self._random_bytes,
            stop_at=self._stop_at,
        )
        self._term = term = Term(context, driver, channels)
        LOG.info("Broker %d is the controller, epoch %d", self._endpoint.broker_id, epoch)
        self._note("controller", "Election", {"state": "elected", "controller_epoch": epoch})
        try:
            await driver.watch_children(_WATCHED_CHILDREN)
            await driver.run("ControllerFailover", fail_over(context))
        except (ControllerMoved, SessionExpired, Closed):
            raise
        except Exception:
            LOG.exception("Broker %d could not take over as controller; another may try", self._endpoint.broker_id)
            await self._give_up(epoch_version)
            return
        if self._settings.flag("auto.leader.rebalance.enable"):
            self._schedule_rebalance(term, FIRST_REBALANCE_SECONDS)

    async def _give_up(self, epoch_version: int) -> None:
        """Resign and delete ``/controller``, unless another term has begun."""
        self._resign("FailoverFailed")
        try:
            await self._zookeeper.multi([CheckVersion(CONTROLLER_EPOCH, epoch_version), DeleteNode(CONTROLLER)])
        except MultiFailed:
            LOG.info("%s belongs to another broker by now", CONTROLLER)

    def _decision_settings(self) -> ControllerSettings:
        return ControllerSettings(
            unclean_leader_election=self._settings.flag("unclean.leader.election.enable"),
            delete_topic_enable=self._settings.flag("delete.topic.enable"),
            leader_imbalance_percentage=self._settings.integer("leader.imbalance.per.broker.percentage"),
            trusts_restarted_brokers=self._settings.flag("controller.failover.trusts.restarted.brokers"),
            control_plane_listener=self._control_plane_listener,
        )

    def _fresh(self, term: Term) -> ControllerContext:
        """Return the term's context with the current settings: some are dynamic."""
        term.context.settings = self._decision_settings()
        return term.context

    def _resign(self, cause: str) -> None:
        """End the term, if there is one: watches, timer, queues, context."""
        term, self._term = self._term, None
        if term is None:
            return
        LOG.info("Broker %d resigns as controller, epoch %d: %s", self._endpoint.broker_id, term.context.epoch, cause)
        term.driver.close()
        if term.rebalance_timer is not None:
            term.rebalance_timer.cancel()
        for settle in list(term.waiting.values()):
            settle()
        closing = asyncio.get_running_loop().create_task(term.channels.close())
        self._closing_channels.add(closing)
        closing.add_done_callback(self._closing_channels.discard)
        self._note("controller", cause, {"state": "resigned", "controller_epoch": term.context.epoch})

    # Changes in the cluster

    def _changed(self, name: str, subject: str) -> None:
        """Queue the event of a watched znode that changed."""
        match name:
            case "BrokerChange":
                self._look(name, self._decide(name, broker_events.process_broker_change))
            case "TopicChange":
                self._look(name, self._decide(name, topic_events.process_topic_change))
            case "TopicDeletion":
                self._look(name, self._decide(name, deletion.process_delete_markers))
            case "LogDirEvent":
                self._look(name, self._decide(name, broker_events.process_log_dir_notifications))
            case reassignment.LEGACY_REQUEST:
                self._look(name, self._decide(name, reassignment.process_legacy_znode))
            case leaders.PREFERRED_REQUEST:
                self._look(name, self._decide(name, leaders.process_preferred_election_znode))
            case broker_events.BROKER_DATA:
                look, broker_id = f"{name} {subject}", int(subject)
                self._look(
                    look, self._decide(name, lambda context: broker_events.process_broker_data(context, broker_id))
                )
            case topic_events.TOPIC_DATA:
                look = f"{name} {subject}"
                self._look(look, self._decide(look, lambda context: topic_events.process_topic_data(context, subject)))

    def _responded(self, broker_id: int, request: ControlRequest, response: PartitionsResponse) -> None:
        """Handle a broker's response to a control request."""
        self._stop_at(response_step(request))
        if not isinstance(request, UpdateMetadataRequest):
            name = f"{type(request).__name__.removesuffix('Request')}Response"
            self._put(
                name,
                self._decide(name, lambda context: responses.process_response(context, broker_id, request, response)),
            )

    def unclean_election_enabled(self, topic: str | None = None) -> None:
        """Elect if it helps: ``unclean.leader.election.enable`` has become true, for a topic or (None) for all."""
        name = "UncleanLeaderElectionEnable"
        self._put(name, self._decide(name, lambda context: leaders.process_unclean_election_enabled(context, topic)))

    def _schedule_rebalance(self, term: Term, seconds: float) -> None:
        term.rebalance_timer = asyncio.get_running_loop().call_later(
            seconds, self._put, "AutoLeaderRebalance", self._rebalance
        )

    async def _rebalance(self) -> None:
        term = self._term
        if term is None:
            return
        try:
            await term.driver.run("AutoLeaderRebalance", leaders.rebalance_leaders(self._fresh(term)))
        finally:
            if self._term is term:
                self._schedule_rebalance(term, self._settings.integer("leader.imbalance.check.interval.seconds"))

    # Requests of brokers and admins

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Handle a leader's proposal of in-sync replicas; another event finishes a reassignment that is complete
        then.
        """

        def decide(context: ControllerContext) -> Steps[AlterPartitionResponse]:
            if context.reassigning.intersection(proposal.topic_partition for proposal in request.partitions):
                name = "PartitionReassignmentIsrChange"
                self._look(name, self._decide(name, reassignment.complete_reassignments))
            return process_alter_partition(context, request)

        return await self._ask("AlterPartition", decide, AlterPartitionResponse(ErrorCode.NOT_CONTROLLER))

    async def topic_names(self, topic_ids: Collection[str]) -> dict[str, str] | None:
        """Return topics' names by id; None: not the controller.

        All topics have been read by then.
        """
        not_controller: dict[str, str] | None = None
        return await self._ask("AlterPartition", lambda context: names_of(context, topic_ids), not_controller)

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, reassignment.Verdict] | None:
        """Begin, replace or (None) cancel reassignments; return once they have begun. None: not the controller."""
        not_controller: dict[TopicPartition, reassignment.Verdict] | None = None
        name = "ApiPartitionReassignment"
        return await self._ask(name, lambda context: reassignment.alter_reassignments(context, wanted), not_controller)

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, Assignment] | None:
        """Return the reassignments in progress; None: not the controller.

        Args:
            partitions: the partitions; None: all.
        """
        not_controller: dict[TopicPartition, Assignment] | None = None
        name = "ListPartitionReassignments"
        return await self._ask(name, lambda context: reassignment.asked_to_list(context, partitions), not_controller)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, list[TopicPartition]]:
        """Handle a broker's request to shut down; return the partitions with several replicas that it still leads."""
        return await self._ask(
            "ControlledShutdown",
            lambda context: leaders.process_controlled_shutdown(context, broker_id, broker_epoch),
            (ErrorCode.STALE_CONTROLLER_EPOCH, []),
        )

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, int, int]:
        """Allocate a block of producer ids: error, first id, count."""
        return await self._ask(
            "AllocateProducerIds",
            lambda context: allocate_producer_ids(context, broker_id, broker_epoch),
            (ErrorCode.NOT_CONTROLLER, 0, 0),
        )

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, *, unclean: bool, timeout_ms: int
    ) -> dict[TopicPartition, tuple[ErrorCode, str]] | None:
        """Elect on demand; return when this broker's metadata shows the new leaders. None: not the controller."""
        not_controller: dict[TopicPartition, tuple[ErrorCode, str]] | None = None
        responses = await self._ask(
            "ElectLeaders",
            lambda context: leaders.elect_leaders(context, partitions, unclean=unclean),
            not_controller,
        )
        if responses is None or self._term is None:
            return responses
        elected = {
            at: self._term.context.leadership[at].leader
            for at, (error, _) in responses.items()
            if error is ErrorCode.NONE and at in self._term.context.leadership
        }
        late = await self._topics.wait_for_leaders(elected, timeout_ms)
        return responses | dict.fromkeys(late, (ErrorCode.REQUEST_TIMED_OUT, "The request timed out."))

    def _term_with_brokers(self) -> Term | None:
        """Return the term once it has read live brokers, else None."""
        return self._term if self._term is not None and self._term.context.live else None

    async def create_topics(
        self, topics: Sequence[NewTopic], timeout_ms: int, mutate: Mutate = unlimited, *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Create topics; return when each partition has a leader in this broker's metadata."""
        term = self._term_with_brokers()
        if term is None:
            return [TopicOutcome(topic.name, ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER) for topic in topics]
        return await self._topics.create(term.context, topics, timeout_ms, mutate, validate_only=validate_only)

    async def create_partitions(
        self,
        topics: Sequence[NewPartitions],
        timeout_ms: int,
        mutate: Mutate = unlimited,
        *,
        validate_only: bool = False,
    ) -> list[TopicOutcome]:
        """Add partitions; return when each new one has a leader in this broker's metadata."""
        term = self._term_with_brokers()
        if term is None:
            return [TopicOutcome(topic.name, ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER) for topic in topics]
        return await self._topics.add_partitions(term.context, topics, timeout_ms, mutate, validate_only=validate_only)

    async def delete_topics(
        self, names: Sequence[str], timeout_ms: int, mutate: Callable[[str], None] = unlimited
    ) -> list[TopicOutcome]:
        """Delete topics; return when this broker's metadata no longer shows them."""
        if self._term is None:
            return [TopicOutcome(name, ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER) for name in names]
        return await self._topics.delete(names, timeout_ms, mutate)
