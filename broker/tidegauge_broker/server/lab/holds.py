"""Held followers, and their steps: one round at a time, by command (docs/guide/03-one-round-late.md).

Rules:
    1. A hold belongs to a partition on this broker, in any role and with any leader: it lasts until it is released or
       the process ends. A held partition is left out of the fetchers' rounds; ``hold`` returns when no round that
       names it is in flight.
    2. A step is one round of the partition alone, on a stream of its own: request, response (after its wait in the
       purgatory), append. It is a fetcher's round (``Fetchers``: timeout, what the core is given), except for the
       stream, on which the leader also reports its replica before and after. Steps go over gRPC, even if the
       fetchers use Kafka's protocol; a leader that has no gRPC listener (Apache Kafka) can't be asked by one.
    3. A step until the request ends when the leader has taken it. The leader holds the response back: it is lost if
       either broker dies or the connection breaks. The next step, or the release, ends the round; if the follower has
       started again meanwhile (another leader, another epoch), that response is ignored and a new round begins.
    4. A refusal, by the leader or because of the replica's state, is a response with its error, at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2, metadata_pb2
from tidegauge.v1.lab_service_pb2_grpc import LabServiceStub
from tidegauge_broker.replica.messages import EpochRound, FetchRound, ReplicaView, Wait
from tidegauge_broker.server.replication.fetchers import Fetchers
from tidegauge_broker.server.replication.grpc_links import GrpcLinks
from tidegauge_broker.server.replication.leader_link import RoundFailed
from tidegauge_broker.server.wire.grpc import convert
from tidegauge_controller import wire

if TYPE_CHECKING:  # it exists in the stubs only
    from tidegauge.v1.lab_service_pb2_grpc import LabServiceAsyncStub

LOG = logging.getLogger("tidegauge.lab")
_PATIENCE_SECONDS = 2.0
"""Time beyond its wait in the purgatory after which a hold breaks a round off."""

Describe = Callable[[TopicPartition], metadata_pb2.ReplicaDescription | None]
_Round = FetchRound | EpochRound
_Call = grpc.aio.StreamStreamCall[lab_pb2.SteppedRoundRequest, lab_pb2.SteppedRoundResponse]


@dataclass(slots=True)
class _Asked:
    """A round that the leader has taken, on its own connection: no back-off of an earlier failure delays it."""

    call: _Call
    channel: grpc.aio.Channel
    chosen: _Round

    async def end(self) -> None:
        """Cancel the round; does nothing if its response has come."""
        self.call.cancel()
        await self.channel.close()


@dataclass(slots=True)
class _Hold:
    """One held partition.

    Attributes:
        last_error: of its last step, to say why it fetches no more.
    """

    kept: _Asked | None = None
    is_stepping: bool = False
    last_error: ErrorCode = ErrorCode.NONE


class Holds:
    """The held partitions of this broker.

    Args:
        fetchers: the broker's; from now on they leave held partitions out.
        links: the messages of a step, and the way to the leader.
        describe: returns the view of this broker's replica of a partition, or None.
        held: partitions that are held from the start.
    """

    def __init__(
        self, fetchers: Fetchers, links: GrpcLinks, describe: Describe, held: Iterable[TopicPartition] = ()
    ) -> None:
        self._fetchers = fetchers
        self._links = links
        self._describe = describe
        self._manager = fetchers.manager
        self._held: dict[TopicPartition, _Hold] = {at: _Hold() for at in held}
        self._tell_fetchers()

    def _tell_fetchers(self) -> None:
        """Let the rounds leave held partitions out; without one, each round need not look at all of its partitions."""
        self._fetchers.admits = self._admits if self._held else None

    def _admits(self, at: TopicPartition) -> bool:
        return at not in self._held

    def held(self) -> dict[TopicPartition, int | None]:
        """Return the held partitions, each with the leader that holds a response back."""
        return {
            at: None if hold.kept is None or hold.kept.call.done() else hold.kept.chosen.leader
            for at, hold in sorted(self._held.items())
        }

    async def hold(self, at: TopicPartition) -> bool:
        """Hold a partition (rule 1); return whether that changed something."""
        changed = at not in self._held
        if changed:
            self._held[at] = _Hold()
            self._tell_fetchers()
            LOG.warning("Lab: fetches of %s are held", at)
        await self._fetchers.until_left_out(at, self._fetchers.wait_seconds + _PATIENCE_SECONDS)
        return changed

    async def release(self, at: TopicPartition) -> bool:
        """Let a partition fetch by itself again; return whether that changed something."""
        hold = self._held.get(at)
        if hold is None:
            return False
        if hold.kept is not None:
            try:
                async with asyncio.timeout(self._fetchers.wait_seconds + _PATIENCE_SECONDS):
                    await self.step(at, hold_response=False)
            except (TidegaugeError, TimeoutError):  # it follows no more, or that leader does not respond
                await self._forget(hold)
        self._held.pop(at, None)
        self._tell_fetchers()
        LOG.warning("Lab: fetches of %s are free again", at)
        self._fetchers.changed(sorted(self._manager.core.leaders_followed()))
        return True

    async def step(self, at: TopicPartition, *, hold_response: bool) -> lab_pb2.StepFetchResponse:
        """Step a held partition by one round; rules 2 to 4.

        Raises:
            TidegaugeError: INVALID_REQUEST, it is not held, is being stepped already, or does not follow.
        """
        self._require_follower(at, self._view(at))
        hold = self._held.get(at)
        if hold is None:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, f"{at} is not held on broker {self._fetchers.broker_id}: hold it first"
            )
        if hold.is_stepping:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"a step of {at} is in progress")
        hold.is_stepping = True
        try:
            response = lab_pb2.StepFetchResponse(follower_before=self._describe(at))
            try:
                await self._step(at, hold, response, hold_response=hold_response)
            except RoundFailed as problem:
                response.error, response.error_message = wire.to_error(problem.error), str(problem)
            hold.last_error = wire.from_error(response.error)
            after = self._describe(at)
            if after is not None:
                response.follower_after.CopyFrom(after)
            return response
        finally:
            hold.is_stepping = False

    def _view(self, at: TopicPartition) -> ReplicaView:
        views = self._manager.core.describe(self._fetchers.now_ms(), {at.topic})
        view = next((view for view in views if view.topic_partition == at), None)
        if view is None:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, f"broker {self._fetchers.broker_id} has no replica of {at} to be stepped"
            )
        return view

    def _require_follower(self, at: TopicPartition, view: ReplicaView) -> None:
        if view.role == "leader":
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"broker {self._fetchers.broker_id} leads {at}; only a follower can be stepped",
            )

    async def _step(
        self, at: TopicPartition, hold: _Hold, response: lab_pb2.StepFetchResponse, *, hold_response: bool
    ) -> None:
        chosen = await self._choose(at, has_kept=hold.kept is not None)
        if chosen is not None:  # rule 3: it has started again
            await self._forget(hold)
        kept, hold.kept = hold.kept, None
        chosen = chosen or (kept.chosen if kept is not None else None)
        if chosen is None:
            raise self._why_nothing_is_asked(at, hold)
        _describe_question(chosen, response)
        try:
            if kept is None:
                kept = await self._ask(chosen, response, hold_response=hold_response)
                if hold_response:
                    hold.kept = kept
                    response.response_withheld = True
                    return
            else:
                async with self._links.within_round():
                    await kept.call.write(lab_pb2.SteppedRoundRequest(give_response=lab_pb2.GiveResponse()))
            message = await self._read(kept.call, response)
            self._take(chosen, message, response)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as problem:
            self._manager.round_failed(chosen.leader, chosen.request_id)
            raise RoundFailed(ErrorCode.NETWORK_EXCEPTION, _words(problem)) from None
        except (RoundFailed, asyncio.CancelledError):
            self._manager.round_failed(chosen.leader, chosen.request_id)
            raise
        finally:
            if kept is not None and hold.kept is None:
                await kept.end()

    async def _read(self, call: _Call, response: lab_pb2.StepFetchResponse) -> lab_pb2.SteppedRoundResponse:
        """Read the leader's next message; its description of its own replica goes into the response."""
        async with self._links.within_round():
            message = await call.read()
        if not isinstance(message, lab_pb2.SteppedRoundResponse):
            raise RoundFailed(ErrorCode.NETWORK_EXCEPTION, "the leader ended the stream without a response")
        if message.HasField("before") and not response.HasField("leader_before"):
            response.leader_before.CopyFrom(message.before)
        if message.HasField("after"):
            response.leader_after.CopyFrom(message.after)
        return message

    async def _forget(self, hold: _Hold) -> None:
        """Ignore the response that a leader holds back."""
        kept, hold.kept = hold.kept, None
        if kept is not None:
            self._manager.round_failed(kept.chosen.leader, kept.chosen.request_id)
            await kept.end()

    async def _choose(self, at: TopicPartition, *, has_kept: bool) -> _Round | None:
        """Return the core's next round, after its pause if it makes one.

        None: it waits for a response, or for the controller.
        """
        while True:
            view = self._view(at)
            self._require_follower(at, view)
            chosen = self._manager.core.next_round(view.leader, self._fetchers.now_ms(), lambda other: other == at)
            if not isinstance(chosen, Wait):
                return chosen
            if chosen.until_ms is None or has_kept:
                return None
            await asyncio.sleep(max(0, chosen.until_ms - self._fetchers.now_ms()) / 1000)

    def _why_nothing_is_asked(self, at: TopicPartition, hold: _Hold) -> RoundFailed:
        view = self._view(at)
        if view.leader not in self._manager.core.leaders_followed():
            return RoundFailed(ErrorCode.LEADER_NOT_AVAILABLE, f"{at} has no leader that this broker knows of")
        error = hold.last_error if hold.last_error is not ErrorCode.NONE else ErrorCode.REPLICA_NOT_AVAILABLE
        return RoundFailed(
            error,
            f"this replica of {at} has failed and does not fetch again until the controller sends a new LeaderAndIsr",
        )

    async def _ask(self, chosen: _Round, response: lab_pb2.StepFetchResponse, *, hold_response: bool) -> _Asked:
        """Send the round's request; returns when the leader has taken it."""
        # The stub class is one; the generated types know it under two names.
        channel = self._links.peers.new_channel(self._links.address_of(chosen.leader))
        stub: LabServiceAsyncStub = LabServiceStub(channel)  # type: ignore[assignment]  # see above
        asked = _Asked(stub.SteppedRound(), channel, chosen)
        try:
            async with self._links.within_round():
                await asked.call.write(self._request(chosen, hold_response=hold_response))
            await self._read(asked.call, response)
        except BaseException:
            await asked.end()
            raise
        return asked

    def _request(self, chosen: _Round, *, hold_response: bool) -> lab_pb2.SteppedRoundRequest:
        if isinstance(chosen, EpochRound):
            question = self._links.epoch_request(chosen)
            return lab_pb2.SteppedRoundRequest(epoch_question=question, keep_response=hold_response)
        request = self._links.request_for(chosen, first=True)
        request.partitions.extend(convert.to_fetch_partition(item) for item in chosen.partitions)
        return lab_pb2.SteppedRoundRequest(fetch=request, keep_response=hold_response)

    def _take(self, chosen: _Round, message: lab_pb2.SteppedRoundResponse, response: lab_pb2.StepFetchResponse) -> None:
        """Give the leader's response to the core, and say what it was."""
        if isinstance(chosen, EpochRound):
            self._fetchers.take_epochs(chosen, self._links.epoch_ends(message.epoch_end))
            for end in message.epoch_end.partitions[:1]:
                response.epoch_result.CopyFrom(end)
                response.error, response.error_message = end.error, end.error_message
            return
        self._fetchers.take_fetch(chosen, self._links.fetched(message.fetch))
        for result in message.fetch.partitions[:1]:
            response.records_bytes = len(result.records)
            response.fetch_result.CopyFrom(result)
            response.fetch_result.ClearField("records")
            response.error, response.error_message = result.error, result.error_message

    async def close(self) -> None:
        """Cancel the rounds whose responses leaders hold back: the broker stops."""
        for hold in self._held.values():
            if hold.kept is not None:
                await hold.kept.end()


def _describe_question(chosen: _Round, response: lab_pb2.StepFetchResponse) -> None:
    response.leader_id = chosen.leader
    if isinstance(chosen, EpochRound):
        response.kind = lab_pb2.STEP_KIND_EPOCH_END
        response.epoch_question.CopyFrom(convert.to_epoch_question(chosen.partitions[0]))
    else:
        response.kind = lab_pb2.STEP_KIND_FETCH
        response.fetch.CopyFrom(convert.to_fetch_partition(chosen.partitions[0]))


def _words(problem: Exception) -> str:
    if isinstance(problem, grpc.aio.AioRpcError):
        # gRPC names every address and attempt; the last words say what it was.
        return f"the leader does not respond: {(problem.details() or problem.code().name).rpartition(': ')[2]}"
    return "the connection to the leader has ended"
