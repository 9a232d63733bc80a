"""A scenario's steps as sentences, for whoever watches a story and does not know the language of its file. Pure.

``expect`` and ``mark`` have no sentence: they change nothing. What an author wants said there stands in their notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch

from tidegauge.counted import counted
from tidegauge.errors import ErrorCode
from tidegauge_client.quorum_file import FIRST_CONTROLLER_ID
from tidegauge_lab.local.roles import METADATA, Role, RoleKind
from tidegauge_lab.scenario import steps
from tidegauge_lab.scenario.group_narration import group_sentence
from tidegauge_lab.scenario.group_steps import GroupStep
from tidegauge_lab.scenario.quorum_steps import AddController, LoseDisk, NameVoters, RemoveController, WaitQuorum
from tidegauge_lab.scenario.readers import ANY, NO_LEADER, NONE
from tidegauge_lab.scenario.share_narration import share_sentence
from tidegauge_lab.scenario.share_steps import OF_SHARE_GROUPS
from tidegauge_lab.scenario.transaction_narration import transaction_sentence
from tidegauge_lab.scenario.transaction_steps import OF_TRANSACTIONS

LEGEND = (
    "A state is written BROKER: LEO/HW, with * at the leader and - for a broker that does not respond:",
    "`1: 2/1*  2: -` says that broker 1 leads with log end offset 2 and high watermark 1.",
    "Where an open transaction keeps the last stable offset below the high watermark, it stands third: `1: 3/3/1*`.",
    "A log is written VALUE@EPOCH, in the order of its offsets.",
)


def narrated(step: steps.Step) -> str:
    """Return a step as a sentence without a full stop, with its partition where that is not the story's first one."""
    words = _sentence(step)
    partition = step.partition if isinstance(step, steps.PartitionStep) else None
    if not words or partition is None:
        return words
    return f"{words} ({'metadata log' if partition == METADATA else partition})"


def brokers(ids: Sequence[int | Role]) -> str:
    """Return ``broker 1``, ``controller 3000``, ``brokers 1 and 0``, or ``broker 1 and the coordinator of group:g``."""
    named = [one.name for one in ids if isinstance(one, Role) and one.name]
    if len(named) == len(ids) > 1:
        return f"controllers {joined([repr(name) for name in named])}"
    if any(isinstance(one, Role) for one in ids):
        return joined([_role(one) if isinstance(one, Role) else f"broker {one}" for one in ids])
    kind = "controller" if all(isinstance(one, int) and one >= FIRST_CONTROLLER_ID for one in ids) else "broker"
    return f"{kind if len(ids) == 1 else f'{kind}s'} {joined(ids)}"


def _role(role: Role) -> str:
    return str(role) if role.kind in {RoleKind.CONTROLLER, RoleKind.VOTER} else f"the {role}"


def joined(items: Sequence[object]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    *others, last = map(str, items)
    return f"{', '.join(others)} and {last}" if others else last


def offsets(by_broker: Mapping[int, int]) -> str:
    """Return ``2 on brokers 1 and 2, 1 on broker 0``: brokers with the same offset together."""
    found: dict[int, list[int]] = {}
    for broker, offset in by_broker.items():
        found.setdefault(offset, []).append(broker)
    return ", ".join(f"{offset} on {brokers(ids)}" for offset, ids in found.items())


def _refused(error: ErrorCode) -> str:
    return "" if error is ErrorCode.NONE else f", which is refused with {error.name}"


@singledispatch
def _sentence(step: steps.Step) -> str:
    raise AssertionError(f"{step.verb} is in the vocabulary, so it has a sentence")


@_sentence.register
def _(_: steps.Expect | steps.Mark) -> str:
    return ""


@_sentence.register
def _(step: GroupStep) -> str:
    return group_sentence(step)


@_sentence.register
def _(step: OF_SHARE_GROUPS) -> str:
    return share_sentence(step)


@_sentence.register
def _(step: OF_TRANSACTIONS) -> str:
    return transaction_sentence(step)


@_sentence.register
def _(step: steps.CreateTopic) -> str:
    replicas = "; ".join(", ".join(map(str, one)) for one in step.assignment)
    refused = "" if step.error is ErrorCode.NONE else f": {step.error.name}"
    return f"Create the topic {step.name} with replicas on brokers {replicas}{refused}"


@_sentence.register
def _(step: steps.Produce) -> str:
    acks = "all" if step.acks == -1 else step.acks
    via = "" if step.via is None else f" through broker {step.via}, whoever leads"
    later = ", without waiting for the response" if step.answer == "later" else ""
    return f"Produce {joined(step.values)} with acks={acks}{via}{later}{_refused(step.error)}"


@_sentence.register
def _(step: steps.WaitResponse) -> str:
    how = "is acknowledged" if step.error is ErrorCode.NONE else f"is rejected with {step.error.name}"
    return f"Wait until {joined(step.values)} {how}"


@_sentence.register
def _(step: steps.HoldFetch) -> str:
    if step.release:
        return f"Release {brokers(step.brokers)}: fetches go on by themselves"
    return f"Hold the fetches of {brokers(step.brokers)}: from here on one round at a time"


@_sentence.register
def _(step: steps.StepFetch) -> str:
    rounds = "one fetch round" if step.rounds == 1 else f"{step.rounds} fetch rounds"
    only = " up to the leader's receipt; the response is withheld" if step.until == "request" else ""
    return f"Let {brokers([step.broker])} do {rounds}{only}{_refused(step.error)}"


@_sentence.register
def _(step: steps.Kill) -> str:
    return f"Kill {brokers(step.brokers)} (SIGKILL){_and_expire(step)}"


@_sentence.register
def _(step: steps.Stop) -> str:
    return f"Stop {brokers(step.brokers)} by a controlled shutdown"


@_sentence.register
def _(step: steps.Pause) -> str:
    return f"Pause {brokers(step.brokers)} (SIGSTOP){_and_expire(step)}"


def _and_expire(step: steps.Kill | steps.Pause) -> str:
    """Return that the memberships of the cluster end too, if they do."""
    if not step.expire:
        return ""
    return ", and end its membership" if len(step.brokers) == 1 else ", and end their memberships"


@_sentence.register
def _(step: steps.Resume) -> str:
    return f"Resume {brokers(step.brokers)} (SIGCONT)"


@_sentence.register
def _(step: steps.Start) -> str:
    lost = " after a power loss: without what was never flushed" if step.after_power_cut else ""
    held = f", with the fetches of {joined(step.held)} held" if step.held else ""
    return f"Start {brokers(step.brokers)}{lost}{held}"


@_sentence.register
def _(step: steps.FaultStep) -> str:
    return step.fault.order(brokers([step.broker]))


@_sentence.register
def _(step: steps.WaitHeld) -> str:
    return f"Wait until {brokers([step.broker])} holds {counted(step.count, 'request')}"


@_sentence.register
def _(step: steps.ReleaseRequests) -> str:
    what = "requests" if step.which == "all" else step.which
    return f"Release the {what} that {brokers(step.brokers)} hold{'s' if len(step.brokers) == 1 else ''}"


@_sentence.register
def _(step: steps.Heal) -> str:
    return f"Heal the connections of {brokers(step.brokers)}"


@_sentence.register
def _(step: steps.ClearFaults) -> str:
    return f"End all faults inside {brokers(step.brokers)}"


@_sentence.register
def _(step: steps.ExpireSession) -> str:
    return f"Expire the ZooKeeper session of {brokers([step.broker])}"


@_sentence.register
def _(step: steps.Elect) -> str:
    whom = "the preferred leader" if step.type == "preferred" else "a leader, uncleanly if need be"
    return f"Elect {whom}{_refused(step.error)}"


@_sentence.register
def _(step: steps.Sync) -> str:
    return f"Flush the log of {brokers(step.brokers)} to disk"


@_sentence.register
def _(step: steps.DropUnsynced) -> str:
    return f"Power loss at {brokers(step.brokers)}: what was never flushed is lost"


@_sentence.register
def _(step: steps.WaitLeader) -> str:
    return "Wait until there is no leader" if step.leader == NO_LEADER else f"Wait until broker {step.leader} leads"


@_sentence.register
def _(step: steps.WaitIsr) -> str:
    return f"Wait until the ISR is {joined(step.isr)}"


@_sentence.register
def _(step: steps.WaitHw) -> str:
    return f"Wait until the high watermark is {offsets(step.hw)}"


@_sentence.register
def _(step: steps.WaitLso) -> str:
    return f"Wait until the last stable offset is {offsets(step.lso)}"


@_sentence.register
def _(step: steps.WaitLeo) -> str:
    return f"Wait until the log end offset is {offsets(step.leo)}"


@_sentence.register
def _(step: steps.WaitEpoch) -> str:
    known = f", and {brokers(step.brokers)} {'knows' if len(step.brokers) == 1 else 'know'} it" if step.brokers else ""
    return f"Wait until the leader epoch is {step.epoch}{known}"


@_sentence.register
def _(step: steps.WaitCheckpoint) -> str:
    return f"Wait until the high watermark in the checkpoint file is {offsets(step.hw)}"


@_sentence.register
def _(step: steps.WaitController) -> str:
    who = f"broker {' or '.join(map(str, step.brokers))}"
    epoch = "" if step.epoch is None else f", with controller epoch {step.epoch}"
    return f"Wait until {who} is the controller{epoch}"


@_sentence.register
def _(step: WaitQuorum) -> str:
    leader = brokers([step.leader]) if isinstance(step.leader, Role) else f"controller {step.leader}"
    who = {ANY: "a controller", NONE: "no controller"}.get(str(step.leader), leader)
    when = {None: "", True: " in another epoch", False: ", still in the same epoch"}[step.changed]
    if step.epochs_later is not None:
        when = f", {counted(step.epochs_later, 'epoch')} later at least"
    whole = "" if step.caught_up is None else f", and {step.caught_up} voters have its log"
    commits = "" if step.commits else ", and has committed nothing in it"
    return f"Wait until {who} leads the quorum{when}{whole}{commits}"


@_sentence.register
def _(step: NameVoters) -> str:
    first, *others = map(repr, step.names)
    return f"Call the controller that leads {first}" + (f", and the others {joined(others)}" if others else "")


@_sentence.register
def _(step: AddController) -> str:
    del step
    return "Start one more controller, and make it a voter"


@_sentence.register
def _(step: RemoveController) -> str:
    return f"Take {brokers([step.broker])} out of the voters"


@_sentence.register
def _(step: LoseDisk) -> str:
    return f"Take all data of {brokers(step.brokers)} away"


@_sentence.register
def _(step: steps.WaitEvent) -> str:
    fields = ", ".join(f"{name} {value}" for name, value in (step.fields or {}).items())
    return f"Wait for the event {step.kind} of broker {step.broker}{f' ({fields})' if fields else ''}"


@_sentence.register
def _(step: steps.Table) -> str:
    return f"In a table: {step.phase}"


@_sentence.register
def _(step: steps.Verify) -> str:
    found = joined([f"{count} {kind}" for kind, count in step.found.items()]) if step.found else "nothing wrong"
    about = "" if step.topic is None else f" in the topic {step.topic}"
    return f"Compare all that was produced with the logs{about}: {found}"
