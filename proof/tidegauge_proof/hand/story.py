"""A scenario (docs/scenarios.md) played on a cluster that is driven by hand, step by step, with its expectations.

The page's site gives a scenario as the plain values of its file. ``unplayable`` says which scenarios need more than
this cluster has: other topics, groups, transactions, clocks, clients that are processes. A step of a scenario becomes
actions, so that a story is a schedule like any other; steps that wait let virtual time go on.

A story of the page's own has ``settings`` in place of cluster and topics, as a schedule writes them, and steps ``act``
whose value is an action as a schedule writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidegauge.control import NO_LEADER
from tidegauge_lab.play.story_names import with_orders
from tidegauge_proof.hand import facts
from tidegauge_proof.hand.actions import Action, ActionError
from tidegauge_proof.hand.client_steps import Said, unplayable_client_step, without_markers
from tidegauge_proof.hand.client_steps import steps as client_steps
from tidegauge_proof.hand.cluster import INTERNAL
from tidegauge_proof.hand.driven import HandDriven
from tidegauge_proof.hand.schedule import VERSION, ScheduleError, read_schedule, read_settings, write_settings
from tidegauge_proof.hand.session import Session
from tidegauge_proof.hand.settings import MOST_PARTITIONS, RULE_NAMES, Settings, orders, placing

Json = dict[str, Any]
_IGNORED_SETTINGS = frozenset(
    {
        "replica.fetch.wait.max.ms",
        "replica.high.watermark.checkpoint.interval.ms",
        "zookeeper.session.timeout.ms",
    }
)
"""Here the high watermark is checkpointed by an action alone; a fetch waits, and a session lasts, as by default."""
_OF_CLIENTS = frozenset(
    {
        "group.min.session.timeout.ms",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    }
)
"""Settings of coordinators that are lower here than by default, as the scenarios that set them have it."""
_TRANSACTION_VERSION = "transaction.version"
"""The feature of KRaft mode that a cluster here can have without a quorum."""
_INTERNAL_CONFIG = frozenset({"cleanup.policy", "min.insync.replicas"})
_EXPECTED = frozenset(
    {"leader", "epoch", "isr", "leo", "hw", "lso", "remote_leo", "log", "epochs", "answers", "readable", "diverged"}
)
_OF_PRODUCE = frozenset({"values", "acks", "via", "answer", "error"})
_MOST_VALUES = 20
_ASIDE = frozenset({"note", "kraft"})
"""Keys of a step beside its verb; ``kraft`` is for KRaft mode, and this cluster is in ZooKeeper mode."""
_OWN = frozenset({"act", "note"})
"""Keys of a step of the page's own stories."""


def unplayable(scenario: Mapping[str, Any]) -> str:
    """Return why a scenario can't be played by hand; empty if it can."""
    if "settings" in scenario:
        return next((f"has a step {name}" for step in scenario["steps"] for name in step if name not in _OWN), "")
    cluster = scenario.get("cluster", {})
    if INTERNAL[-1].topic in [one["name"] for one in scenario.get("topics", [])]:
        return "has share groups with settings of their own"
    if any(_joins_by_heartbeat(step) for step in scenario.get("steps", [])):
        return "has consumers of the consumer protocol (KIP-848) by name"
    if cluster.get("mode") == "kraft" and set(cluster.get("features", {})) != {_TRANSACTION_VERSION}:
        return "needs a quorum of controllers"
    if reason := _unplayable_topics(scenario.get("topics", [])):
        return reason
    if other := set(cluster.get("settings", {})) - _IGNORED_SETTINGS - _OF_CLIENTS - {"replica.truncation.rule"}:
        return f"sets {min(other)}"
    if _settings_of(scenario) is None:
        return "has an order of brokers that this cluster has not"
    for step in scenario.get("steps", []):
        for name, value in step.items():
            if name not in _ASIDE and (reason := _unplayable_step(name, value)):
                return reason
    return ""


def _joins_by_heartbeat(step: Mapping[str, Any]) -> bool:
    """Return whether a step starts a consumer of the consumer protocol."""
    started = step.get("start_consumer")
    return isinstance(started, Mapping) and started.get("settings", {}).get("group.protocol") == "consumer"


def _unplayable_topics(topics: Sequence[Mapping[str, Any]]) -> str:
    own, internal = _topics(topics)
    if len(own) != 1:
        return "has more than one topic"
    assignments = _assignments(own[0])
    if not assignments or len(assignments) > MOST_PARTITIONS or len(set(assignments[1:])) > 1:
        return "has other partitions than this cluster"
    if len(assignments) > 1 and not internal:
        return "has more than one partition"
    config = own[0].get("config", {})
    if other := set(config) - {"min.insync.replicas", "unclean.leader.election.enable"}:
        return f"sets {min(other)}"
    for one in internal.values():
        if other := set(one.get("config", {})) - _INTERNAL_CONFIG:
            return f"sets {min(other)}"
    return ""


def _topics(topics: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
    """Return a scenario's own topics, and the internal ones by name."""
    internal = {str(one["name"]): one for one in topics if str(one["name"]).startswith("__")}
    return [one for one in topics if str(one["name"]) not in internal], internal


def _assignments(topic: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Return the assignment of each of a topic's partitions."""
    found = topic.get("assignment") or []
    each = found if found and isinstance(found[0], list) else [found] if found else []
    return [tuple(one) for one in each]


def _unplayable_step(name: str, value: Any) -> str:
    if name not in _STEPS:
        return f"needs {name}"
    if reason := unplayable_client_step(name, value):
        return reason
    if name == "expect" and (other := set(value) - _EXPECTED):
        return f"expects {min(other)}"
    if name == "isolate" and (value.get("from") == "clients" or "delay_ms" in value or "drop" in value):
        return "slows or parts clients"
    if name == "elect" and value != "preferred":
        return "elects on an administrator's demand"
    if name == "produce" and isinstance(value, dict) and (other := set(value) - _OF_PRODUCE):
        return f"produces with {min(other)}"
    return ""


def _settings_of(scenario: Mapping[str, Any]) -> Settings | None:
    """Return the settings that give the same brokers their parts, if any."""
    if "settings" in scenario:
        return read_schedule(f"{VERSION}~{scenario['settings']}~").settings
    cluster, (own, internal) = scenario["cluster"], _topics(scenario["topics"])
    if internal:
        return _placed_settings(cluster, own[0], internal)
    topic = own[0]
    assignment, controller = list(topic["assignment"]), cluster.get("controller", 0)
    config = topic.get("config", {})
    wanted = {
        "replicas": len(assignment),
        "min_insync_replicas": int(config.get("min.insync.replicas", 1)),
        "unclean": int(bool(config.get("unclean.leader.election.enable", False))),
        "rule": RULE_NAMES.index(cluster.get("settings", {}).get("replica.truncation.rule", RULE_NAMES[-1])),
    }
    apart = int(controller == 0 and 0 not in assignment)
    brokers = tuple(range(apart, len(assignment) + apart))
    if tuple(assignment) not in orders(brokers):
        return None
    return read_settings({**wanted, "apart": apart, "order": orders(brokers).index(tuple(assignment))})


def _placed_settings(
    cluster: Mapping[str, Any], topic: Mapping[str, Any], internal: Mapping[str, Mapping[str, Any]]
) -> Settings:
    """Return the settings of a scenario's cluster with coordinators."""
    config, assignments = topic.get("config", {}), _assignments(topic)
    state = internal.get(INTERNAL[0].topic, {})
    places = {
        "transactions_at": _assignments(state),
        "offsets_at": _assignments(internal.get(INTERNAL[1].topic, {})),
    }
    numbers: dict[str, object] = {
        "coordinators": 1,
        "transactions_v2": int(cluster.get("features", {}).get(_TRANSACTION_VERSION, 0) == 2),
        "replicas": len(assignments[0]),
        "placed": placing(assignments[0]),
        "second": placing(assignments[1]) if len(assignments) > 1 else 0,
        "partitions": len(assignments),
        "min_insync_replicas": int(config.get("min.insync.replicas", 1)),
        "unclean": int(bool(config.get("unclean.leader.election.enable", False))),
        "rule": RULE_NAMES.index(cluster.get("settings", {}).get("replica.truncation.rule", RULE_NAMES[-1])),
        "min_insync_transactions": int(state.get("config", {}).get("min.insync.replicas", 0)),
        **{name: placing(found[0]) if found else 0 for name, found in places.items()},
    }
    return read_settings(numbers)


class Story:
    """A scenario that is played.

    Args:
        session: begins again with the scenario's settings.
        scenario: plain values of the scenario's file.

    Raises:
        ScheduleError: it can't be played here.
    """

    def __init__(self, session: Session, scenario: Mapping[str, Any]) -> None:
        reason = unplayable(scenario)
        settings = None if reason else _settings_of(scenario)
        if settings is None:
            raise ScheduleError(f"this scenario does not play here: it {reason}")
        self._session = session
        self._steps: list[Json] = list(scenario["steps"])
        self._numbers: dict[str, int] = {}
        self._names: dict[str, dict[int, str]] = {}
        self.place = 0
        self.failed = 0
        session.begin(replace(settings, names=self._names))
        self._schedule = session.schedule

    @property
    def is_behind(self) -> bool:
        """Whether a person has done something else since: the schedule is no longer the story's."""
        return self._session.schedule is not self._schedule

    @property
    def is_over(self) -> bool:
        """Whether all steps are done."""
        return self.place >= len(self._steps)

    def next(self) -> Json:
        """Do the next step; return what it found: ``done``, sentences, and ``wrong``, expectations that do not hold."""
        step = self._steps[self.place]
        name, value = next((name, with_orders(value)) for name, value in step.items() if name not in _ASIDE)
        said: list[str] = []
        wrong: list[str] = []
        try:
            said, wrong = _STEPS[name](self, value)
        except ActionError as refused:
            wrong = [str(refused)]
        self._schedule = self._session.schedule
        self.place += 1
        self.failed += bool(wrong)
        return {"done": said, "wrong": wrong, "place": self.place, "over": self.is_over}

    # Parts of steps

    @property
    def cluster(self) -> HandDriven:
        """The cluster on which it is played."""
        return self._session.cluster

    @property
    def view(self) -> Json:
        """The cluster as the page shows it."""
        return self._session.view

    def act_once(self, kind: str, *values: int) -> str:
        """Do an action; return its sentence."""
        return self._act(kind, *values)

    def number_of(self, kind: str, name: str) -> int:
        """Return the number of a client, a group or an id, from 1."""
        known = self._names.setdefault(kind, {})
        found = next((number for number, one in known.items() if one == name), None)
        if found is None:
            found = len(known) + 1
            known[found] = name
        return found

    def name_records(self, partition: int, names: Sequence[Any]) -> None:
        """Name the records that are sent next to a partition."""
        first = self.cluster.data[partition].clients.numbers
        for place, name in enumerate(names):
            self._numbers[str(name)] = first + place
            self._names.setdefault("record", {})[first + place] = str(name)

    def settled(self, holds: Callable[[], bool], words: str, pieces_ms: Sequence[int]) -> Said:
        """Let time go on, piece by piece, until something holds."""
        passed_ms = 0
        for ms in pieces_ms:
            if holds():
                break
            self._act("wait", ms)
            passed_ms += ms
        said = [f"{passed_ms / 1000:g} s passed."] if passed_ms else []
        return said, [] if holds() else [f"{words} does not come"]

    def _act(self, kind: str, *values: int) -> str:
        return self._session.do(Action(kind, values))

    def _each(self, kind: str, brokers: Any) -> list[str]:
        return [self._act(kind, one) for one in _list(brokers)]

    @property
    def _view(self) -> Json:
        view: Json = facts.view_of(self._session.cluster)["partitions"]["orders-0"]
        return view

    def act(self, value: Any) -> tuple[list[str], list[str]]:
        """Do actions, as a schedule writes them."""
        settings = write_settings(self._session.schedule.settings)
        actions = read_schedule(f"{VERSION}~{settings}~{value}").actions
        return [self._session.do(action) for action in actions], []

    def produce(self, value: Any) -> tuple[list[str], list[str]]:
        """Send one batch for each value."""
        wanted = value if isinstance(value, dict) else {"values": value}
        acks = {"0": 0, "1": 1}.get(str(wanted.get("acks", "all")), 2)
        said = []
        for name in _list(wanted["values"])[:_MOST_VALUES]:
            via = wanted.get("via", self._view["leader"])
            if via is None:
                raise ActionError("there is no leader to send records to")
            self.name_records(0, [name])
            said.append(self._act("produce", 1, acks, via))
        error = wanted.get("error")
        wrong = [one for one in _list(wanted["values"]) if error and self._outcome(one) != error]
        return said, [f"{one}: expected {error}, found {self._outcome(one)}" for one in wrong]

    def hold_fetch(self, value: Any) -> tuple[list[str], list[str]]:
        """Hold the fetches of followers, or release them."""
        wanted = value if isinstance(value, dict) else {"brokers": value}
        kind = "release_fetch" if wanted.get("release") else "hold_fetch"
        held = self._session.cluster.held
        brokers = [one for one in _list(wanted["brokers"]) if (one in held) == (kind == "release_fetch")]
        return self._each(kind, brokers), []  # all partitions: no scenario here has two that a follower fetches at once

    def step_fetch(self, value: Any) -> tuple[list[str], list[str]]:
        """Do one round of a held follower."""
        wanted = value if isinstance(value, dict) else {"broker": value}
        kind = "send_fetch" if wanted.get("until") == "request" else "step_fetch"
        return [self._act(kind, wanted["broker"])], []

    def kill(self, value: Any) -> tuple[list[str], list[str]]:
        """Kill brokers; if the scenario then drops unsynced data, the machine loses power."""
        coming = self._steps[self.place + 1 : self.place + 6]
        drops = {one for step in coming for one in _list(step.get("drop_unsynced", []))}
        return [self._act("power_loss" if one in drops else "kill", one) for one in _list(value)], []

    def start(self, value: Any) -> tuple[list[str], list[str]]:
        """Start brokers, perhaps with their fetches held."""
        wanted = value if isinstance(value, dict) else {"brokers": value}
        said = []
        for one in _list(wanted["brokers"]):
            if "held" in wanted:
                said.append(self._act("hold_fetch", one))
            said.append(self._act("start", one))
        return said, []

    def isolate(self, value: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Partition links of a broker."""
        broker, other, direction = value["broker"], value["from"], value.get("direction", "both")
        if other == "zookeeper":
            return [self._act("part_zookeeper", broker)], []
        cluster = self._session.cluster
        named = {"brokers": [*cluster.world.brokers], "controller": [cluster.world.elected]}
        others = [one for one in _list(named.get(other, other) if isinstance(other, str) else other) if one != broker]
        said = []
        for one in others:
            said += [self._act("cut_link", broker, one)] if direction != "in" else []
            said += [self._act("cut_link", one, broker)] if direction != "out" else []
        return said, []

    def verify(self, value: Any) -> tuple[list[str], list[str]]:
        """Compare the number of lost records with what the scenario finds."""
        found = (value or {}).get("found", value) or {}
        books = facts.books_of(self._session.cluster)
        lost = [one["value"] for one in books if one["lost"] or one["missing"]]
        wanted = found.get("lost", 0) + found.get("lost-tail", 0)
        said = f"The accountant finds {len(lost)} lost" + (
            f": {', '.join(self._named(one) for one in lost)}" if lost else ""
        )
        return [said], [] if len(lost) == wanted else [f"expected {wanted} lost records, found {len(lost)}"]

    def _named(self, value: str) -> str:
        return value

    def expect(self, value: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Compare the cluster with what the scenario expects."""
        wrong = [words for key, wanted in value.items() if (words := self._differs(key, wanted))]
        return ([] if wrong else ["As expected."]), wrong

    def _differs(self, key: str, wanted: Any) -> str:
        actual = self._actual(key, wanted)
        return "" if actual == _plain(key, wanted) else f"{key}: expected {wanted}, found {actual}"

    def _actual(self, key: str, wanted: Any, at: str = "orders-0") -> Any:
        view, cluster = facts.view_of(self._session.cluster)["partitions"][at], self._session.cluster
        state = next(one.state_now for one in cluster.world.partitions if str(one.at) == at)
        replicas = view["replicas"]
        match key:
            case "leader":
                leader = state.leader
                return "none" if leader == NO_LEADER else leader
            case "epoch":
                return state.leader_epoch
            case "isr":
                return sorted(view["isr"])
            case "lso":
                stored = next(one.brokers for one in cluster.world.partitions if str(one.at) == at)
                partitions = {one: stored[int(one)].partition for one in wanted}
                return {one: None if found is None else found.last_stable_offset for one, found in partitions.items()}
            case "leo" | "hw":
                return {one: replicas[str(one)][key] for one in wanted}
            case "remote_leo":
                knows = replicas[str(view["leader"])]["knows"]
                return {one: knows.get(str(one)) for one in wanted}
            case "epochs":
                return {one: [entry[:2] for entry in replicas[str(one)]["epochs"]] for one in wanted}
            case "log":
                logs = facts.logs_of(cluster)
                return {
                    one: [
                        f"{self._named(r['value'])}@{r['epoch']}" if "@" in str(names[:1]) else self._named(r["value"])
                        for r in without_markers(logs[str(one)])
                    ]
                    for one, names in wanted.items()
                }
            case "answers":
                return {name: self._outcome(name) for name in wanted}
            case "readable":
                high_watermark = replicas[str(view["leader"])]["hw"]
                log = facts.logs_of(cluster)[str(view["leader"])]
                return [self._named(one["value"]) for one in log[:high_watermark]]
        return self._diverged()

    def _outcome(self, name: str) -> str:
        number = self._numbers[str(name)]
        book = next(one for one in facts.books_of(self._session.cluster) if one["number"] == number)
        return "ack" if book["outcome"] == "ok" else str(book["error"] or "none")

    def _diverged(self) -> bool:
        """Whether two living replicas hold different records at an offset below both high watermarks."""
        replicas, logs = self._view["replicas"], facts.logs_of(self._session.cluster)
        living = [one for one, replica in replicas.items() if not replica["old"]]
        common = min((replicas[one]["hw"] for one in living), default=0)
        named = [[(r["value"], r["epoch"]) for r in logs[one][:common]] for one in living]
        return any(one != named[0] for one in named)

    # Waiting

    def wait_for(self, holds: Callable[[], bool], words: str) -> tuple[list[str], list[str]]:
        """Let time go on until something holds: sessions end first, then followers get their back-offs and lag."""
        said: list[str] = []
        for _ in range(6):
            if holds():
                return said or ["It is so already."], []
            left = [
                left
                for broker in self._session.cluster.world.brokers
                if (left := facts.session_left_ms(self._session.cluster, broker)) is not None
            ]
            said.append(self._act("wait", max(1, min(left)) if left else 5_000))
        return said, [f"{words} does not come"] if not holds() else []

    def wait_leader(self, value: Any) -> tuple[list[str], list[str]]:
        """Let time go on until a broker leads."""
        wanted = value["leader"] if isinstance(value, dict) else value
        at = _partition(value)
        return self.wait_for(lambda: self._actual("leader", None, at) == wanted, f"leader {wanted}")

    def wait_isr(self, value: Any) -> tuple[list[str], list[str]]:
        """Let time go on until the ISR is this one."""
        wanted = sorted(_list(value["isr"] if isinstance(value, dict) else value))
        at = _partition(value)
        return self.wait_for(lambda: self._actual("isr", None, at) == wanted, f"ISR {wanted}")

    def wait_epoch(self, value: Any) -> tuple[list[str], list[str]]:
        """Let time go on until brokers know a leader epoch."""
        wanted = value if isinstance(value, dict) else {"epoch": value}
        epoch, brokers = wanted["epoch"], [str(one) for one in _list(wanted.get("brokers", []))]
        return self.wait_for(
            lambda: (
                self._actual("epoch", None) == epoch
                and all(self._view["replicas"][one]["epoch"] == epoch for one in brokers)
            ),
            f"epoch {epoch}",
        )

    def wait_offsets(self, key: str, value: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Let time go on until replicas have these offsets."""
        wanted: Mapping[Any, int] = value.get(key, value)
        at = _partition(value)
        return self.wait_for(lambda: self._actual(key, wanted, at) == _plain(key, wanted), f"{key} {dict(wanted)}")

    def wait_response(self, value: Any) -> tuple[list[str], list[str]]:
        """Let time go on until clients have their responses."""
        wanted = value if isinstance(value, dict) else {"values": value}
        outcome = wanted.get("error", "ack")
        names = _list(wanted["values"])
        return self.wait_for(lambda: all(self._outcome(one) == outcome for one in names), f"the response {outcome}")

    def wait_event(self, value: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Let time go on until a broker notes an event."""
        wanted = {"kind": value["kind"], "source": f"broker-{value.get('broker')}", **value.get("fields", {})}
        if "broker" not in value:
            del wanted["source"]
        events = self._session.cluster.events
        return self.wait_for(
            lambda: any(all(one.get(key) == item for key, item in wanted.items()) for one in events),
            f"the event {value['kind']}",
        )

    def wait_controller(self, value: Any) -> tuple[list[str], list[str]]:
        """Let time go on until there is a controller of this epoch."""
        wanted = value if isinstance(value, dict) else {"epoch": value}
        return self.wait_for(
            lambda: facts.view_of(self._session.cluster)["controllerEpoch"] == wanted["epoch"],
            f"controller epoch {wanted['epoch']}",
        )

    def checkpoint(self, value: Any) -> tuple[list[str], list[str]]:
        """Write the checkpoints that a scenario waits for."""
        del value
        world = self._session.cluster.world
        return [self._act("checkpoint", one) for one in world.brokers if world.brokers[one].is_running], []


def _partition(value: Any) -> str:
    """Return the partition that a step names."""
    return str(value.get("partition", "orders-0")) if isinstance(value, Mapping) else "orders-0"


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _plain(key: str, wanted: Any) -> Any:
    """Return what a scenario expects in the form of ``Story._actual``."""
    if key == "isr":
        return sorted(_list(wanted))
    if key == "epochs":
        return {one: [list(entry) for entry in entries] for one, entries in wanted.items()}
    if isinstance(wanted, Mapping):
        return dict(wanted)
    return list(wanted) if isinstance(wanted, Sequence) and not isinstance(wanted, str) else wanted


def _plainly(kind: str) -> Callable[[Story, Any], tuple[list[str], list[str]]]:
    return lambda story, value: (story._each(kind, value), [])  # noqa: SLF001 - the class's own table of steps


_STEPS: dict[str, Callable[[Story, Any], tuple[list[str], list[str]]]] = {
    **{
        name: getattr(Story, name)
        for name in ("act", "produce", "hold_fetch", "step_fetch", "kill", "start", "isolate")
    },
    **{name: getattr(Story, name) for name in ("verify", "expect", "wait_leader", "wait_isr", "wait_epoch")},
    **{name: getattr(Story, name) for name in ("wait_event", "wait_controller")},
    **{name: _plainly(name) for name in ("stop", "pause", "resume")},
    "sync": _plainly("flush"),
    "wait_answer": Story.wait_response,
    "wait_checkpoint": Story.checkpoint,
    "wait_hw": lambda story, value: story.wait_offsets("hw", value),
    "wait_lso": lambda story, value: story.wait_offsets("lso", value),
    "wait_leo": lambda story, value: story.wait_offsets("leo", value),
    "heal": lambda story, value: ([story._act("heal_links")], []),  # noqa: SLF001, ARG005 - the class's own table
    "elect": lambda story, value: ([story._act("elect")], []),  # noqa: SLF001, ARG005 - the class's own table
    "drop_unsynced": lambda story, value: (["It was lost with the power."], []),  # noqa: ARG005 - see kill
    "mark": lambda story, value: ([], []),  # noqa: ARG005 - the page has a table of its own
    **client_steps(),
    "table": lambda story, value: ([], []),  # noqa: ARG005 - the page has a table of its own
}
