"""Requests to coordinators, and among brokers, that a person holds by their API (``hold_requests`` in scenarios).

Rules:
    1. A hold applies to one broker and one API: to requests that arrive there, or, with ``is_after``, to the responses
       that leave it.
    2. With ``once`` it holds the first message; without, all until it is released.
    3. A hold is in the broker's process and ends with it. A message that it has is lost: its connection breaks.
    4. A break loses the next response of an API: the broker has done what it was asked, and its client does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegauge_proof.hand import messages as kinds
from tidegauge_proof.hand.messages import IN_FLIGHT, Message

APIS = ("OffsetCommit", "WriteTxnMarkers", "EndTxn", "AddPartitionsToTxn", "TxnOffsetCommit")
"""The APIs that can be held, by their number in a schedule."""


@dataclass(slots=True, eq=False)
class Hold:
    """A hold, and the messages that it has."""

    broker: int
    api: str
    is_after: bool
    once: bool
    is_open: bool = True
    messages: list[Message] = field(default_factory=list[Message])

    def takes(self, message: Message) -> bool:
        """Return whether this hold applies to a message."""
        kind, broker = kinds.COORDINATOR_REQUEST, message.target
        if self.is_after:
            kind, broker = kinds.COORDINATOR_RESPONSE, message.source
        return self.is_open and message.kind == kind and broker == self.broker and api_of(message) == self.api


class RequestHolds:
    """The holds of a cluster."""

    def __init__(self) -> None:
        self._holds: list[Hold] = []
        self._breaks: list[tuple[int, str]] = []

    def hold(self, broker: int, api: str, *, is_after: bool, once: bool) -> None:
        """Hold requests of an API from now on (rules 1 and 2)."""
        self._holds.append(Hold(broker, api, is_after, once))

    def break_response(self, broker: int, api: str) -> None:
        """Lose the next response of an API (rule 4)."""
        self._breaks.append((broker, api))

    def look_at(self, message: Message) -> bool:
        """Take in a new message; return whether it is lost at once."""
        for one in self._holds:
            if one.takes(message):
                one.messages.append(message)
                one.is_open = not one.once
                message.is_held = True
                return False
        broken = (message.source, api_of(message))
        if message.kind == kinds.COORDINATOR_RESPONSE and broken in self._breaks:
            self._breaks.remove(broken)
            return True
        return False

    def held_at(self, broker: int) -> list[Message]:
        """Return the messages that are held at a broker and still in flight."""
        return [
            message
            for one in self._holds
            if one.broker == broker
            for message in one.messages
            if message.fate == IN_FLIGHT
        ]

    def release(self, broker: int) -> int:
        """End the holds at a broker; return how many messages go on."""
        held = self.held_at(broker)
        for message in held:
            message.is_held = False
        self._holds = [one for one in self._holds if one.broker != broker]
        return len(held)

    def process_ended(self, broker: int) -> list[Message]:
        """Forget the holds at a broker, which were in its process; return the messages that are lost (rule 3)."""
        held = self.held_at(broker)
        self._holds = [one for one in self._holds if one.broker != broker]
        self._breaks = [one for one in self._breaks if one[0] != broker]
        return held

    def has(self, broker: int) -> bool:
        """Return whether anything is held at a broker, or would be."""
        return any(one.broker == broker for one in self._holds)


def api_of(message: Message) -> str:
    """Return the API of a message by its text."""
    return message.text.split("(")[0].split(" ")[0]
