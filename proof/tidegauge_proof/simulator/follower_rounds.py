"""The rounds of followers in a simulated cluster: a request to a leader, its response, each perhaps late or never."""

from __future__ import annotations

from typing import cast

from tidegauge_broker.replica.messages import (
    EpochEndResult,
    EpochRound,
    FetchedPartition,
    FetchRequest,
    FetchRound,
    Wait,
)
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.traffic import Exchange, Traffic

FETCH_WAIT_MS = 500
RESPONSE_MAX_BYTES = 10 * 1024 * 1024


class FollowerRounds:
    """A cluster as far as its followers fetch; a world is one, and sets the attributes.

    Attributes:
        brokers: by id.
        traffic: the messages on their way.
        open_rounds: of each broker, the rounds without an outcome.
        now_ms: the time.
    """

    brokers: dict[int, MemoryBroker]
    traffic: Traffic
    open_rounds: dict[int, list[Exchange]]
    now_ms: int

    def ask(self, broker_id: int) -> list[Exchange]:
        """Let the broker send a fetch to each leader that it follows, if one is due."""
        broker = self.brokers[broker_id]
        asked: list[Exchange] = []
        followed = broker.core.leaders_followed()
        for leader in sorted(followed) if len(followed) > 1 else followed:
            chosen = broker.core.next_round(leader, self.now_ms)
            if not isinstance(chosen, Wait):
                exchange = Exchange(broker, broker.incarnation, broker.broker_epoch, chosen)
                if isinstance(chosen, FetchRound):
                    for wanted in chosen.partitions:
                        replica = broker.replicas[wanted.topic_partition]
                        replica.reported = max(replica.reported, wanted.fetch_offset)
                asked.append(exchange)
                self.open_rounds[broker_id].append(exchange)
                broker.inputs += 1
        return asked

    def arrive(self, exchange: Exchange, wait_ms: int = FETCH_WAIT_MS) -> None:
        """Deliver the request to its leader; without a process there, the follower gets an error."""
        chosen = exchange.chosen
        leader = self.brokers[chosen.leader]
        if not leader.is_running:
            self.give_up(exchange)
        elif isinstance(chosen, EpochRound):
            leader.inputs += 1
            exchange.response = [leader.core.offset_for_leader_epoch(question) for question in chosen.partitions]
            self.traffic.responses.append(exchange)
        else:
            wanted = list(chosen.partitions)
            request = FetchRequest(
                exchange.follower.broker_id, wait_ms, 1, RESPONSE_MAX_BYTES, wanted, exchange.broker_epoch
            )
            leader.execute(leader.core.fetch(request, exchange, self.now_ms))

    def deliver_response(self, exchange: Exchange) -> None:
        """Deliver the response to the follower, if that is still the process that asked."""
        broker, chosen, response = exchange.follower, exchange.chosen, exchange.response
        if not broker.is_running or broker.incarnation != exchange.incarnation:
            return
        self._close(exchange)
        if isinstance(chosen, FetchRound):
            fetched = cast("list[FetchedPartition]", response)
            effects = broker.core.fetch_response_received(chosen.leader, chosen.request_id, fetched, self.now_ms)
        else:
            ends = cast("list[EpochEndResult]", response)
            effects = broker.core.epoch_ends_received(chosen.leader, chosen.request_id, ends, self.now_ms)
        broker.execute(effects)

    def give_up(self, exchange: Exchange) -> None:
        """Time the round out at the follower; the request or its response may still arrive."""
        broker = exchange.follower
        if broker.is_running and broker.incarnation == exchange.incarnation:
            self._close(exchange)
            chosen = exchange.chosen
            broker.execute(broker.core.round_failed(chosen.leader, chosen.request_id, self.now_ms))

    def _close(self, exchange: Exchange) -> None:
        rounds = self.open_rounds[exchange.follower.broker_id]
        if exchange in rounds:
            rounds.remove(exchange)

    def lose_requests_at(self, broker_id: int) -> None:
        """Followers' requests that the dead process had taken: the connection breaks."""
        for rounds in list(self.open_rounds.values()):
            for exchange in list(rounds):
                is_parked = exchange.response is None and exchange not in self.traffic.requests
                if is_parked and exchange.chosen.leader == broker_id:
                    self.give_up(exchange)
