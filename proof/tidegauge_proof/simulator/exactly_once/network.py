"""Everything that is on its way between clients and brokers, and among brokers, but for replication.

A message is delivered, repeated or lost when the history says so. Whether it still arrives when its sender has given it
up is the mode of the history: never (``TIMELY``, as where a closed connection takes its requests along); always but for
what can end or fill another transaction than the one it was sent for (``LATE``); or always (``LATE_ENDS``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegauge_proof.simulator.dice import Dice

TIMELY, LATE, LATE_ENDS = "timely", "late", "late-ends"
MODES = (TIMELY, LATE, LATE_ENDS)
_ENDING = frozenset({"EndTxn", "TxnOffsetCommit", "WriteTxnMarkers"})
"""APIs that name a producer and its epoch, and no transaction: a late one changes the next (docs/fidelity.md)."""
_REPEATED = 0.05
_LOST = 0.04


def _nothing() -> None:
    """Stands for a message whose loss has no consequence."""


@dataclass(slots=True, eq=False)
class Message:
    """One message.

    Attributes:
        kind: the name of the request; of a response empty.
        words: who sends what to whom.
        arrive: delivers it.
        is_wanted: whether its sender still waits for the response.
        lose: called if it is lost.
    """

    kind: str
    words: str
    arrive: Callable[[], None]
    is_wanted: Callable[[], bool]
    lose: Callable[[], None] = _nothing


class Network:
    """The messages on their way, and copies that arrive late."""

    def __init__(self, mode: str, dice: Dice) -> None:
        self.mode = mode
        self.is_calm = False
        self.messages: list[Message] = []
        self.late: list[Message] = []
        self._dice = dice

    def send(self, message: Message) -> None:
        """Put a message on its way."""
        self.messages.append(message)

    def _may_arrive(self, message: Message) -> bool:
        if message.is_wanted():
            return True
        if self.is_calm or self.mode == TIMELY or not message.kind:
            return False
        return self.mode == LATE_ENDS or message.kind not in _ENDING

    def deliver_one(self) -> str | None:
        """Deliver a message, in any order; it may be lost, or be delivered once more later."""
        if not self.messages:
            return None
        message = self.messages.pop(self._dice.below(len(self.messages)))
        if self._dice.happens(_LOST) or not self._may_arrive(message):
            message.lose()
            return f"lost: {message.words}"
        if message.kind and self.mode != TIMELY and self._dice.happens(_REPEATED * 4):
            self.late.append(message)
        if message.kind and self._dice.happens(_REPEATED):
            self.messages.append(message)
        message.arrive()
        return message.words

    def deliver_late(self) -> str | None:
        """Deliver a copy of a request long after the request, when its sender may be further on."""
        if not self.late:
            return None
        message = self.late.pop(self._dice.below(len(self.late)))
        if not self._may_arrive(message):
            return None
        message.arrive()
        return f"late: {message.words}"

    def deliver_all(self) -> None:
        """Deliver everything that is on its way now, in order, without a loss."""
        messages, self.messages = self.messages, []
        for message in messages:
            if self._may_arrive(message):
                message.arrive()
            else:
                message.lose()
