"""The messages of a cluster that is driven by hand: numbered, in flight until they arrive or are lost, then kept.

In flight are the simulated world's messages: requests and responses of followers, the first request of
each of a controller's queues, ISR proposals and their verdicts, and a client's batches. Each has a number that the same
schedule always gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tidegauge.control import (
    NO_LEADER,
    IsrProposal,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.record_batch import iterate_headers
from tidegauge_broker.replica.messages import EpochEndResult, EpochRound, FetchedPartition, FetchRound
from tidegauge_proof.simulator.clients import Produced
from tidegauge_proof.simulator.memory_broker import AT
from tidegauge_proof.simulator.traffic import Exchange, Verdict

IN_FLIGHT, ARRIVED, LOST = "in flight", "arrived", "lost"
CLIENT = -1
"""Stands for the client where a broker's number is expected."""
COORDINATOR_REQUEST, COORDINATOR_RESPONSE = "coordinator", "coordinator-response"
"""To and from coordinators, and what belongs to transactions: markers, transactional batches."""
FETCH, FETCH_RESPONSE, CONTROL, STRAY = "fetch", "fetch-response", "control", "late-control"
ALTER_PARTITION, VERDICT, PRODUCE, PRODUCE_RESPONSE = "alter-partition", "verdict", "produce", "produce-response"


@dataclass(slots=True, eq=False)
class Message:
    """One message.

    Attributes:
        number: from 1, in the order in which messages came to be.
        kind: one of the constants of this module.
        source: the sending broker, or ``CLIENT``.
        target: the receiving broker, or ``CLIENT``.
        text: name and content, for people.
        payload: the object that is handed over.
        is_held: whether it waits for a hand.
        sent: number of the action in which it was sent; 0: at the start.
        ended: number of the action in which it arrived or was lost; -1 while it is in flight.
        fate: in flight, arrived or lost.
        note: why it can't arrive now, or its result; else empty.
    """

    number: int
    kind: str
    source: int
    target: int
    text: str
    payload: Any
    is_held: bool
    sent: int
    ended: int = -1
    fate: str = IN_FLIGHT
    note: str = ""


@dataclass(slots=True, eq=False)
class Coordinated:
    """The payload of a message to or from a coordinator.

    Attributes:
        arrive: hands it over; returns why it was lost on arrival, empty if it was not.
        lose: called if it is lost.
        produced: the client's batch that it carries, if any.
    """

    arrive: Callable[[], str]
    lose: Callable[[], None]
    produced: Produced | None = None


def text_of_request(exchange: Exchange) -> str:
    """Return a follower's request in words."""
    chosen = exchange.chosen
    if isinstance(chosen, EpochRound):
        asked = ", ".join(f"epoch {one.leader_epoch}" for one in chosen.partitions)
        return f"OffsetsForLeaderEpoch({asked})"
    wanted = ", ".join(_wanted(one) for one in chosen.partitions)
    return f"Fetch({wanted})"


def _wanted(one: Any) -> str:
    last = "" if one.last_fetched_epoch is None else f", last fetched epoch {one.last_fetched_epoch}"
    current = "" if one.current_leader_epoch is None else f", leader epoch {one.current_leader_epoch}"
    named = "" if one.topic_partition == AT else f"{one.topic_partition} "
    return f"{named}offset {one.fetch_offset}{last}{current}"


def text_of_response(exchange: Exchange) -> str:
    """Return a leader's response to a follower in words."""
    parts = list(_response_parts(exchange))
    if isinstance(exchange.chosen, FetchRound):
        return f"Fetch response({'; '.join(parts) or 'nothing'})"
    return f"OffsetsForLeaderEpoch response({'; '.join(parts)})"


def _response_parts(exchange: Exchange) -> Iterator[str]:
    for one in exchange.response or ():
        if one.error is not ErrorCode.NONE:
            yield one.error.name
        elif isinstance(one, EpochEndResult):
            yield f"epoch {one.end.epoch} ends at {one.end.end_offset}"
        elif one.diverging is not None:
            yield f"diverging epoch {one.diverging.epoch}, end {one.diverging.end_offset}"
        else:
            named = "" if one.topic_partition == AT else f"{one.topic_partition} "
            yield f"{named}{_records_in(one)}, HW {one.high_watermark}"


def _records_in(one: FetchedPartition) -> str:
    headers = list(iterate_headers(one.records))
    if not headers:
        return "no records"
    first, last = headers[0].base_offset, headers[-1].last_offset
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def text_of_control(message: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest) -> str:
    """Return a controller's request in words."""
    epoch = f"controller epoch {message.header.controller_epoch}"
    if isinstance(message, StopReplicaRequest):
        return f"StopReplica({epoch})"
    if isinstance(message, LeaderAndIsrRequest):
        states = [one.state for one in message.partitions]
        return f"LeaderAndIsr({'; '.join([*map(_state, states), epoch])})"
    states = [one.state for one in message.partitions]
    live = ",".join(str(one.broker_id) for one in message.live_brokers)
    return f"UpdateMetadata({'; '.join([f'live brokers {live}', *map(_state, states)])})"


def _state(state: Any) -> str:
    leader = "no leader" if state.leader == NO_LEADER else f"leader {state.leader}"
    return f"{leader}, epoch {state.leader_epoch}, ISR {_ids(state.isr)}"


def text_of_proposal(proposal: IsrProposal) -> str:
    """Return a leader's ISR proposal in words."""
    return f"AlterPartition(ISR {_ids(proposal.new_isr)}, leader epoch {proposal.leader_epoch})"


def text_of_verdict(verdict: Verdict) -> str:
    """Return the controller's verdict on a proposal in words."""
    if verdict.verdict is None:
        return "AlterPartition response(none: the proposal will be sent again)"
    if verdict.verdict.error is not ErrorCode.NONE:
        return f"AlterPartition response({verdict.verdict.error.name})"
    return f"AlterPartition response(ISR {_ids(verdict.verdict.isr)})"


def text_of_produce(produced: Produced) -> str:
    """Return a client's batch in words."""
    acks = "all" if produced.acks < 0 else str(produced.acks)
    sequence = f", sequence {produced.first_sequence}" if produced.first_sequence >= 0 else ""
    return f"Produce({names_of_records(produced)}, acks={acks}{sequence})"


def names_of_records(produced: Produced) -> str:
    """Return the values of a batch: ``m3``, or ``m3 to m5``."""
    first, last = produced.first_number, produced.first_number + produced.record_count - 1
    return f"m{first}" if first == last else f"m{first} to m{last}"


def _ids(brokers: Any) -> str:
    return ",".join(map(str, brokers)) or "empty"
