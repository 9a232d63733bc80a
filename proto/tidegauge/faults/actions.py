"""The actions on processes, on fetches and on a broker's faults: the one place that declares them.

Rules:
    1. An action has one target: a broker, or, for an action on a process, the cluster's own ZooKeeper. The command
       line, scenario steps and Python methods take several targets at once.
    2. An action is done when its effect is visible. Repeating one whose effect is there already changes nothing and is
       not an error.
    3. Values have JSON's types, as for faults: a partition is ``"orders-0"``.

docs/faults.md has the table, which ``make generate`` writes. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.model import Declaration, Parameter
from tidegauge.lazy_dataclasses import dataclass

ZOOKEEPER = "zookeeper"
Target = int | str
"""A broker's id, or ``ZOOKEEPER``."""
Room = Literal["process", "fetch", "broker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionKind(Declaration):
    """One action.

    Attributes:
        room: its object: a process, the fetches of one follower, or the faults of a broker.
        done: the past participle, for the sentence that says what it changed.
        already: the state in which it changes nothing; empty if it always changes something.
        button: its text on the page.
        command: the words of the command line, if they are not the name with hyphens.
        step: the scenario step, if it is not the name.
    """

    room: Room
    done: str
    already: str = ""
    button: str
    command: str = ""
    step: str = ""

    @property
    def words(self) -> str:
        """The words of the command line."""
        return self.command or self.name.replace("_", "-")

    @property
    def verb(self) -> str:
        """The verb of scenario files."""
        return self.step or self.name

    def wanted(self, target: object, values: Mapping[str, Any]) -> WantedAction:
        """Return the action on this target with these values.

        Raises:
            TidegaugeError: INVALID_REQUEST, the target or a parameter does not exist, or has a value it can't have.
        """
        given = self.given(values)
        if isinstance(target, int) and not isinstance(target, bool) and target >= 0:
            checked: Target = target
        elif target == ZOOKEEPER and self.room == "process":
            checked = ZOOKEEPER
        else:
            other = f", or {ZOOKEEPER!r}" if self.room == "process" else ""
            raise _invalid(f"{self.name} needs a broker's id{other}")
        if problem := self.problem(given, -1 if isinstance(checked, str) else checked):
            raise _invalid(problem)
        return WantedAction(self, checked, given)


@dataclass(frozen=True, slots=True)
class WantedAction:
    """An action that someone asks for, checked by its declaration.

    Attributes:
        kind: its declaration.
        target: a broker's id, or ``ZOOKEEPER``.
        values: by name of the parameter, without those that are not given.
    """

    kind: ActionKind
    target: Target
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return the value of a parameter, or its default."""
        return self.values.get(name, self.kind.parameter(name).default)


def _invalid(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_REQUEST, sentence)


_PARTITION = Parameter("partition", "partition", "The partition", is_required=True, placeholder="T-P")
_EXPIRE = Parameter(
    "expire",
    "flag",
    "End the broker's membership of the cluster too, so that other leaders are elected at once",
    default=False,
)

KILL = ActionKind(
    name="kill",
    room="process",
    meaning="Kill a process at once (SIGKILL), as a crash would; data on disk stays, its membership expires",
    parameters=(_EXPIRE,),
    done="killed",
    already="down",
    button="Kill",
)
STOP = ActionKind(
    name="stop",
    room="process",
    meaning="Stop a process in order: a broker hands its leaders over first (limit 30 s)",
    done="stopped",
    already="down",
    button="Stop",
)
PAUSE = ActionKind(
    name="pause",
    room="process",
    meaning="Freeze a process (SIGSTOP), as a long garbage collection would",
    parameters=(_EXPIRE,),
    done="paused",
    already="paused",
    button="Pause",
)
RESUME = ActionKind(
    name="resume",
    room="process",
    meaning="Let a paused process run again (SIGCONT)",
    done="resumed",
    already="up",
    button="Resume",
)
START = ActionKind(
    name="start",
    room="process",
    meaning="Start a process on its old data and port; done when a broker is registered and responds (limit 60 s)",
    parameters=(
        Parameter("held", "partitions", "Partitions whose fetches the broker holds from its start", placeholder="T-P"),
        Parameter(
            "after_power_cut", "flag", "What the broker had not flushed to its disk is lost first", default=False
        ),
    ),
    done="started",
    already="up",
    button="Start",
)
HOLD_FETCH = ActionKind(
    name="hold_fetch",
    room="fetch",
    meaning="Hold a follower's fetches of a partition, whoever leads, until they are stepped or released",
    parameters=(_PARTITION,),
    done="held",
    already="held",
    button="Hold fetches",
)
RELEASE_FETCH = ActionKind(
    name="release_fetch",
    room="fetch",
    meaning="Let a held follower fetch by itself again",
    parameters=(_PARTITION,),
    done="released",
    already="free",
    button="Release",
    command="hold-fetch --release",
    step="hold_fetch",
)
STEP_FETCH = ActionKind(
    name="step_fetch",
    room="fetch",
    meaning="Let a held follower do one round: request, response after its wait in the purgatory, append",
    parameters=(
        _PARTITION,
        Parameter(
            "until",
            "choice",
            "request: stop when the leader has taken the request; the next step delivers the response",
            "response",
            choices=("request", "response"),
        ),
    ),
    done="stepped",
    button="Step",
)
RELEASE_REQUESTS = ActionKind(
    name="release_requests",
    room="broker",
    meaning="Release the requests and responses that are held at a broker, and end these faults",
    parameters=(
        Parameter(
            "which",
            "choice",
            "requests: those that wait for their effect alone; responses: those whose effect is there",
            "all",
            choices=("all", "requests", "responses"),
        ),
    ),
    done="released",
    already="free of held requests",
    button="Release requests",
)
HEAL = ActionKind(
    name="heal",
    room="broker",
    meaning="End the network partitions, delays and losses of a broker's connections",
    done="healed",
    already="free of network faults",
    button="Heal",
)
CLEAR_FAULTS = ActionKind(
    name="clear_faults",
    room="broker",
    meaning="End all faults inside a broker: network partitions, errors, held requests, disks, clocks",
    parameters=(Parameter("holds", "flag", "Release its held followers too", default=False),),
    done="cleared of faults",
    already="free of faults",
    button="Clear faults",
    command="faults --clear",
)
EXPIRE_SESSION = ActionKind(
    name="expire_session",
    room="broker",
    meaning="End a broker's ZooKeeper session on the server, at once, even of a broker that is down or paused",
    done="expired",
    button="Expire session",
    step="expire_zk_session",
)
SYNC = ActionKind(
    name="sync",
    room="broker",
    meaning="Flush a broker's logs to its disk, or one replica's, so that a power loss leaves them",
    parameters=(Parameter("partition", "partition", "Only the replica of this partition", placeholder="T-P"),),
    done="flushed",
    button="Flush logs",
)
ACTIONS: dict[str, ActionKind] = {
    kind.name: kind
    for kind in (
        KILL,
        STOP,
        PAUSE,
        RESUME,
        START,
        HOLD_FETCH,
        RELEASE_FETCH,
        STEP_FETCH,
        RELEASE_REQUESTS,
        HEAL,
        CLEAR_FAULTS,
        EXPIRE_SESSION,
        SYNC,
    )
}
"""The actions, by name."""
