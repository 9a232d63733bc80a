"""Actions of a history with groups, beside the actions on the cluster under them."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.groups import GroupRequest, LeaveGroup, LeavingMember, OffsetFetch
from tidegauge.partition import TopicPartition
from tidegauge_proof.simulator.coordinator_actions import load_goes_on, request_arrives, timers_run
from tidegauge_proof.simulator.coordinator_world import Response
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.groups.group_world import GroupWorld
from tidegauge_proof.simulator.groups.members import GROUP, PARTITIONS, TOPIC, Call, Member

GroupAction = Callable[["Clients", GroupWorld, Dice], str | None]
"""Performs an action, and describes it in words; None if it has no object."""


class Clients:
    """The members of the group, and the numbers of what they commit."""

    def __init__(self, names: int, static: int, broker: int) -> None:
        self.members = [
            Member(f"m{number}", f"i{number}" if number < static else None, broker) for number in range(names)
        ]
        self.positions = 0
        self._calls = 0

    def begin_oddly(self) -> None:
        """Have each process of a member choose timeouts of its own, some of them zero, negative or the largest."""
        for member in self.members:
            member.begin_oddly()

    def call(self, member: Member | None, request: GroupRequest) -> Call:
        """Return a call of its own number."""
        self._calls += 1
        return Call(self._calls, member, request)


def member_acts(clients: Clients, cluster: GroupWorld, dice: Dice) -> str | None:
    """Have a member send what brings it closer to an assignment, or a heartbeat."""
    member = dice.choose(clients.members)
    if member.broker < 0:
        member.broker = _found(cluster, dice)
    request = member.next_request() or member.heartbeat()
    return _send(clients, cluster, member, request)


def member_commits(clients: Clients, cluster: GroupWorld, dice: Dice) -> str | None:
    """Have a member commit a position that was never committed before."""
    member = dice.choose(clients.members)
    request = member.commit(clients.positions + 1)
    if request is not None:
        clients.positions += 1
    return _send(clients, cluster, member, request)


def member_leaves(clients: Clients, cluster: GroupWorld, dice: Dice) -> str | None:
    """Have a dynamic member leave; it will join again."""
    member = dice.choose(clients.members)
    return _send(clients, cluster, member, member.leave())


def static_member_is_removed(clients: Clients, cluster: GroupWorld, dice: Dice) -> str | None:
    """Remove a static member by its instance id alone, as Admin.removeMembersFromConsumerGroup does."""
    static = [member for member in clients.members if member.instance_id is not None]
    if not static:
        return None
    request = LeaveGroup(GROUP, (LeavingMember("", dice.choose(static).instance_id),))
    broker_id = _found(cluster, dice)
    cluster.send(clients.call(None, request), broker_id)
    return f"{request.members[0].group_instance_id} is removed at {broker_id}"


def member_rejoins(clients: Clients, cluster: GroupWorld, dice: Dice) -> str | None:
    """Have a member join again from a stable state."""
    del cluster
    member = dice.choose(clients.members)
    return f"{member.name} rejoins" if member.rejoin() else None


def member_restarts(clients: Clients, cluster: GroupWorld, dice: Dice) -> str | None:
    """Restart a member's process; its requests may still be in flight."""
    del cluster
    member = dice.choose(clients.members)
    member.restart()
    return f"{member.name} restarts"


def member_gives_up(clients: Clients, cluster: GroupWorld, dice: Dice) -> str | None:
    """Have a member give up a request; it may look for the coordinator elsewhere."""
    del cluster
    member = dice.choose(clients.members)
    if not member.in_flight:
        return None
    kind = dice.choose(sorted(member.in_flight))
    del member.in_flight[kind]
    if dice.happens(0.5):
        member.broker = -1
    return f"{member.name} gives up its {kind}"


def fetch_offsets(clients: Clients, cluster: GroupWorld, dice: Dice) -> str | None:
    """Ask for the offsets of the group."""
    partitions = tuple(TopicPartition(TOPIC, index) for index in range(PARTITIONS))
    stable = dice.happens(0.3)
    broker_id = _found(cluster, dice)
    cluster.send(clients.call(None, OffsetFetch(GROUP, partitions, stable)), broker_id)
    return f"offsets are asked of {broker_id}"


def response_arrives(clients: Clients, cluster: GroupWorld, dice: Dice) -> str | None:
    """Deliver a response, in any order; it may be lost."""
    del clients
    if not cluster.responses:
        return None
    response = cluster.responses.pop(dice.below(len(cluster.responses)))
    name = f"response to {type(response.call.request).__name__} {response.call.number}"
    if dice.below(20) == 1:
        return f"{name} is lost"
    deliver(response.call, cluster, response)
    return f"{name} arrives: {response.result}"


def deliver(call: Call, cluster: GroupWorld, response: Response) -> None:
    """Hand a response to the member that waits for it, if it still does."""
    del cluster
    member = call.member
    if member is None:
        return
    for kind, waiting in list(member.in_flight.items()):
        if waiting is call:
            del member.in_flight[kind]
            member.responded(kind, response.result)


def _found(cluster: GroupWorld, dice: Dice) -> int:
    """Return FindCoordinator's response: mostly the leader, sometimes what a broker's old metadata say."""
    leader = cluster.world.state_now.leader
    brokers = list(cluster.world.brokers)
    return leader if leader in brokers and dice.below(6) else dice.choose(brokers)


def _send(
    clients: Clients, cluster: GroupWorld, member: Member, request: tuple[str, GroupRequest] | None
) -> str | None:
    if request is None:
        return None
    kind, message = request
    call = clients.call(member, message)
    member.in_flight[kind] = call
    if member.broker < 0:
        member.broker = min(cluster.world.brokers)
    cluster.send(call, member.broker)
    return f"{member.name} sends {type(message).__name__} {call.number} to {member.broker}"


GROUP_ACTIONS: tuple[tuple[GroupAction, float], ...] = (
    (member_acts, 40),
    (member_commits, 14),
    (request_arrives, 60),
    (response_arrives, 60),
    (load_goes_on, 12),
    (timers_run, 12),
    (fetch_offsets, 3),
    (member_gives_up, 0.5),
    (member_rejoins, 0.5),
    (member_restarts, 0.2),
    (member_leaves, 0.3),
)
ODD_ACTIONS: tuple[tuple[GroupAction, float], ...] = (
    *(one for one in GROUP_ACTIONS if one[0] is not member_restarts),
    (member_restarts, 2),
    (static_member_is_removed, 1),
)
"""Of members with odd timeouts, which change with each of their processes."""
