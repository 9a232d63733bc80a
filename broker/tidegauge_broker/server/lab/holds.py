"""Held followers, and their steps: one round at a time, by command (row B4; design, section 7).

Rules:
    1. A hold belongs to a partition on this broker, whatever its role and leader: it lasts until it is released or
       the process ends. A held partition is left out of the fetchers' rounds; ``hold`` returns when no round that
       names it is under way.
    2. A step is one round of the partition alone, on a stream of its own: request, answer (after its wait in the
       purgatory), append. What the core is asked and told is what a fetcher asks and tells.
    3. A step until the request stops when the leader has taken it. The leader keeps the answer: it is lost if either
       of the two dies or the connection breaks. The next step, or the release, ends the round; if the follower has
       begun anew meanwhile (another leader, another epoch), the kept answer counts no more and a new round begins.
    4. A refusal, by the leader or by the state of things, is an answer with its error, at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import grpc.aio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2, offsets_pb2
from tidegauge.v1.lab_service_pb2_grpc import LabServiceStub
from tidegauge_broker.replica.messages import EpochRound, FetchRound, ReplicaView, Wait
from tidegauge_broker.server.replication.fetchers import Fetchers
from tidegauge_broker.server.wire.grpc import convert
from tidegauge_controller import wire

if TYPE_CHECKING:  # it exists in the stubs only
    from tidegauge.v1.lab_service_pb2_grpc import LabServiceAsyncStub

LOG = logging.getLogger("tidegauge.lab")
_PATIENCE_SECONDS = 2.0
"""How much longer than its wait in the purgatory a round may take before a hold breaks it off."""

Answer = TypeVar("Answer")
_Round = FetchRound | EpochRound
_Call = grpc.aio.StreamStreamCall[lab_pb2.SteppedRoundRequest, lab_pb2.SteppedRoundResponse]


class _Lost(Exception):
    """The round has no answer.

    Attributes:
        error: as which error that is told.
    """

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


@dataclass(slots=True)
class _Asked:
    """A round that the leader has taken, on a connection of its own: an earlier failure must not refuse it."""

    call: _Call
    channel: grpc.aio.Channel
    chosen: _Round

    async def end(self) -> None:
        """Give it up; does nothing if it has been answered."""
        self.call.cancel()
        await self.channel.close()


@dataclass(slots=True)
class _Hold:
    """One held partition.

    Attributes:
        last_error: of its last step, to say why it is asked for no more.
    """

    kept: _Asked | None = None
    is_stepping: bool = False
    last_error: ErrorCode = ErrorCode.NONE


class Holds:
    """The held partitions of this broker.

    Args:
        fetchers: the broker's; from now on they leave held partitions out.
        held: those that are held from the start.
    """

    def __init__(self, fetchers: Fetchers, held: Iterable[TopicPartition] = ()) -> None:
        self._fetchers = fetchers
        self._manager = fetchers.manager
        self._held: dict[TopicPartition, _Hold] = {at: _Hold() for at in held}
        fetchers.admits = self._admits

    def _admits(self, at: TopicPartition) -> bool:
        return at not in self._held

    def held(self) -> dict[TopicPartition, int | None]:
        """The held partitions, and for each the leader that keeps an answer back."""
        return {
            at: None if hold.kept is None or hold.kept.call.done() else hold.kept.chosen.leader
            for at, hold in sorted(self._held.items())
        }

    async def hold(self, at: TopicPartition) -> bool:
        """Rule 1; says whether that changed something."""
        changed = at not in self._held
        if changed:
            self._held[at] = _Hold()
            LOG.warning("Lab: fetches of %s are held", at)
        await self._fetchers.until_left_out(at, self._fetchers.wait_seconds + _PATIENCE_SECONDS)
        return changed

    async def release(self, at: TopicPartition) -> bool:
        """Let it fetch by itself again; says whether that changed something."""
        hold = self._held.get(at)
        if hold is None:
            return False
        if hold.kept is not None:
            try:
                async with asyncio.timeout(self._fetchers.wait_seconds + _PATIENCE_SECONDS):
                    await self.step(at, keep_answer=False)
            except (TidegaugeError, TimeoutError):  # it follows no more, or that leader has gone silent
                await self._forget(hold)
        self._held.pop(at, None)
        LOG.warning("Lab: fetches of %s are free again", at)
        self._fetchers.changed(sorted(self._manager.core.leaders_followed()))
        return True

    async def step(self, at: TopicPartition, *, keep_answer: bool) -> lab_pb2.StepFetchResponse:
        """Rules 2 to 4.

        Raises:
            TidegaugeError: INVALID_REQUEST, it is not held, is being stepped already, or does not follow.
        """
        before = self._view(at)
        self._require_follower(at, before)
        hold = self._held.get(at)
        if hold is None:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, f"{at} is not held on broker {self._fetchers.broker_id}: hold it first"
            )
        if hold.is_stepping:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"a step of {at} is under way")
        hold.is_stepping = True
        try:
            response = lab_pb2.StepFetchResponse(before=_replica(before))
            try:
                await self._step(at, hold, response, keep_answer=keep_answer)
            except _Lost as problem:
                response.error, response.error_message = wire.to_error(problem.error), str(problem)
            hold.last_error = wire.from_error(response.error)
            response.after.CopyFrom(_replica(self._view(at)))
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
        self, at: TopicPartition, hold: _Hold, response: lab_pb2.StepFetchResponse, *, keep_answer: bool
    ) -> None:
        chosen = await self._choose(at, has_kept=hold.kept is not None)
        if chosen is not None:  # rule 3: it has begun anew
            await self._forget(hold)
        kept, hold.kept = hold.kept, None
        chosen = chosen or (kept.chosen if kept is not None else None)
        if chosen is None:
            raise self._why_nothing_is_asked(at, hold)
        _describe_question(chosen, response)
        try:
            if kept is None:
                kept = await self._ask(chosen, keep_answer=keep_answer)
                if keep_answer:
                    hold.kept = kept
                    response.answer_kept_back = True
                    return
            else:
                await self._within(kept.call.write(lab_pb2.SteppedRoundRequest(give_answer=lab_pb2.GiveAnswer())))
            answer = await self._within(kept.call.read())
            if not isinstance(answer, lab_pb2.SteppedRoundResponse):
                raise _Lost(ErrorCode.NETWORK_EXCEPTION, "the leader ended the stream without an answer")
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as problem:
            self._manager.round_failed(chosen.leader, chosen.request_id)
            raise _Lost(ErrorCode.NETWORK_EXCEPTION, _words(problem)) from None
        except (_Lost, asyncio.CancelledError):
            self._manager.round_failed(chosen.leader, chosen.request_id)
            raise
        finally:
            if kept is not None and hold.kept is None:
                await kept.end()
        self._take(chosen, answer, response)

    async def _forget(self, hold: _Hold) -> None:
        """What a leader keeps back counts no more."""
        kept, hold.kept = hold.kept, None
        if kept is not None:
            self._manager.round_failed(kept.chosen.leader, kept.chosen.request_id)
            await kept.end()

    async def _choose(self, at: TopicPartition, *, has_kept: bool) -> _Round | None:
        """The round that the core wants now, after its pause if it makes one; None: it waits for an answer, or for
        the controller.
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

    def _why_nothing_is_asked(self, at: TopicPartition, hold: _Hold) -> _Lost:
        view = self._view(at)
        if view.leader not in self._manager.core.leaders_followed():
            return _Lost(ErrorCode.LEADER_NOT_AVAILABLE, f"{at} has no leader that this broker knows of")
        error = hold.last_error if hold.last_error is not ErrorCode.NONE else ErrorCode.REPLICA_NOT_AVAILABLE
        return _Lost(error, f"this replica of {at} has failed and fetches no more until the controller tells it anew")

    async def _ask(self, chosen: _Round, *, keep_answer: bool) -> _Asked:
        """Send the round's request; returns when the leader has taken it."""
        endpoint = self._fetchers.metadata.endpoint(chosen.leader)
        if endpoint is None:
            raise _Lost(ErrorCode.BROKER_NOT_AVAILABLE, f"leader {chosen.leader} is not among the live brokers")
        # The stub class is one; the generated types know it under two names.
        channel = self._fetchers.peers.new_channel(endpoint.address)
        stub: LabServiceAsyncStub = LabServiceStub(channel)  # type: ignore[assignment]  # see above
        asked = _Asked(stub.SteppedRound(), channel, chosen)
        try:
            await self._within(asked.call.write(self._request(chosen, keep_answer=keep_answer)))
            taken = await self._within(asked.call.read())
            if not isinstance(taken, lab_pb2.SteppedRoundResponse):
                raise _Lost(ErrorCode.NETWORK_EXCEPTION, "the leader did not take the request")
        except BaseException:
            await asked.end()
            raise
        return asked

    def _request(self, chosen: _Round, *, keep_answer: bool) -> lab_pb2.SteppedRoundRequest:
        if isinstance(chosen, EpochRound):
            question = offsets_pb2.OffsetsForLeaderEpochRequest(
                replica_id=self._fetchers.broker_id,
                partitions=[convert.to_epoch_question(item) for item in chosen.partitions],
            )
            return lab_pb2.SteppedRoundRequest(epoch_question=question, keep_answer=keep_answer)
        request = self._fetchers.request_for(chosen, first=True)
        request.partitions.extend(convert.to_fetch_partition(item) for item in chosen.partitions)
        return lab_pb2.SteppedRoundRequest(fetch=request, keep_answer=keep_answer)

    async def _within(self, waiting: Awaitable[Answer]) -> Answer:
        """As a fetcher waits."""
        try:
            async with asyncio.timeout(self._fetchers.round_timeout_seconds):
                return await waiting
        except TimeoutError:
            raise _Lost(
                ErrorCode.REQUEST_TIMED_OUT, f"no answer within {self._fetchers.round_timeout_seconds:g} s"
            ) from None

    def _take(self, chosen: _Round, answer: lab_pb2.SteppedRoundResponse, response: lab_pb2.StepFetchResponse) -> None:
        """Give the answer to the core, and say what it was."""
        if isinstance(chosen, EpochRound):
            ends = answer.epoch_end.partitions
            self._manager.epochs_answered(
                chosen.leader, chosen.request_id, [convert.from_epoch_answer(item) for item in ends]
            )
            if ends:
                response.epoch_result.CopyFrom(ends[0])
                response.error, response.error_message = ends[0].error, ends[0].error_message
            return
        whole = wire.from_error(answer.fetch.error)
        if whole is not ErrorCode.NONE:
            self._manager.round_failed(chosen.leader, chosen.request_id)
            raise _Lost(whole, answer.fetch.error_message)
        results = answer.fetch.partitions
        self._manager.fetch_answered(
            chosen.leader, chosen.request_id, [convert.from_fetch_result(item) for item in results]
        )
        if results:
            response.records_bytes = len(results[0].records)
            response.fetch_result.CopyFrom(results[0])
            response.fetch_result.ClearField("records")
            response.error, response.error_message = results[0].error, results[0].error_message

    async def close(self) -> None:
        """The broker ends: what leaders keep back is lost."""
        for hold in self._held.values():
            if hold.kept is not None:
                await hold.kept.end()


def _replica(view: ReplicaView) -> lab_pb2.LabReplica:
    return lab_pb2.LabReplica(
        log_end_offset=view.log_end_offset,
        high_watermark=view.high_watermark,
        log_start_offset=view.log_start_offset,
        leader_epoch=view.leader_epoch,
    )


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
        return f"the leader does not answer: {(problem.details() or problem.code().name).rpartition(': ')[2]}"
    return "the connection to the leader has ended"
