"""Actions of a history with a share group, beside the actions on the cluster under it."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.errors import ErrorCode
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.acquiring import Wanted
from tidegauge_broker.share.settings import AcquireMode
from tidegauge_proof.simulator.coordinator_actions import load_goes_on, timers_run
from tidegauge_proof.simulator.coordinator_world import Sending
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.shares.leaders import Call
from tidegauge_proof.simulator.shares.share_members import ACCEPT, REJECT, RELEASE, RENEW, Member, MemberRequest
from tidegauge_proof.simulator.shares.share_world import ShareWorld

ShareAction = Callable[["Members", ShareWorld, Dice], str | None]
"""Performs an action, and describes it in words; None if it has no object."""
_MAX_RECORDS = 40
_TYPES = (ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, RENEW)


class Members:
    """The members of the group."""

    def __init__(self, count: int) -> None:
        self.all = [Member(f"m{number}") for number in range(count)]


def records_are_produced(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Append a batch to the partition's log."""
    del members
    if cluster.end_offset >= _MAX_RECORDS:
        return None
    cluster.produce(1 + dice.below(4))
    return f"records up to {cluster.end_offset} are produced"


def leader_is_elected(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Elect a leader of the partition: always if it has none, else seldom."""
    del members
    up = [one for one in cluster.world.brokers if cluster.world.is_up(one)]
    if not up or (cluster.leader_id >= 0 and dice.below(40)):
        return None
    broker_id = dice.choose(up)
    cluster.elect(broker_id)
    return f"broker {broker_id} leads the records in epoch {cluster.leader_epoch}"


def leader_resigns(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Have a former leader hear that it leads no more."""
    del members
    up = [one for one in cluster.leads if cluster.world.is_up(one)]
    if not up:
        return None
    broker_id = dice.choose(sorted(up))
    return f"broker {broker_id} hears that it leads no more" if cluster.resign(broker_id) else None


def member_fetches(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Have a member fetch."""
    member = dice.choose(members.all)
    if member.in_flight is not None or not cluster.is_initialized:
        return None
    mode = dice.choose(list(AcquireMode))
    wanted = Wanted(1 + dice.below(6), 1 + dice.below(3), mode)
    return _send(cluster, dice, member, member.send(wanted, ()))


def member_acknowledges(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Have a member acknowledge some of what it has, and now and then what it does not have."""
    member = dice.choose(members.all)
    if member.in_flight is not None or (not member.has and dice.below(10)):
        return None
    offsets = sorted(member.has)[: 1 + dice.below(4)] or [dice.below(max(1, cluster.end_offset))]
    kind = dice.choose(_TYPES)
    batches = [Acknowledgement(one, one, (kind,)) for one in offsets]
    if kind != RENEW:
        member.has.difference_update(offsets)
    return _send(cluster, dice, member, member.send(None, batches))


def member_gives_up(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Have a member close its connection; the leader hears of it, unless it is a broker without a process."""
    member = dice.choose(members.all)
    request = member.in_flight
    if request is None and dice.below(4):
        return None
    broker_id = member.broker_id
    cluster.member_requests = [one for one in cluster.member_requests if one is not request]
    member.close()
    if broker_id >= 0 and cluster.world.is_up(broker_id):
        cluster.connection_closed(broker_id, member.name)
    return f"{member.name} closes its connection to {broker_id}"


def request_of_member_arrives(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Deliver a request of a member."""
    del members
    waiting = [one for one in cluster.member_requests if not one.has_arrived and cluster.world.is_up(one.broker_id)]
    if not waiting:
        return None
    request = dice.choose(waiting)
    cluster.arrive_of_member(request)
    return f"the request of {request.member.name} arrives at {request.broker_id}: {request.acquired or request.error}"


def response_to_member_arrives(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Deliver a response to a member."""
    del members
    ready = [one for one in cluster.member_requests if one.error is not None]
    if not ready:
        return None
    request = dice.choose(ready)
    deliver(cluster, request)
    return f"the response to {request.member.name} arrives: {request.error!r} {request.acquired}"


def call_is_sent(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Send a request of a persister to its presumed coordinator."""
    del members
    if not cluster.unsent:
        return None
    call = cluster.unsent.pop(dice.below(len(cluster.unsent)))
    leader = cluster.world.state_now.leader
    brokers = list(cluster.world.brokers)
    broker_id = leader if leader in brokers and dice.below(6) else dice.choose(brokers)
    call.attempts += 1
    cluster.send(call, broker_id)
    return f"call {call.number} is sent to {broker_id}: {call.request}"


def call_arrives(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Deliver a request of a persister; it may be delivered once more, as after a reconnection."""
    del members
    if not cluster.requests:
        return None
    sending: Sending = cluster.requests[dice.below(len(cluster.requests))]
    if dice.below(20):
        cluster.requests.remove(sending)
    cluster.arrive(sending)
    return f"call {sending.call.number} arrives at {sending.broker_id}"


def result_arrives(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Deliver a response to a persister; it may be lost."""
    del members
    if not cluster.responses:
        return None
    response = cluster.responses.pop(dice.below(len(cluster.responses)))
    call: Call = response.call
    if dice.below(15) == 0:
        return f"the response to call {call.number} is lost"
    cluster.take_result(call, response.result)
    return f"the response to call {call.number} arrives: {response.result}"


def call_is_given_up(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Have a persister wait for a response no longer."""
    del members
    lost = cluster.lost_calls()
    calls = [leader.in_flight for leader in cluster.hosted.values() if leader.in_flight is not None]
    waiting = [*lost, *(one for one in calls if one not in cluster.unsent)]
    if not waiting or (not lost and dice.below(10)):
        return None
    call = dice.choose(waiting)
    cluster.call_failed(call)
    return f"call {call.number} is given up after attempt {call.attempts}"


def locks_end(members: Members, cluster: ShareWorld, dice: Dice) -> str | None:
    """Have locks time out that are due."""
    del members, dice
    return "locks end" if cluster.expire_locks() else None


def deliver(cluster: ShareWorld, request: MemberRequest) -> None:
    """Hand a response to its member."""
    cluster.member_requests.remove(request)
    member = request.member
    if member.in_flight is not request:
        return
    member.in_flight = None
    if request.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        member.broker_id = -1
        member.has.clear()
    for one in request.acquired:
        member.has.update(range(one.first_offset, one.last_offset + 1))


def _send(cluster: ShareWorld, dice: Dice, member: Member, request: MemberRequest) -> str:
    if member.broker_id < 0:
        member.broker_id = cluster.leader_id if cluster.leader_id >= 0 else dice.choose(list(cluster.world.brokers))
    request.broker_id = member.broker_id
    cluster.member_requests.append(request)
    what = request.wanted or list(request.batches)
    return f"{member.name} sends to {request.broker_id}: {what}"


SHARE_ACTIONS: tuple[tuple[ShareAction, float], ...] = (
    (records_are_produced, 3),
    (leader_is_elected, 6),
    (leader_resigns, 1),
    (member_fetches, 12),
    (member_acknowledges, 25),
    (member_gives_up, 1),
    (request_of_member_arrives, 40),
    (response_to_member_arrives, 40),
    (call_is_sent, 60),
    (call_arrives, 60),
    (result_arrives, 60),
    (call_is_given_up, 8),
    (locks_end, 10),
    (load_goes_on, 12),
    (timers_run, 8),
)
