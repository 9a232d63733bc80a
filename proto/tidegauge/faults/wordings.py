"""The sentences that say what a declared fault does: the one place that words them, for every way to ask for one.

A fault has two wordings, which its declaration names: as a state, for the event log, ``tidegauge faults`` and the page;
and as an order to a broker, for the narration of scenarios. Each of its parameters shows in both, which a test holds.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.counted import counted
from tidegauge.faults.apis import kind_of_id
from tidegauge.faults.model import WantedFault, Wording

_ENDS = {"brokers": "all other brokers", "zookeeper": "ZooKeeper", "clients": "clients", "controllers": "controllers"}
_CALLS = {"in": "calls from", "out": "calls to", "both": "calls from and to"}
_BYTES = {"in": "what comes from", "out": "what goes to", "both": "the connection with"}
_WAYS = {"in": ", incoming calls only", "out": ", outgoing calls only", "both": ""}


def _joined(ids: Sequence[int]) -> str:
    """Return ``broker 1``, or ``brokers 1, 2 and 0``."""
    *others, last = map(str, ids)
    return f"brokers {', '.join(others)} and {last}" if others else f"broker {last}"


# Connections


def _isolated(fault: WantedFault) -> str:
    ends = fault["from"]
    if isinstance(ends, str):
        others = _ENDS[ends]
    else:
        others = f"broker{'s' if len(ends) > 1 else ''} {', '.join(map(str, ends))}"
    ways = (_BYTES if ends == "zookeeper" else _CALLS)[fault["direction"]]
    if fault["delay_ms"] is not None:
        return f"{ways} {others}: delayed by {fault['delay_ms']} ms"
    if fault["drop"] is not None:
        return f"{ways} {others}: dropped with probability {fault['drop']:g} (seed {fault['seed']})"
    return f"{ways} {others}: partitioned"


def _isolate(broker: str, fault: WantedFault) -> str:
    ends = fault["from"]
    others = _joined(ends) if not isinstance(ends, str) else _ENDS[ends] if ends != "clients" else "all clients"
    way = _WAYS[fault["direction"]]
    if fault["delay_ms"] is not None:
        return f"Delay each message between {broker} and {others} by {fault['delay_ms']} ms{way}"
    if fault["drop"] is not None:
        chance = f"probability {fault['drop']:g}{_seed(fault)}"
        return f"Drop calls between {broker} and {others} with {chance}{way}"
    return f"Isolate {broker} from {others}{way}"


ISOLATE = Wording(_isolated, _isolate)

# Requests


def _scope(fault: WantedFault) -> str:
    """Return which calls of the API are meant."""
    topic, index, caller = fault["topic"], fault["partition_index"], fault["caller"]
    about = topic if index is None else f"{topic}-{index}"
    sender = f"broker {caller}" if caller.isdigit() else caller
    return (
        (f" from {sender}" if caller else "")
        + (f" from client {fault['client_id']}" if fault["client_id"] else "")
        + (f" about {about}" if about else "")
        + (f" of {kind_of_id(fault['rpc'])} {fault['group']}" if fault["group"] else "")
    )


def _error(fault: WantedFault) -> str:
    return str(fault["grpc_status"] or fault["error"])


def _seed(fault: WantedFault) -> str:
    return f" (seed {fault['seed']})" if fault["seed"] else ""


def _erring(fault: WantedFault) -> str:
    chance = f" with probability {fault['probability']:g} (seed {fault['seed']})" if fault["probability"] < 1 else ""
    effect = ", although it takes effect" if fault["after_effect"] else ""
    return f"{fault['rpc']}{_scope(fault)} responds with {_error(fault)}{_count(fault)}{chance}{effect}"


def _make_err(broker: str, fault: WantedFault) -> str:
    chance = f" with probability {fault['probability']:g}{_seed(fault)}" if fault["probability"] < 1 else ""
    effect = ", although they take effect" if fault["after_effect"] else ""
    calls = f"{fault['rpc']} calls{_scope(fault)}"
    return f"Make {calls} at {broker} fail with {_error(fault)}{_given_count(fault)}{chance}{effect}"


INJECT_ERROR = Wording(_erring, _make_err)


def _held(fault: WantedFault) -> str:
    what = "responses to " if fault["after_effect"] else ""
    late = ", also when its client disconnects" if fault["outlives_connection"] else ""
    return f"{what}{fault['rpc']}{_scope(fault)} held{late}{_count(fault)}"


def _hold(broker: str, fault: WantedFault) -> str:
    what = f"the responses to {fault['rpc']}" if fault["after_effect"] else f"{fault['rpc']} requests"
    late = ", also when their clients disconnect" if fault["outlives_connection"] else ""
    return f"Hold {what}{_scope(fault)} at {broker}{late}{_given_count(fault)}"


HOLD_REQUESTS = Wording(_held, _hold)

# Disks


def _files(fault: WantedFault) -> str:
    return f" on files with {fault['path']!r} in their path" if fault["path"] else ""


def _disk_failing(fault: WantedFault) -> str:
    effect = f"fails with {fault['errno']}" if fault["errno"] else f"takes {fault['delay_ms']} ms more"
    return f"{fault['operation'] or 'every disk operation'}{_files(fault)} {effect}{_count(fault)}"


def _make_disk_fail(broker: str, fault: WantedFault) -> str:
    operations = f"{fault['operation'] or 'disk'} operations"
    effect = f"fail with {fault['errno']}" if fault["errno"] else f"take {fault['delay_ms']} ms longer"
    return f"Make {operations}{_files(fault)} of {broker} {effect}{_given_count(fault)}"


INJECT_DISK = Wording(_disk_failing, _make_disk_fail)

# Clocks


def _clock(fault: WantedFault) -> str:
    if fault["set_to"]:
        shown = f"at {fault['set_to']}" if fault["frozen"] else f"set to {fault['set_to']}"
    elif fault["offset_ms"] is None:
        shown = ""
    else:
        way = "ahead of" if fault["offset_ms"] > 0 else "behind"
        shown = f"{abs(fault['offset_ms'])} ms {way} the machine's"
    stopped = "stopped" if fault["frozen"] else ""
    return " ".join(part for part in (stopped, shown) if part)


def _clock_skewed(fault: WantedFault) -> str:
    return f"wall clock {_clock(fault)}"


def _skew_clock(broker: str, fault: WantedFault) -> str:
    if fault["frozen"]:
        return f"Stop the wall clock of {broker}{_clock(fault).removeprefix('stopped')}"
    if fault["set_to"]:
        return f"Set the wall clock of {broker} to {fault['set_to']}"
    return f"Set the wall clock of {broker} {_clock(fault)}"


SKEW_CLOCK = Wording(_clock_skewed, _skew_clock)

# Counts


def _count(fault: WantedFault) -> str:
    """Return the text for the affected calls, defaults included."""
    which = f", {counted(fault['times'], 'time')}" if fault["times"] else ""
    return which + (f" after {fault['nth'] - 1} that pass" if fault["nth"] > 1 else "")


def _given_count(fault: WantedFault) -> str:
    """Return the text for the affected calls, if the caller limits them."""
    times = f", {counted(fault['times'], 'time')}" if fault["times"] else ", without a limit"
    passing = f" after {fault['nth'] - 1} that pass" if fault["nth"] > 1 else ""
    return (times if "times" in fault.values else "," if passing else "") + passing
