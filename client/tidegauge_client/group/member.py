"""The event loop around a membership: requests to the coordinator, and heartbeats between the polls."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.messages.join_group import JoinGroupResponse
from tidegauge.partition import TopicPartition
from tidegauge.waits import until_set
from tidegauge_client.cluster import Cluster, now_ms
from tidegauge_client.group import assignors
from tidegauge_client.group.assignors import COOPERATIVE_STICKY
from tidegauge_client.group.commits import commit_generation, commit_problem, is_retried
from tidegauge_client.group.consumer_protocol import (
    NO_GENERATION,
    MemberSubscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidegauge_client.group.effects import Effect, FindCoordinator, LeaveGroup, SendHeartbeat, SendJoin
from tidegauge_client.group.membership import COORDINATOR_GONE, UNREACHABLE, JoinResponse, Membership
from tidegauge_client.group.requests import GroupRequests
from tidegauge_client.group.sticky import user_data
from tidegauge_client.kafka_offsets import OffsetAndMetadata

LEAVE_TIMEOUT_MS = 5_000.0
"""How long a member that leaves because of max.poll.interval.ms waits for the coordinator's response."""


class Member:
    """Performs what a membership asks for.

    Args:
        membership: the rules.
        requests: of this member.
        protocols: names of the assignors, by preference.
        owned: returns the partitions that the consumer has.
        changed: called on the loop whenever a poll may have something to do.
    """

    def __init__(
        self,
        membership: Membership,
        requests: GroupRequests,
        protocols: Collection[str],
        owned: Callable[[], Collection[TopicPartition]],
        changed: Callable[[], None],
    ) -> None:
        self.membership = membership
        self.topics: frozenset[str] = frozenset()
        self._requests = requests
        self._protocols = protocols
        self._owned = owned
        self.taken_generation = NO_GENERATION
        self._changed = changed
        self._group_topics: frozenset[str] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()
        self._finding: asyncio.Task[None] | None = None
        self._background: asyncio.Task[None] | None = None
        self._due_changed = asyncio.Event()
        self._one_commit = asyncio.Lock()

    @property
    def _cluster(self) -> Cluster:
        return self._requests.cluster

    # Start and stop ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to send heartbeats when they are due."""
        if self._background is None:
            self._background = asyncio.get_running_loop().create_task(self._run_background())

    async def stop(self) -> None:
        """Cancel everything that is in flight."""
        tasks = [*self._tasks, *([] if self._background is None else [self._background])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._background = None

    async def _run_background(self) -> None:
        while True:
            for effect in self.membership.background_effects(now_ms()):
                self.perform(effect)
            self._due_changed.clear()
            due_ms = self.membership.background_due_ms()
            wait_seconds = None if due_ms == math.inf else max(0.0, due_ms - now_ms()) / 1000
            await until_set(self._due_changed, wait_seconds)

    def _stir(self) -> None:
        self._due_changed.set()
        self._changed()

    def perform(self, effect: Effect) -> None:
        """Begin what an effect asks for; its outcome goes to the membership."""
        match effect:
            case FindCoordinator():
                self._finding = self._spawn(self._find())
            case SendJoin():
                self._spawn(self._join(effect))
            case SendHeartbeat():
                self._spawn(self._beat(effect))
            case LeaveGroup():
                self._spawn(self.leave(effect, LEAVE_TIMEOUT_MS))
            case _:
                raise AssertionError(f"{effect} is the consumer's")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Coordinator -------------------------------------------------------------------------------------------------

    async def _find(self) -> None:
        try:
            self.membership.coordinator_found(await self._requests.find(), now_ms())
        except TidegaugeError as problem:
            self.membership.coordinator_not_found(problem, now_ms())
        finally:
            self._stir()

    async def coordinator(self) -> str:
        """Return the coordinator's address; one attempt to find it is made.

        Raises:
            TidegaugeError: COORDINATOR_NOT_AVAILABLE for now, or the error after which no more attempt is made.
        """
        for effect in self.membership.find_now(now_ms()):
            self.perform(effect)
        if self.membership.coordinator is None and self._finding is not None:
            await asyncio.wait({self._finding})
        if self.membership.failure is not None:
            raise self.membership.failure
        if self.membership.coordinator is None:
            raise self.membership.trouble or TidegaugeError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.membership.coordinator

    # Rebalances --------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, int]:
        """Return the number of partitions of each existing topic of the group."""
        known = self._cluster.info.topics
        return {
            name: len(known[name].partitions)
            for name in sorted(self._group_topics | self.topics)
            if name in known and known[name].partitions
        }

    async def _join(self, effect: SendJoin) -> None:
        membership, sent = self.membership, effect.generation
        protocols = self._subscriptions(sent.number)
        try:
            address = await self.coordinator()
            response = await self._requests.join(address, sent, protocols, effect.reason)
            goes_on = membership.joined(_join_response(response), sent, now_ms())
            self._stir()
            if goes_on:
                sent = membership.generation
                await self._synchronise(address, response)
        except TidegaugeError as problem:
            membership.join_failed(problem.code, problem.message, sent, now_ms())
        finally:
            self._stir()

    def _subscriptions(self, generation: int) -> dict[str, bytes]:
        """Return the member's subscription for each assignor, with kept partitions (KIP-429)."""
        one = MemberSubscription(tuple(self.topics), None, tuple(sorted(self._owned())), generation)
        return {
            name: encode_subscription(
                replace(one, user_data=user_data(self.taken_generation)) if name == COOPERATIVE_STICKY else one
            )
            for name in self._protocols
        }

    async def _synchronise(self, address: str, joined: JoinGroupResponse) -> None:
        membership = self.membership
        generation = membership.generation
        assignments: Mapping[str, bytes] = {}
        if joined.leader == joined.member_id:
            assignments = await self._assignments(joined)
        assignment = await self._requests.synchronise(address, generation, assignments)
        membership.synchronised(generation, assignment, now_ms())

    async def _assignments(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """Return every member's assignment, after a refresh for unknown topics."""
        members = {
            one.member_id: decode_subscription(bytes(one.metadata), one.group_instance_id) for one in joined.members
        }
        self._group_topics = frozenset(topic for one in members.values() for topic in one.topics)
        self._cluster.add_topics(self._group_topics)
        if not self._group_topics <= self._cluster.info.topics.keys():
            with contextlib.suppress(TidegaugeError):  # topics that are not found are left out
                await self._cluster.refresh()
        partitions = self.snapshot()
        self.membership.assigned_as_leader(partitions)
        if joined.skip_assignment:
            return {}
        assigned = assignors.assign(joined.protocol_name or "", partitions, members)
        return {member: encode_assignment(found) for member, found in assigned.items()}

    async def _beat(self, effect: SendHeartbeat) -> None:
        sent = effect.generation
        address = self.membership.coordinator
        if address is None:
            self.membership.heartbeat_done(sent, ErrorCode.COORDINATOR_NOT_AVAILABLE, "", now_ms())
            return
        try:
            error, message = await self._requests.heartbeat(address, sent), ""
        except TidegaugeError as problem:
            error, message = problem.code, problem.message
        self.membership.heartbeat_done(sent, error, message, now_ms())
        self._stir()

    async def leave(self, effect: LeaveGroup, timeout_ms: float) -> None:
        """Send LeaveGroup; without a response the session ends by itself."""
        address = self.membership.coordinator
        if address is not None:
            with contextlib.suppress(TidegaugeError):
                await self._requests.leave(address, effect.generation, effect.reason, timeout_ms)
        self._stir()

    # Offsets -----------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: float) -> None:
        """Commit, and retry errors that may pass.

        Raises:
            TidegaugeError: see ``commit_once``; REQUEST_TIMED_OUT.
        """
        while True:
            try:
                return await self.commit_once(offsets)
            except TidegaugeError as problem:
                if not is_retried(problem):
                    raise
                if now_ms() >= deadline_ms:
                    raise TidegaugeError(
                        ErrorCode.REQUEST_TIMED_OUT, f"The offsets could not be committed in time: {problem.message}"
                    ) from None
            await asyncio.sleep(self.membership.settings.retry_backoff_ms / 1000)

    async def commit_once(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Send one OffsetCommit; one at a time, so that an earlier one cannot overtake a later one.

        Raises:
            TidegaugeError: why the offsets are not committed.
        """
        async with self._one_commit:
            address = await self.coordinator()
            sent = commit_generation(self.membership, is_subscribed=bool(self.topics))
            try:
                errors = await self._requests.commit(address, sent, offsets)
            except TidegaugeError as problem:
                errors = dict.fromkeys(offsets, (problem.code, problem.message))
            problem_found = commit_problem(self.membership, sent, errors)
        if problem_found is not None:
            self._stir()
            raise problem_found

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | TidegaugeError | None]:
        """Return each partition's committed offset, None, or why it is not known.

        Raises:
            TidegaugeError: of the whole group; ``is_retried`` says whether it passes.
        """
        address = await self.coordinator()
        try:
            return await self._requests.committed(address, partitions)
        except TidegaugeError as problem:
            if problem.code in UNREACHABLE | COORDINATOR_GONE:
                self.membership.coordinator_lost()
            raise


def _join_response(response: JoinGroupResponse) -> JoinResponse:
    return JoinResponse(
        ErrorCode.of(response.error_code),
        "",
        response.generation_id,
        response.member_id,
        response.protocol_name or "",
        response.leader,
    )
