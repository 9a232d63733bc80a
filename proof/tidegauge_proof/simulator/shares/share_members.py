"""Members of a share group, as Kafka's share consumer behaves towards the leader of a partition.

A member has one request in flight, over one connection. It may give the request up: it closes the connection then, the
leader releases what the member has, and nothing that was sent over it arrives any more. It knows unacknowledged
acquired records from responses alone.
Source: ShareConsumeRequestManager; KIP-932, "Share sessions".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegauge.errors import ErrorCode
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.acquiring import Acquired, Wanted

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
FINAL = frozenset({ACCEPT, REJECT})


@dataclass(slots=True, eq=False)
class MemberRequest:
    """A fetch (``wanted``) or acknowledgements (``batches``) of a member, to a broker.

    Attributes:
        connection: number of the member's connection; another one ends the requests of this one.
        has_arrived: whether it was handled: the network is a connection, so it is handled once.
        error: of the response; None: there is none yet.
        acquired: of the response.
    """

    member: Member
    broker_id: int
    connection: int
    wanted: Wanted | None = None
    batches: Sequence[Acknowledgement] = ()
    has_arrived: bool = False
    error: ErrorCode | None = None
    acquired: list[Acquired] = field(default_factory=list)


class Member:
    """A member.

    Attributes:
        broker_id: its presumed leader; -1: it has to look.
        has: offsets that it was given and has not acknowledged.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.broker_id = -1
        self.connection = 0
        self.has: set[int] = set()
        self.in_flight: MemberRequest | None = None

    def send(self, wanted: Wanted | None, batches: Sequence[Acknowledgement]) -> MemberRequest:
        """Return its next request."""
        self.in_flight = MemberRequest(self, self.broker_id, self.connection, wanted, batches)
        return self.in_flight

    def close(self) -> None:
        """Close the connection: nothing of it is in flight any more, and the member has nothing."""
        self.connection += 1
        self.in_flight = None
        self.has.clear()
        self.broker_id = -1
