"""Members of a share group (KIP-932) in a cluster that is driven by hand.

A member heartbeats by itself. It fetches and acknowledges when a person says so, one request to a broker at a time, and
remembers the records that it was given, as Kafka's share consumer does: whether its locks still hold only the leader
knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from tidegauge.control import NO_LEADER
from tidegauge.errors import ErrorCode
from tidegauge.share_groups import ShareGroupHeartbeat, ShareGroupHeartbeatResult
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.states import AcknowledgeType
from tidegauge_proof.hand import messages as kinds
from tidegauge_proof.hand.actions import Action, ActionError
from tidegauge_proof.hand.coordination import Call, Coordination, Send
from tidegauge_proof.hand.group_names import OFFSETS
from tidegauge_proof.hand.group_names import SHARE_GROUP as GROUP
from tidegauge_proof.hand.messages import CLIENT, Coordinated
from tidegauge_proof.hand.share_leaders import SETTINGS, Fetched, ShareLeaders
from tidegauge_proof.simulator.memory_broker import AT

HEARTBEAT_MS = 5_000
"""group.share.heartbeat.interval.ms by default."""
_JOINING, _LEAVING, _OPENING = 0, -1, 0
_REJOINS = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
_SESSION_ENDS = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})


class Held(NamedTuple):
    """A record that a member was given: by which broker, its value, and the number of the delivery."""

    broker: int
    value: str
    delivery: int


@dataclass(slots=True, eq=False)
class ShareMember:
    """A member of the share group.

    Attributes:
        epoch: member epoch of the last response; 0: it is to join.
        is_assigned: whether it is to fetch ``orders-0``.
        beats: what tells its heartbeat in flight apart from others; None: none is.
        sessions: epoch of its next request to each broker with which it has a session.
        waits_for: the brokers whose response it awaits, each with what tells the request apart.
        held: records that it was given and has not acknowledged, by offset.
    """

    name: str
    epoch: int = _JOINING
    is_assigned: bool = False
    beats: object = None
    sent_ms: int = 0
    sessions: dict[int, int] = field(default_factory=dict[int, int])
    waits_for: dict[int, object] = field(default_factory=dict[int, object])
    held: dict[int, Held] = field(default_factory=dict[int, Held])


class ShareMembers:
    """Members of a share group; each method named as an action does it, and returns a sentence.

    Args:
        coordination: the cluster's coordinators.
        leaders: of share partitions.
        send: puts a message into flight.
    """

    def __init__(self, coordination: Coordination, leaders: ShareLeaders, send: Send) -> None:
        self._coordination = coordination
        self._world = coordination.world
        self.leaders = leaders
        self._send = send
        self.members: dict[int, ShareMember] = {}
        self.news: list[str] = []
        """News from responses since the last action, as sentences."""
        self._processes: dict[int, int] = {}
        leaders.disconnected = self._disconnected

    # Membership

    def join_share_group(self, action: Action) -> str:
        """Start a member; it joins, and heartbeats by itself."""
        number = action.value("member")
        if number in self.members:
            raise ActionError(f"member s{number} is in the share group already")
        self._processes[number] = self._processes.get(number, 0) + 1
        self.members[number] = ShareMember(f"s{number}-{self._processes[number]}")
        self._beat(self.members[number])
        return f"Member s{number} started; its first heartbeat joins the share group {GROUP}."

    def beat_share_member(self, action: Action) -> str:
        """Send a heartbeat before it is due."""
        member, number = self._member(action), action.value("member")
        if member.beats is not None:
            raise ActionError(f"a heartbeat of member s{number} is in flight: deliver or lose it first")
        self._beat(member)
        return f"Member s{number} sent a heartbeat."

    def leave_share_group(self, action: Action) -> str:
        """Close a member: its sessions end, which releases what it has, and it leaves the group."""
        member, number = self._member(action), action.value("member")
        if member.epoch == _JOINING:
            raise ActionError(f"member s{number} has not joined yet: let time go on, or kill it")
        del self.members[number]
        for broker_id in list(member.sessions):
            self._request(member, broker_id, "ShareAcknowledge", "ends the session", self._end_session(member))
        self._coordination.ask(OFFSETS, Call(CLIENT, self._heartbeat(member, _LEAVING), lambda _: None))
        return f"Member s{number} closes: its sessions end, and what it has not acknowledged is released."

    def stop_share_member(self, action: Action) -> str:
        """Kill a member: its connections close at once; its membership times out."""
        member, number = self._member(action), action.value("member")
        del self.members[number]
        for broker_id in list(member.sessions):
            self.leaders.end_session(broker_id, member.name)
        return (
            f"Member s{number} was killed. The brokers see its connections close and release what it had; "
            "its membership of 45 s runs out."
        )

    def _end_session(self, member: ShareMember) -> Callable[[int, Callable[[Any], None]], None]:
        def arrive(broker_id: int, respond: Callable[[Any], None]) -> None:
            self.leaders.end_session(broker_id, member.name)
            respond(ErrorCode.NONE)

        return arrive

    def _member(self, action: Action) -> ShareMember:
        member = self.members.get(action.value("member"))
        if member is None:
            raise ActionError(f"member s{action.value('member')} is not in the share group: let it join first")
        return member

    # Records

    def share_fetch(self, action: Action) -> str:
        """Ask the leader of the partition for records."""
        member, number, count = self._member(action), action.value("member"), action.value("count")
        if not member.is_assigned:
            raise ActionError(f"member s{number} has no partition assigned yet: let its heartbeats go on for 5 to 10 s")
        leader = self._coordination.leader_of(AT)
        if leader == NO_LEADER:
            raise ActionError(f"no broker leads {AT}")
        self._need_idle(member, leader)
        epoch = member.sessions.get(leader, _OPENING)
        text = f"at most {count} record{'s' if count > 1 else ''}, session epoch {epoch}"

        def arrive(broker_id: int, respond: Callable[[Any], None]) -> None:
            self.leaders.fetch(broker_id, member.name, epoch, count, respond)

        self._request(member, leader, "ShareFetch", text, arrive, partial(self._fetched, member, leader))
        return f"Member s{number} sent a ShareFetch for at most {count} to broker {leader}."

    def accept(self, action: Action) -> str:
        """Acknowledge a record as processed."""
        return self._acknowledge(action, AcknowledgeType.ACCEPT)

    def release(self, action: Action) -> str:
        """Release a record for another delivery."""
        return self._acknowledge(action, AcknowledgeType.RELEASE)

    def reject(self, action: Action) -> str:
        """Reject a record for good."""
        return self._acknowledge(action, AcknowledgeType.REJECT)

    def renew(self, action: Action) -> str:
        """Renew the lock on a record; the member keeps it."""
        return self._acknowledge(action, AcknowledgeType.RENEW)

    def _acknowledge(self, action: Action, kind: AcknowledgeType) -> str:
        member, number, offset = self._member(action), action.value("member"), action.value("offset")
        held = member.held.get(offset)
        if held is None:
            has = ", ".join(map(str, sorted(member.held))) or "no offset"
            raise ActionError(f"member s{number} was not given offset {offset}: it has {has}")
        self._need_idle(member, held.broker)
        said = Acknowledgement(offset, offset, (int(kind),))
        epoch = member.sessions.get(held.broker, _OPENING)

        def arrive(broker_id: int, respond: Callable[[Any], None]) -> None:
            self.leaders.acknowledge(broker_id, member.name, epoch, said, respond)

        text = f"offset {offset}: {kind.name}, session epoch {epoch}"
        if kind is not AcknowledgeType.RENEW:
            del member.held[offset]
        self._request(
            member, held.broker, "ShareAcknowledge", text, arrive, partial(self._acknowledged, member, held.broker)
        )
        return f"Member s{number} says {kind.name} of {held.value} at offset {offset} to broker {held.broker}."

    @staticmethod
    def _need_idle(member: ShareMember, broker_id: int) -> None:
        if broker_id in member.waits_for:
            raise ActionError(
                f"member {member.name} waits for a response of broker {broker_id}: let it arrive, or let time go on"
            )

    def _fetched(self, member: ShareMember, broker_id: int, found: Fetched) -> None:
        self._counted(member, broker_id, found.error)
        self._note(member, found.error, _text_of(found), "fetch")
        for one in found.acquired:
            for offset in range(one.first_offset, one.last_offset + 1):
                if offset in found.numbers:
                    member.held[offset] = Held(broker_id, f"m{found.numbers[offset]}", one.delivery_count)

    def _acknowledged(self, member: ShareMember, broker_id: int, error: ErrorCode) -> None:
        self._counted(member, broker_id, error)
        self._note(member, error, "", "acknowledgement")

    def _note(self, member: ShareMember, error: ErrorCode, text: str, what: str) -> None:
        name = member.name.partition("-")[0]
        if error is not ErrorCode.NONE:
            self.news.append(f"The {what} of {name} was refused: {error.name}.")
        elif text:
            self.news.append(f"{name} got: {text}.")

    @staticmethod
    def _counted(member: ShareMember, broker_id: int, error: ErrorCode) -> None:
        """Count the epoch of the session, or forget a session that the broker does not have."""
        if error in _SESSION_ENDS:
            member.sessions.pop(broker_id, None)
        else:
            member.sessions[broker_id] = member.sessions.get(broker_id, _OPENING) + 1

    def _request(
        self,
        member: ShareMember,
        broker_id: int,
        api: str,
        text: str,
        take: Callable[[int, Callable[[Any], None]], None],
        done: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """Send a request of a member to a broker; its response goes to ``done`` once."""
        token = member.waits_for[broker_id] = object()

        def broken() -> None:
            """Take in that the connection broke: the next request opens a session."""
            if member.waits_for.get(broker_id) is token:
                del member.waits_for[broker_id]
                member.sessions.pop(broker_id, None)

        def arrive_back(result: Any) -> str:
            if member.waits_for.get(broker_id) is token:
                del member.waits_for[broker_id]
                done(result)
            self._coordination.settle()
            return ""

        def respond(result: Any) -> None:
            said = f"{api} response({_text_of(result)})"
            payload = Coordinated(partial(arrive_back, result), broken)
            self._send(kinds.COORDINATOR_RESPONSE, broker_id, CLIENT, said, payload)

        def arrive() -> str:
            if not self._world.is_up(broker_id):
                broken()
                return f"broker {broker_id} does not take connections"
            take(broker_id, respond)
            self._coordination.settle()
            return ""

        said = f"{api}({GROUP}, {member.name}, {text})"
        self._send(kinds.COORDINATOR_REQUEST, CLIENT, broker_id, said, Coordinated(arrive, broken))

    def _disconnected(self, broker_id: int) -> None:
        """Take in that a broker's process has ended: connections to it are closed."""
        for member in self.members.values():
            member.waits_for.pop(broker_id, None)
            member.sessions.pop(broker_id, None)

    # By itself

    def act(self) -> None:
        """Let members send the heartbeats that are due."""
        for member in list(self.members.values()):
            if self._world.now_ms - member.sent_ms >= HEARTBEAT_MS:
                self._beat(member)

    def _heartbeat(self, member: ShareMember, epoch: int) -> ShareGroupHeartbeat:
        names = (AT.topic,) if epoch == _JOINING else None
        return ShareGroupHeartbeat(GROUP, member.name, epoch, topic_names=names, client_id=member.name)

    def _beat(self, member: ShareMember) -> None:
        if member.beats is not None:
            return
        token = member.beats = object()
        member.sent_ms = self._world.now_ms

        def done(result: ShareGroupHeartbeatResult) -> None:
            if member.beats is token:
                member.beats = None
                _take_beat(member, result)

        def lost() -> None:
            if member.beats is token:
                member.beats = None

        call = Call(CLIENT, self._heartbeat(member, member.epoch), done, lost)
        if not self._coordination.ask(OFFSETS, call):
            lost()


def _take_beat(member: ShareMember, result: ShareGroupHeartbeatResult) -> None:
    if result.error is ErrorCode.NONE:
        member.epoch = result.member_epoch
        if result.assignment is not None:
            member.is_assigned = bool(result.assignment)
    elif result.error in _REJOINS:
        member.epoch, member.is_assigned = _JOINING, False


def _text_of(result: Any) -> str:
    if not isinstance(result, Fetched):
        return str(result.name)
    if result.error is not ErrorCode.NONE:
        return result.error.name
    found = [
        f"offset{'s' if one.size > 1 else ''} {one.first_offset}"
        f"{f' to {one.last_offset}' if one.size > 1 else ''}, delivery {one.delivery_count}"
        for one in result.acquired
    ]
    held = f"; locked for {SETTINGS.record_lock_duration_ms // 1000} s" if found else ""
    return f"{'; '.join(found) or 'no records'}{held}"
