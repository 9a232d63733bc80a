"""The faults that a broker can be asked for: the one place that declares them. docs/faults.md says what each one does.

To add a fault or a parameter: declare it here, add its field to the fault's message in lab.proto, word it in
``wordings``, let the broker act on it (``tidegauge_broker.server.lab``), and run ``make generate``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults import wordings
from tidegauge.faults.model import Alternatives, Direction, FaultKind, Parameter, Plane

MAX_DELAY_MS = 24 * 3_600_000
"""A longer delay outlives every test, and would overflow a timer."""
CALLERS = (Plane.CLIENTS.value, Plane.BROKERS.value)
MAX_SKEW_MS = 100 * 366 * 86_400_000
"""A century: dates beyond overflow what clients make of timestamps."""
DISK_OPERATIONS = ("append", "sync", "truncate", "replace", "rename", "remove")

_NTH = Parameter(
    "nth", "integer", "Ordinal of the first {} affected", 1, minimum=1, placeholder="N", field="skip", base=1
)
_TIMES = Parameter("times", "integer", "Number of {}s affected; 0: no limit", 1, placeholder="N")
_SEED = Parameter("seed", "integer", "Seed of the random numbers", 0, placeholder="N")
_RPC = Parameter(
    "rpc",
    "text",
    "API, by Kafka's name or its RPC's: Produce, JoinGroup, ReplicaFetch, LeaderAndIsr, ...",
    is_required=True,
    is_positional=True,
    placeholder="NAME",
)
_SCOPE = (
    Parameter(
        "caller", "text", "Only calls of this sender: clients, brokers, or a broker's id", "", placeholder="SENDER"
    ),
    Parameter("client_id", "text", "Only calls of clients with this client.id", "", placeholder="ID"),
    Parameter("topic", "text", "Only calls that name this topic", "", placeholder="TOPIC"),
    Parameter(
        "partition_index",
        "integer",
        "Only calls that name this partition of the topic",
        maximum=2**31 - 1,
        placeholder="N",
        field="partition",
    ),
    Parameter("group", "text", "Only calls that name this group or transactional id", "", placeholder="ID"),
)
"""The calls of an API that are meant."""


def _counted(parameter: Parameter, what: str, **changes: Any) -> Parameter:
    return dataclasses.replace(parameter, meaning=parameter.meaning.format(what), **changes)


def _network_problem(values: Mapping[str, Any], broker_id: int) -> str:
    peers = values.get("from")
    if peers == Plane.CLIENTS.value and values.get("direction") == Direction.OUT.value:
        return "a broker makes no calls to clients: theirs arrive, so the direction is in or both"
    if isinstance(peers, list) and broker_id in peers:
        return f"broker {broker_id} can't be isolated from itself"
    if peers == Plane.ZOOKEEPER.value and values.get("drop") is not None:
        return "the connection to ZooKeeper is one stream of bytes: it can be partitioned or delayed, not lossy"
    return ""


def _scope_problem(values: Mapping[str, Any], _broker_id: int) -> str:
    caller = values.get("caller")
    if caller and caller not in CALLERS and not (caller.isascii() and caller.isdigit()):
        return f"the caller is clients, brokers or the id of a broker, not {caller!r}"
    if values.get("partition_index") is not None and not values.get("topic"):
        return "a partition is one of a topic: give the topic too"
    return ""


def _hold_problem(values: Mapping[str, Any], broker_id: int) -> str:
    if values.get("after_effect") and values.get("outlives_connection"):
        return "a response can't outlive its connection: only a request that waits for its effect can be late"
    return _scope_problem(values, broker_id)


def _clock_problem(values: Mapping[str, Any], _broker_id: int) -> str:
    if values.get("offset_ms") is None and not values.get("set_to") and not values.get("frozen"):
        return "say what the clock shows: give offset_ms or set_to, or frozen"
    return ""


ISOLATE = FaultKind(
    name="isolate",
    message="network",
    meaning="Partition a broker from brokers, ZooKeeper, clients or controllers, one way or both; delay or drop calls",
    acts_on=("gRPC", "Kafka protocol", "ZooKeeper"),
    wording=wordings.ISOLATE,
    parameters=(
        Parameter(
            "from",
            "peers",
            "The other end: all other brokers, ZooKeeper, clients, the controllers of KRaft mode, or nodes by id",
            is_required=True,
            is_positional=True,
            placeholder="brokers|zookeeper|clients|controllers|ID,ID",
            python="ends",
            field="plane",
        ),
        Parameter(
            "direction",
            "choice",
            "in: calls that arrive at the broker; out: calls it makes; responses belong to their calls",
            Direction.BOTH.value,
            is_positional=True,
            choices=tuple(direction.value for direction in Direction),
        ),
        Parameter(
            "delay_ms",
            "integer",
            "Delay each message instead",
            unit="ms",
            minimum=1,
            maximum=MAX_DELAY_MS,
            placeholder="MS",
        ),
        Parameter(
            "drop",
            "number",
            "Drop each call with this probability instead",
            maximum=1,
            placeholder="P",
            field="drop_probability",
        ),
        _SEED,
    ),
    alternatives=(Alternatives(("delay_ms", "drop"), "calls are delayed or dropped", is_required=False),),
    rule=_network_problem,
)
INJECT_ERROR = FaultKind(
    name="inject_error",
    message="error",
    meaning="Make calls of an RPC fail at a broker",
    acts_on=("gRPC", "Kafka protocol"),
    wording=wordings.INJECT_ERROR,
    parameters=(
        _RPC,
        Parameter(
            "error",
            "error",
            "Error of Kafka's protocol in the response: NOT_ENOUGH_REPLICAS, ...",
            ErrorCode.NONE.name,
            is_positional=True,
            placeholder="NAME",
        ),
        Parameter(
            "grpc_status",
            "text",
            "Or the gRPC status that ends the call: UNAVAILABLE, ...",
            "",
            placeholder="NAME",
            is_upper_case=True,
        ),
        Parameter("after_effect", "flag", "The call takes effect, and only its response is replaced", default=False),
        _counted(_NTH, "call"),
        _counted(_TIMES, "call"),
        Parameter(
            "probability", "number", "Probability with which each of them fails", 1.0, maximum=1, placeholder="P"
        ),
        _SEED,
        *_SCOPE,
    ),
    alternatives=(Alternatives(("error", "grpc_status"), "say how the calls fail", is_required=True),),
    rule=_scope_problem,
)
HOLD_REQUESTS = FaultKind(
    name="hold_requests",
    message="hold",
    meaning="Hold requests of an API at a broker, or their responses, until they are released",
    acts_on=("gRPC", "Kafka protocol"),
    wording=wordings.HOLD_REQUESTS,
    parameters=(
        _RPC,
        Parameter("after_effect", "flag", "The request takes effect, and its response is held", default=False),
        Parameter(
            "outlives_connection",
            "flag",
            "The request waits on when its client disconnects, and takes effect late, at the release",
            default=False,
        ),
        _counted(_NTH, "call"),
        _counted(_TIMES, "call", default=0),
        *_SCOPE,
    ),
    rule=_hold_problem,
)
INJECT_DISK = FaultKind(
    name="inject_disk",
    message="disk",
    meaning="Make a broker's disk slow, or make it fail",
    acts_on=("disk",),
    wording=wordings.INJECT_DISK,
    parameters=(
        Parameter(
            "delay_ms",
            "integer",
            "Additional duration of each operation",
            unit="ms",
            minimum=1,
            maximum=MAX_DELAY_MS,
            placeholder="MS",
        ),
        Parameter(
            "errno",
            "text",
            "Or the error of the operating system with which each fails: EIO, ENOSPC, ...",
            "",
            placeholder="NAME",
            field="errno_name",
            is_upper_case=True,
        ),
        Parameter("operation", "choice", "Only these operations; default: all", "", choices=DISK_OPERATIONS),
        Parameter(
            "path", "text", "Only files whose path contains this text", "", placeholder="TEXT", field="path_contains"
        ),
        _counted(_NTH, "operation"),
        _counted(_TIMES, "operation", default=0),
    ),
    alternatives=(Alternatives(("delay_ms", "errno"), "say what the disk does", is_required=True),),
)
SKEW_CLOCK = FaultKind(
    name="skew_clock",
    message="clock",
    meaning="Set a broker's wall clock ahead or back, or stop it",
    acts_on=("clock",),
    wording=wordings.SKEW_CLOCK,
    counts=False,
    parameters=(
        Parameter(
            "offset_ms",
            "integer",
            "How far the clock is ahead of the machine's; a negative number: behind it",
            unit="ms",
            minimum=-MAX_SKEW_MS,
            maximum=MAX_SKEW_MS,
            placeholder="MS",
        ),
        Parameter("set_to", "time", "Or the time that it shows at first: 2030-01-01T00:00:00Z", "", placeholder="TIME"),
        Parameter("frozen", "flag", "The clock stops at that time, or at the present one", default=False),
    ),
    alternatives=(Alternatives(("offset_ms", "set_to"), "a clock is skewed, or set to a time", is_required=False),),
    rule=_clock_problem,
)
FAULTS: dict[str, FaultKind] = {
    kind.name: kind for kind in (ISOLATE, INJECT_ERROR, HOLD_REQUESTS, INJECT_DISK, SKEW_CLOCK)
}
"""The faults, by name."""
BY_MESSAGE = {kind.message: kind for kind in FAULTS.values()}
"""The faults, by the field of ``LabFault``."""


def kind_of(name: str) -> FaultKind:
    """Return the declaration of a fault.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is none of this name.
    """
    if name not in FAULTS:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"there is no fault {name!r}; the faults are {', '.join(FAULTS)}"
        )
    return FAULTS[name]
