"""The post of a cluster that is driven by hand: gives what the world has in flight numbers, hands it over, loses it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import iterate_headers
from tidegauge_proof.hand import messages as kinds
from tidegauge_proof.hand.messages import ARRIVED, LOST, Message
from tidegauge_proof.simulator.clients import Clients
from tidegauge_proof.simulator.memory_broker import Reading
from tidegauge_proof.simulator.world import World

_FREE = frozenset({kinds.PRODUCE, kinds.COORDINATOR_REQUEST, kinds.COORDINATOR_RESPONSE})
"""Messages that are of no list of the world's: they are in flight until they arrive or are lost."""


class Post:
    """The messages in flight.

    Args:
        world: whose messages they are.
        is_held: whether new messages wait for a hand.

    Attributes:
        kept: all messages there were, in the order of their numbers.
        by_number: the same by number.
        step: number of the action that is done now.
    """

    def __init__(self, world: World, *, is_held: bool) -> None:
        self._world = world
        self._is_held = is_held
        self.kept: list[Message] = []
        self.by_number: dict[int, Message] = {}
        self.step = 0
        self._of: dict[tuple[str, int], Message] = {}
        """The message in flight of a payload, by kind and identity; the message keeps the payload alive."""

    def in_flight(self) -> list[Message]:
        """Return the messages in flight, the oldest first."""
        return sorted(self._of.values(), key=lambda one: one.number)

    def message_of(self, payload: object, kind: str) -> Message | None:
        """Return the message of a payload that is in flight."""
        return self._of.get((kind, id(payload)))

    def send(self, kind: str, source: int, target: int, text: str, payload: Any) -> Message:
        """Put a message into flight."""
        number = len(self.kept) + 1
        message = Message(number, kind, source, target, text, payload, self._is_held, self.step)
        self.kept.append(message)
        self.by_number[number] = message
        self._of[kind, id(payload)] = message
        return message

    def responded(self, request: Message, text: str) -> None:
        """Note the response that a client has got: it arrives at once."""
        number = len(self.kept) + 1
        source, target = request.target, request.source
        message = Message(
            number, kinds.PRODUCE_RESPONSE, source, target, text, None, False, self.step, self.step, ARRIVED
        )
        self.kept.append(message)
        self.by_number[number] = message

    def collect(self, held: Collection[int], *, asks: bool = True) -> None:
        """Take in what the world has in flight since the last call.

        Args:
            held: followers whose fetches are held: they send none, and what a leader responds to an earlier one waits.
            asks: whether the others send the fetches that are due.
        """
        world = self._world
        several = len(world.partitions) > 1
        for broker_id in world.brokers if asks else ():
            may_ask = several or not world.open_rounds[broker_id]  # with several leaders, the core knows who is asked
            if broker_id not in held and world.is_up(broker_id) and may_ask:
                self.ask(broker_id)
        for exchange in world.traffic.responses:
            if (kinds.FETCH_RESPONSE, id(exchange)) not in self._of:
                text, leader, follower = kinds.text_of_response(exchange), exchange.chosen.leader, exchange.follower
                message = self.send(kinds.FETCH_RESPONSE, leader, follower.broker_id, text, exchange)
                message.is_held |= follower.broker_id in held
        self._collect_control()
        for broker_id in world.brokers:
            elected = world.elected
            if not world.proposals.may_propose(broker_id) or elected not in world.controllers:
                continue
            proposal = world.proposals.outbox[broker_id][0]
            if (kinds.ALTER_PARTITION, id(proposal)) not in self._of and world.proposals.may_ask(broker_id, elected):
                self.send(kinds.ALTER_PARTITION, broker_id, elected, kinds.text_of_proposal(proposal), proposal)
        for verdict in world.traffic.verdicts:
            if (kinds.VERDICT, id(verdict)) not in self._of:
                source = world.elected if world.elected is not None else verdict.broker.broker_id
                self.send(kinds.VERDICT, source, verdict.broker.broker_id, kinds.text_of_verdict(verdict), verdict)
        self._forget_what_is_gone()

    def _collect_control(self) -> None:
        world = self._world
        for term in world.controllers.values():
            for broker_id, queue in term.queues.items():
                if queue and (kinds.CONTROL, id(queue[0])) not in self._of:
                    message = self.send(
                        kinds.CONTROL, term.broker_id, broker_id, kinds.text_of_control(queue[0]), queue[0]
                    )
                    if term.broker_id == broker_id:
                        message.is_held = False  # a controller's requests to its own broker cross no network
        for stray in world.traffic.strays:
            broker_id, request = stray
            if (kinds.STRAY, id(stray)) not in self._of:
                source = request.header.controller_id
                self.send(kinds.STRAY, source, broker_id, f"late {kinds.text_of_control(request)}", stray)

    def _forget_what_is_gone(self) -> None:
        """End the messages that the world has no more: their connections broke."""
        world = self._world
        there: set[tuple[str, int]] = {(kinds.FETCH, id(one)) for one in world.traffic.requests}
        there |= {(kinds.FETCH_RESPONSE, id(one)) for one in world.traffic.responses}
        there |= {(kinds.VERDICT, id(one)) for one in world.traffic.verdicts}
        there |= {(kinds.STRAY, id(one)) for one in world.traffic.strays}
        for term in world.controllers.values():
            there |= {(kinds.CONTROL, id(queue[0])) for queue in term.queues.values() if queue}
        for proposals in world.proposals.outbox.values():
            there |= {(kinds.ALTER_PARTITION, id(one)) for one in proposals}
        for key, message in list(self._of.items()):
            if message.kind not in _FREE and key not in there:
                self._end(message, LOST)
                message.note = message.note or "its connection broke"

    def hold_fetches(self, broker_id: int, *, hold: bool) -> None:
        """Let the requests and responses of a follower wait for a hand, or no longer."""
        for message in self.in_flight():
            follower = {kinds.FETCH: message.source, kinds.FETCH_RESPONSE: message.target}.get(message.kind)
            if follower == broker_id:
                message.is_held = hold or self._is_held

    def break_held_fetches(self, leader: int) -> None:
        """Lose the responses of a leader whose process has ended that wait for followers whose fetches are held."""
        for message in self.in_flight():
            if message.kind == kinds.FETCH_RESPONSE and message.source == leader and message.is_held:
                self.lose(message)

    def ask(self, broker_id: int) -> None:
        """Let a broker send the fetches that are due."""
        for exchange in self._world.ask(broker_id):
            self._world.traffic.requests.append(exchange)
            text = kinds.text_of_request(exchange)
            self.send(kinds.FETCH, broker_id, exchange.chosen.leader, text, exchange)

    def _end(self, message: Message, fate: str) -> None:
        message.fate, message.ended = fate, self.step
        self._of.pop((message.kind, id(message.payload)), None)

    def hand_over(self, message: Message, *, again: bool, produce: Callable[[Message], None]) -> None:
        """Hand a message over to its receiver; with ``again`` it stays in flight as well."""
        world, payload = self._world, message.payload
        if not again:
            self._end(message, ARRIVED)
        match message.kind:
            case kinds.PRODUCE:
                produce(message)
            case kinds.FETCH:
                world.traffic.requests.remove(payload)
                world.arrive(payload)
            case kinds.FETCH_RESPONSE:
                if not again:
                    world.traffic.responses.remove(payload)
                world.deliver_response(payload)
            case kinds.CONTROL:
                term = world.controllers[message.source]
                world.deliver(term, message.target, again=again)
            case kinds.STRAY:
                if not again:
                    world.traffic.strays.remove(payload)
                if world.brokers[message.target].is_running:
                    world.hand_over(message.target, payload[1])
            case kinds.ALTER_PARTITION:
                controller = message.target if message.target in world.controllers else world.elected
                if controller is None:
                    message.fate, message.note = LOST, "there is no controller"
                    return
                world.proposals.propose(message.source, controller)
                if again:
                    self._end(message, ARRIVED)
                    world.proposals.ask_again(message.source)
            case kinds.COORDINATOR_REQUEST | kinds.COORDINATOR_RESPONSE:
                if lost := payload.arrive():
                    message.fate, message.note = LOST, lost
            case _:
                if not again:
                    world.traffic.verdicts.remove(payload)
                world.proposals.tell(payload, world.now_ms)

    def lose(self, message: Message) -> str:
        """Lose a message; return what its sender does then, as the end of a sentence."""
        world, payload = self._world, message.payload
        self._end(message, LOST)
        match message.kind:
            case kinds.FETCH:
                world.traffic.requests.remove(payload)
                world.give_up(payload)
                return "; the follower's connection breaks, and it will fetch again"
            case kinds.FETCH_RESPONSE:
                world.traffic.responses.remove(payload)
                world.give_up(payload)
                return "; the follower's connection breaks, and it will fetch again"
            case kinds.CONTROL:
                return "; the controller sends it again"
            case kinds.STRAY:
                world.traffic.strays.remove(payload)
                return ""
            case kinds.ALTER_PARTITION:
                return "; the leader sends it again"
            case kinds.VERDICT:
                world.traffic.verdicts.remove(payload)
                payload.verdict = None
                world.proposals.tell(payload, world.now_ms)
                return "; the leader sends its proposal again"
            case kinds.COORDINATOR_REQUEST | kinds.COORDINATOR_RESPONSE:
                payload.lose()
                return "; whoever waits for a response gets none"
            case _:
                return "; the client gets no response"

    def numbers_read(self, reading: Reading) -> tuple[list[int], str]:
        """Return the numbers of the records read, and the name of a refusal's error."""
        clients: Clients = self._world.clients
        numbers: list[int] = []
        for result, records in reading.results or ():
            if result.error is not ErrorCode.NONE:
                return [], result.error.name
            for header in iterate_headers(records):
                first = clients.number_of.get(header.crc)
                if first is not None:  # else a marker
                    numbers += range(first, first + header.record_count)
        return numbers, ""
