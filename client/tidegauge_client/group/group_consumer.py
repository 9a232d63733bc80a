"""The asyncio consumer that is a member of a group: partitions are shared, and offsets are committed to the group.

``subscribe`` joins the group; the coordinator is found through any broker, and found again when it moves. Rebalances
take place in ``poll``: a consumer that does not call it for max.poll.interval.ms loses its partitions. With ``assign``
the consumer takes partitions of its own choice and only commits to the group (a simple consumer).

Parts: ``membership`` and ``commits`` (the rules, pure), ``assignors``, ``consumer_protocol``, ``member`` (requests and
heartbeats), this module (what the application calls).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.cluster import now_ms
from tidegauge_client.consumer import Consumer, ConsumerArguments
from tidegauge_client.group.assignors import ASSIGNORS, is_cooperative
from tidegauge_client.group.commits import AutoCommit, RetriableCommitFailedError, is_retried
from tidegauge_client.group.consumer_protocol import decode_assignment
from tidegauge_client.group.effects import Effect, Fail, LeaveGroup, PrepareJoin, TakeAssignment
from tidegauge_client.group.listener import RebalanceListener, tell
from tidegauge_client.group.member import Member
from tidegauge_client.group.membership import Membership, MembershipSettings
from tidegauge_client.group.requests import GroupRequests
from tidegauge_client.kafka_offsets import OffsetAndMetadata
from tidegauge_client.subscription import ConsumerRecord, Phase, Position

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
NO_EPOCH = -1
CommitCallback = Callable[[Offsets, TidegaugeError | None], None]


class GroupMetadata(NamedTuple):
    """Which member of which generation a consumer is; -1 and empty while it is none."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


class GroupConsumer(Consumer):
    """Reads what the group assigns. An asynchronous context manager, or ``start`` and ``stop``."""

    _has_group = True

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        *,
        group_instance_id: str | None = None,
        partition_assignment_strategy: Sequence[str] = ("range",),
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        close_timeout_ms: float = 30_000,
        **settings: Unpack[ConsumerArguments],
    ) -> None:
        """Check the settings; nothing is contacted before ``start``.

        Args:
            bootstrap_servers: ``host:port[,host:port]``, or several.
            group_id: the group.
            group_instance_id: makes the consumer a static member (KIP-345): it does not leave when it is closed, and
                takes its partitions up again if it returns within session_timeout_ms.
            partition_assignment_strategy: assignors by preference, of ``range``, ``roundrobin`` and
                ``cooperative-sticky``. With the last one alone the consumer goes on reading while the group rebalances,
                and gives up only the partitions that move (KIP-429); beside an eager one it gives up all.
            session_timeout_ms: time without a heartbeat after which the coordinator removes the member.
            heartbeat_interval_ms: interval of heartbeats, at most a third of session_timeout_ms is usual.
            max_poll_interval_ms: maximum time between two polls; rebalances wait for a member that long.
            enable_auto_commit: commit the positions in poll, before partitions are given up, and at the end.
            auto_commit_interval_ms: interval of these commits.
            close_timeout_ms: how long ``stop`` may take to commit and to leave the group.
            settings: ``Consumer``'s; ``client_id`` begins the member's id.

        Raises:
            TidegaugeError: INVALID_GROUP_ID; INVALID_CONFIG; see also ``Consumer``.
        """
        _check(group_id, partition_assignment_strategy, session_timeout_ms, heartbeat_interval_ms)
        super().__init__(bootstrap_servers, **settings)
        self._group_id = group_id
        self._settings = MembershipSettings(
            group_instance_id or None,
            session_timeout_ms,
            heartbeat_interval_ms,
            max_poll_interval_ms,
            self._retry_backoff_ms,
        )
        self._membership = Membership(self._settings)
        requests = GroupRequests(self._cluster, group_id, self._settings, self._request_timeout_ms)
        strategies = tuple(partition_assignment_strategy)
        self._is_cooperative = is_cooperative(strategies)
        self._member = Member(self._membership, requests, strategies, self._subscription.assigned, self._wake.set)
        self._auto_commit = AutoCommit(auto_commit_interval_ms if enable_auto_commit else None, self._retry_backoff_ms)
        self._close_timeout_ms = close_timeout_ms
        self._listener: RebalanceListener = RebalanceListener()
        self._initialising: asyncio.Task[None] | None = None
        self._last_commit: asyncio.Task[None] | None = None
        self._commits: set[asyncio.Task[None]] = set()
        self._callbacks: deque[Callable[[], None]] = deque()

    # Start and stop -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the cluster; the group is joined in the first poll after ``subscribe``.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no bootstrap server responds.
        """
        await super().start()
        self._auto_commit.restart(now_ms())
        self._member.start()

    async def stop(self) -> None:
        """Commit (auto commit), give the partitions up, leave the group unless static, and close.

        If the caller is cancelled nothing more is committed, and the group learns by session.timeout.ms; the rest is
        closed.
        """
        try:
            if self._is_running:
                await self._close_membership(now_ms() + self._close_timeout_ms)
        finally:
            await super().stop()

    async def _close(self) -> None:
        await self._member.stop()
        tasks = [*self._commits, *([] if self._initialising is None else [self._initialising])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await super()._close()

    async def _close_membership(self, deadline_ms: float) -> None:
        """Do as ConsumerCoordinator.close does; a commit that fails is not raised."""
        await self._wait_for_commits(deadline_ms)
        offsets = self._consumed()
        if self._auto_commit.is_on and offsets and self._membership.failure is None:
            with contextlib.suppress(TidegaugeError, TimeoutError):
                async with asyncio.timeout(max(0.0, deadline_ms - now_ms()) / 1000):
                    await self._member.commit(offsets, deadline_ms)
        self._run_callbacks()
        await self._leave("the consumer is being closed", deadline_ms)

    async def _wait_for_commits(self, deadline_ms: float) -> bool:
        """Wait for the commits that were begun, so that a later one comes after them; return whether they ended."""
        begun = set(self._commits)
        if begun:
            await asyncio.wait(begun, timeout=max(0.0, deadline_ms - now_ms()) / 1000)
        return not any(task in self._commits and not task.done() for task in begun)

    async def _leave(self, reason: str, deadline_ms: float) -> None:
        if not self._member.topics:
            return
        try:
            await self._give_up(is_lost=self._membership.has_lost_partitions or self._membership.is_rebalancing)
        finally:
            for effect in self._membership.leave(reason):
                assert isinstance(effect, LeaveGroup), "leaving asks for nothing else"
                await self._member.leave(effect, max(1.0, deadline_ms - now_ms()))
            self._member.topics = frozenset()

    # Subscriptions ------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, as no member of the group, from the offsets that it has committed.

        Raises:
            TidegaugeError: INVALID_REQUEST, the consumer has subscribed to topics.
        """
        if self._member.topics:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "Subscription to topics and assignment of partitions are mutually exclusive; unsubscribe first",
            )
        super().assign(partitions)

    async def subscribe(
        self, topics: Collection[str], *, timeout_ms: float = 60_000, listener: RebalanceListener | None = None
    ) -> None:
        """Share these topics with the other members of the group, from the next poll on.

        Args:
            topics: all topics to be read; others are no longer.
            timeout_ms: how long to wait for topics that do not exist yet.
            listener: what to call when partitions are assigned, revoked or lost; None: nothing.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
        """
        await self._cluster.ensure_topics(topics, timeout_ms=timeout_ms)
        wanted = frozenset(topics)
        if not self._member.topics:
            super().assign(())
        elif wanted != self._member.topics:
            before, after = sorted(self._member.topics), sorted(wanted)
            self._membership.request_rejoin(f"the subscription has changed from {before} to {after}")
        self._listener = listener or RebalanceListener()
        self._member.topics = wanted

    async def unsubscribe(self) -> None:
        """Give the partitions up and leave the group; nothing is committed."""
        await self._leave("the consumer unsubscribed from all topics", now_ms() + self._close_timeout_ms)
        super().assign(())

    def subscription(self) -> set[str]:
        """Return the topics that are subscribed to."""
        return set(self._member.topics)

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Join the group again in the next poll (KIP-568)."""
        self._membership.request_rejoin(reason)

    def group_metadata(self) -> GroupMetadata:
        """Return the member and its generation."""
        generation = self._membership.generation
        return GroupMetadata(self._group_id, generation.number, generation.member_id, self._settings.group_instance_id)

    def group_trouble(self) -> TidegaugeError | None:
        """Return why the group can't be joined at the moment; it is retried."""
        return self._membership.trouble

    # Rebalances ---------------------------------------------------------------------------------------------

    async def _before_take(self, deadline_ms: float) -> None:
        self._run_callbacks()
        if self._member.topics:
            self._membership.partitions_seen(self._member.snapshot())
            while effects := self._membership.poll_effects(now_ms()):
                if not await self._perform(effects, deadline_ms):
                    break
        if self._last_commit is None:  # it may be sent again, and must not overtake a later one
            self._commit_if_due()

    def _take(self, limit: int) -> list[ConsumerRecord]:
        """Give no records of partitions that are about to be given up, once their positions are being committed.

        Source: ConsumerCoordinator.maybeMarkPartitionsPendingRevocation (KAFKA-14196), for eager rebalancing.
        """
        return [] if self._last_commit is not None and not self._is_cooperative else super()._take(limit)

    async def _perform(self, effects: Sequence[Effect], deadline_ms: float) -> bool:
        """Perform the effects of a poll; return whether there may be more."""
        for effect in effects:
            match effect:
                case Fail():
                    raise effect.problem
                case PrepareJoin():
                    if not await self._prepare_join(effect, deadline_ms):
                        return False
                case TakeAssignment():
                    await self._take_assignment(effect)
                case _:
                    self._member.perform(effect)
        return True

    async def _prepare_join(self, effect: PrepareJoin, deadline_ms: float) -> bool:
        """Commit and give partitions up (rule 2 of ``membership``); return False if the poll ends before the commit."""
        is_committed = False
        try:
            is_committed = effect.is_lost or await self._commit_before_rebalance(deadline_ms)
        finally:
            if not is_committed:  # or the poll was cancelled: the next one goes on
                self._membership.prepared(is_done=False)
        if not is_committed:
            return False
        self._last_commit = None
        is_lost = effect.is_lost or self._membership.has_lost_partitions
        owned = self._subscription.assigned()
        kept = () if is_lost or not self._is_cooperative else [at for at in owned if at.topic in self._member.topics]
        try:
            await self._give_up(kept, is_lost=is_lost)
        finally:
            # A generation that ended while the listener worked: kept partitions are lost, and the next round says so.
            self._membership.prepared(is_done=not (kept and self._membership.has_lost_partitions))
        return True

    async def _commit_before_rebalance(self, deadline_ms: float) -> bool:
        """Commit the positions (auto commit); return False if the poll ends first. One that fails is not raised."""
        if self._last_commit is None:
            offsets = self._consumed()
            if not self._auto_commit.is_on or not offsets:
                return True
            self._auto_commit.restart(now_ms())
            limit_ms = now_ms() + self._settings.max_poll_interval_ms
            self._last_commit = self._begin(self._member.commit(offsets, limit_ms))
        left_seconds = max(0.0, deadline_ms - now_ms()) / 1000
        return bool((await asyncio.wait({self._last_commit}, timeout=left_seconds))[0])

    async def _give_up(self, kept: Sequence[TopicPartition] = (), *, is_lost: bool) -> None:
        """Tell the listener, and read no partition but those that are kept, whatever the listener raises."""
        partitions = sorted(set(self._subscription.assigned()) - set(kept))
        try:
            if partitions:
                await tell(
                    self._listener.on_partitions_lost if is_lost else self._listener.on_partitions_revoked, partitions
                )
        finally:
            self._subscription.assign(kept)

    async def _take_assignment(self, effect: TakeAssignment) -> None:
        partitions = decode_assignment(effect.assignment)
        foreign = sorted({at.topic for at in partitions} - self._member.topics)
        if foreign:
            self._membership.request_rejoin(f"received assignment has topics that are not subscribed to: {foreign}")
            return
        self._member.taken_generation = effect.generation.number
        owned = self._subscription.assigned()
        added = [at for at in partitions if at not in owned]
        if set(owned) - set(partitions):  # after them the partitions that come in exchange (KIP-429)
            self._membership.request_rejoin("need to revoke partitions and re-join")
        try:
            await self._give_up([at for at in partitions if at in owned], is_lost=False)
        finally:
            self._subscription.assign(partitions)
            self._auto_commit.restart(now_ms())
            self._metadata_changed()
            await tell(self._listener.on_partitions_assigned, added)

    def _due_ms(self) -> float:
        now = now_ms()
        due_ms = min(super()._due_ms(), self._membership.poll_due_ms(now))
        return min(due_ms, self._auto_commit.next_ms) if self._auto_commit.next_ms > now else due_ms

    # Offsets ------------------------------------------------------------------------------------------------

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            at: OffsetAndMetadata(
                position.offset, NO_EPOCH if position.last_fetched_epoch is None else position.last_fetched_epoch
            )
            for at, position in self._subscription.consumed().items()
        }

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a commit beside the polls."""
        task = asyncio.get_running_loop().create_task(work)
        self._commits.add(task)
        task.add_done_callback(self._commit_ended)
        return task

    def _commit_ended(self, task: asyncio.Task[None]) -> None:
        self._commits.discard(task)
        if not task.cancelled():
            task.exception()  # of a commit before a rebalance: the rebalance goes on, as in Kafka's consumer
        self._wake.set()

    def _commit_if_due(self) -> None:
        """Commit what earlier polls have returned, when the interval has passed."""
        if not self._auto_commit.is_due(now_ms()):
            return
        self._auto_commit.restart(now_ms())
        if offsets := self._consumed():
            self._begin(self._auto_commit_once(offsets))

    async def _auto_commit_once(self, offsets: Offsets) -> None:
        try:
            await self._member.commit_once(offsets)
        except TidegaugeError as problem:
            self._auto_commit.failed(problem, now_ms())

    async def commit_sync(self, offsets: Offsets | None = None, *, timeout_ms: float = 60_000) -> None:
        """Commit offsets, after the commits that were begun before, and wait until they are committed.

        Args:
            offsets: the next offset to read of each partition; None: the positions, behind what poll has returned.
            timeout_ms: how long it may take, with the commits before it and retries while the coordinator moves.

        Raises:
            CommitFailedError: the group has rebalanced; others may have the partitions already.
            TidegaugeError: REBALANCE_IN_PROGRESS, complete the rebalance with poll; REQUEST_TIMED_OUT, the offsets may
                be committed all the same. FENCED_INSTANCE_ID, OFFSET_METADATA_TOO_LARGE, INVALID_REQUEST.
        """
        wanted = self._to_commit(offsets)
        deadline_ms = now_ms() + timeout_ms
        if not await self._wait_for_commits(deadline_ms):
            raise TidegaugeError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The offsets were not sent: an earlier commit has had no response in {timeout_ms:.0f} ms, and a later "
                "one must not overtake it; commit again",
            )
        if wanted:
            try:
                async with asyncio.timeout(max(0.0, deadline_ms - now_ms()) / 1000):
                    await self._member.commit(wanted, deadline_ms)
            except TimeoutError:
                raise TidegaugeError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"The coordinator has not responded in {timeout_ms:.0f} ms; the offsets may be committed all the "
                    "same. Commit again",
                ) from None
        self._run_callbacks()

    def commit_async(self, offsets: Offsets | None = None, *, callback: CommitCallback | None = None) -> None:
        """Begin to commit offsets; nothing is retried. Commits are sent in the order of the calls.

        Args:
            offsets: see ``commit_sync``.
            callback: called in a later poll, commit or ``stop`` with the offsets, and why they are not committed or
                None; ``RetriableCommitFailedError`` says that a later commit may succeed.

        Raises:
            TidegaugeError: INVALID_REQUEST, an offset is negative.
        """
        wanted = self._to_commit(offsets)
        self._begin(self._commit_and_report(wanted, callback))

    async def _commit_and_report(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        outcome: TidegaugeError | None = None
        try:
            if offsets:
                await self._member.commit_once(offsets)
        except TidegaugeError as problem:
            outcome = RetriableCommitFailedError(problem.code, problem.message) if is_retried(problem) else problem
        if callback is not None:
            self._callbacks.append(lambda: callback(offsets, outcome))

    def _run_callbacks(self) -> None:
        while self._callbacks:
            self._callbacks.popleft()()

    def _to_commit(self, offsets: Offsets | None) -> Offsets:
        if not self._is_running:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "the consumer is not running; start it, or use async with")
        wanted = self._consumed() if offsets is None else dict(offsets)
        for at, one in wanted.items():
            if one.offset < 0:
                raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"Invalid offset of {at}: {one.offset}")
        return wanted

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_ms: float = 60_000
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the offsets that the group has committed; None if there is none.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, no coordinator responded in time, or a commit is still in flight.
        """
        deadline_ms = now_ms() + timeout_ms
        while True:
            try:
                return _without_errors(await self._member.committed(partitions))
            except TidegaugeError as problem:
                if not is_retried(problem):
                    raise
                if now_ms() >= deadline_ms:
                    raise TidegaugeError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"The committed offsets could not be determined in time: {problem.message}",
                    ) from None
            await asyncio.sleep(self._retry_backoff_ms / 1000)

    def _send(self) -> None:
        super()._send()
        if self._initialising is None and (due := self._subscription.due(Phase.INITIALIZING, now_ms=now_ms())):
            self._initialising = asyncio.get_running_loop().create_task(self._initialise(due))

    async def _initialise(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch the committed offsets at which newly assigned partitions begin."""
        try:
            found: Mapping[TopicPartition, OffsetAndMetadata | TidegaugeError | None]
            found = await self._member.committed(partitions)
        except TidegaugeError as problem:
            found = dict.fromkeys(partitions, problem)
        finally:
            self._initialising = None
            self._wake.set()
        for at, one in found.items():
            if not isinstance(one, TidegaugeError):
                self._subscription.committed_found(at, None if one is None else _position(one))
            elif is_retried(one):
                self._subscription.back_off(at, now_ms() + self._retry_backoff_ms, one)
            else:
                self._subscription.report(at, one)


def _position(committed: OffsetAndMetadata) -> Position:
    return Position(committed.offset, None if committed.leader_epoch < 0 else committed.leader_epoch)


def _without_errors(
    found: Mapping[TopicPartition, OffsetAndMetadata | TidegaugeError | None],
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    offsets = {}
    for at, one in found.items():
        if isinstance(one, TidegaugeError):
            raise one
        offsets[at] = one
    return offsets


def _check(group_id: str, strategies: Sequence[str], session_timeout_ms: int, heartbeat_interval_ms: int) -> None:
    """Check what Kafka's ConsumerConfig checks."""
    if not group_id.strip():
        raise TidegaugeError(ErrorCode.INVALID_GROUP_ID, "The group id must not be empty")
    unknown = [one for one in strategies if one not in ASSIGNORS]
    if unknown or not strategies or isinstance(strategies, str):
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"partition_assignment_strategy must be a list of {', '.join(ASSIGNORS)}, not {strategies!r}",
        )
    if heartbeat_interval_ms >= session_timeout_ms:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"heartbeat_interval_ms ({heartbeat_interval_ms}) must be lower than session_timeout_ms "
            f"({session_timeout_ms})",
        )
