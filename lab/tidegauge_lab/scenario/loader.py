"""From the text of a scenario file to a ``Scenario``; a problem is reported with the file and the line.

Rules:
- Everything is checked before a process is started: words of the vocabulary, kinds of values, settings, and that each
  broker, topic, mark and value that a step names is there.
- All problems of a file are reported at once, by line; only text that is not YAML ends the reading at its first fault.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from collections.abc import Mapping as MappingOf
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.near_names import did_you_mean
from tidegauge.partition import TopicPartition, topic_name_problem
from tidegauge_client.cluster_file import KRAFT_MODE, MODES, ZOOKEEPER_MODE
from tidegauge_lab.accountant.books import Kind
from tidegauge_lab.local.broker_settings import DEFAULT_PROFILE, check_settings
from tidegauge_lab.local.roles import METADATA, Role, RoleKind
from tidegauge_lab.local.wanted import DEFAULT_CONTROLLERS
from tidegauge_lab.scenario import broker_steps, fault_steps, readers, state_steps
from tidegauge_lab.scenario.faults import problem_of
from tidegauge_lab.scenario.model import LIMIT_SECONDS, SETTINGS, Scenario, Topic
from tidegauge_lab.scenario.quorum_steps import NameVoters
from tidegauge_lab.scenario.readers import NO_LEADER, Reader
from tidegauge_lab.scenario.step_base import PartitionStep, Step
from tidegauge_lab.scenario.steps import STEPS
from tidegauge_lab.scenario.transaction_steps import Send
from tidegauge_lab.scenario.yaml_reader import MalformedYaml, Mapping, Node, Sequence, read_yaml

SUFFIX = ".yaml"
MAX_BROKERS = 9
Read = TypeVar("Read")
Other = TypeVar("Other")
_NOTHING: MappingOf[str, str] = MappingProxyType({})
_IN_KRAFT = "kraft"
"""Beside a step's verb: what differs in KRaft mode."""


class ScenarioError(TidegaugeError):
    """A scenario file is wrong; ``message`` holds a line for each problem."""

    def __init__(self, source: str, problems: Iterable[MalformedYaml]) -> None:
        reported = sorted({(problem.line, problem.message) for problem in problems})
        super().__init__(
            ErrorCode.INVALID_REQUEST, "\n".join(f"{source}:{line}: {message}" for line, message in reported)
        )

    def __str__(self) -> str:
        """Problems only: each line begins with file and line, as editors read them."""
        return self.message


def shipped_names() -> list[str]:
    """Scenarios that come with Tidegauge, by name."""
    directory = resources.files("tidegauge_lab.scenario") / "files"
    return sorted(one.name.removesuffix(SUFFIX) for one in directory.iterdir() if one.name.endswith(SUFFIX))


def text_of(name_or_file: str) -> tuple[str, str]:
    """Return the text of a shipped scenario or file, and its name in errors.

    A name without a directory and without ``.yaml`` names a shipped scenario, unless there is such a file only.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is neither, or the file can't be read.
    """
    names = shipped_names()
    path = Path(name_or_file)
    if name_or_file in names:
        file = resources.files("tidegauge_lab.scenario") / "files" / (name_or_file + SUFFIX)
        return file.read_text(encoding="utf-8"), name_or_file + SUFFIX
    if not path.is_file():
        hint = did_you_mean(name_or_file, names, "; `tidegauge scenario list` shows those that are shipped")
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"there is no scenario and no file of the name {name_or_file}{hint}"
        )
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except (OSError, UnicodeDecodeError) as problem:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{path} can't be read: {problem}") from None


def load(name_or_file: str) -> Scenario:
    """Return a shipped scenario, or one from a file.

    Raises:
        TidegaugeError: it is not there; ``ScenarioError``: it is wrong.
    """
    text, source = text_of(name_or_file)
    return parse(text, source)


def parse(text: str, source: str) -> Scenario:
    """Return the scenario in a text.

    Args:
        text: of the file.
        source: how the file is called in errors.

    Raises:
        ScenarioError: with all that is wrong.
    """
    loader = _Loader()
    try:
        scenario = loader.scenario(read_yaml(text), default_name=Path(source).name.removesuffix(SUFFIX))
    except MalformedYaml as problem:
        raise ScenarioError(source, [*loader.problems, problem]) from None
    if scenario is not None:
        _Context(scenario, loader.problems).check(with_names=not loader.problems)
    if scenario is None or loader.problems:
        raise ScenarioError(source, loader.problems)
    return scenario


def parse_steps(node: Node, source: str) -> tuple[Step, ...]:
    """Return the steps in a list, each checked by itself.

    Raises:
        ScenarioError: with all that is wrong.
    """
    loader = _Loader()
    try:
        found = loader.steps_in(node)
    except MalformedYaml as problem:
        raise ScenarioError(source, [*loader.problems, problem]) from None
    loader.refuse_kraft("stand in a scenario file, which can be played in both modes")
    if loader.problems:
        raise ScenarioError(source, loader.problems)
    return found


def in_kraft(name_or_file: str) -> Scenario:
    """Return a scenario as it is played in KRaft mode.

    Raises:
        TidegaugeError: it is not there, or shows something of ZooKeeper mode alone; ``ScenarioError``: it is wrong.
    """
    scenario = load(name_or_file).in_kraft()
    check_context(scenario, text_of(name_or_file)[1])
    return scenario


def check_context(scenario: Scenario, source: str) -> None:
    """Refuse steps about what the scenario does not have.

    Raises:
        ScenarioError: with all that is wrong.
    """
    problems: list[MalformedYaml] = []
    _Context(scenario, problems).check(with_names=True)
    if problems:
        raise ScenarioError(source, problems)


class _Fields:
    """Takes the entries of one mapping, each once; an entry that is never taken is unknown."""

    def __init__(self, node: Mapping, problems: list[MalformedYaml], what: str) -> None:
        self.node = node
        self._problems = problems
        self._what = what
        self._known: list[str] = []

    def take(self, key: str, read: Reader[Read], default: Other) -> Read | Other:
        """Read an entry that may be left out."""
        self._known.append(key)
        if key not in self.node.entries:
            return default
        return tried(self._problems, default, read, self.node.entries[key])

    def need(self, key: str, read: Reader[Read], stand_in: Other) -> Read | Other:
        """Read an entry that must be there; ``stand_in`` lets the reading continue if it is missing."""
        if key not in self.node.entries:
            self._problems.append(MalformedYaml(self.node.line, f"{self._what} needs {key!r}"))
        return self.take(key, read, stand_in)

    def end(self) -> None:
        """Report unknown keys."""
        for key, line in self.node.key_lines.items():
            if key not in self._known:
                self._problems.append(MalformedYaml(line, unknown(key, self._known, f"in {self._what}")))


def tried(problems: list[MalformedYaml], stand_in: Other, read: Reader[Read], node: Node) -> Read | Other:
    """Read a node; return the stand-in and note the problem if that fails."""
    try:
        return read(node)
    except MalformedYaml as problem:
        problems.append(problem)
        return stand_in


def unknown(word: str, known: Collection[str], where: str) -> str:
    """Return the sentence for a word that does not exist."""
    there_is = f"; there is {', '.join(known)}"
    return f"there is no {word!r} {where}{did_you_mean(word, known, there_is)}"


class _Cluster(NamedTuple):
    """The cluster of a file; ``Scenario`` has the same fields."""

    brokers: int
    controller: int
    settings: MappingOf[str, str]
    mode: str
    controllers: int
    features: MappingOf[str, int]
    zookeeper_only: str


_NO_CLUSTER = _Cluster(0, 0, _NOTHING, ZOOKEEPER_MODE, 0, {}, "")


class _Loader:
    """Reads the tree; problems are collected."""

    def __init__(self) -> None:
        self.problems: list[MalformedYaml] = []
        self._in_kraft: dict[int, Step] = {}
        """The steps that are other ones in KRaft mode, by their lines."""

    def scenario(self, node: Node, default_name: str) -> Scenario | None:
        if not isinstance(node, Mapping):
            raise MalformedYaml(node.line, "a scenario is a mapping: title, cluster, topics, steps")
        fields = _Fields(node, self.problems, "a scenario")
        name = fields.take("name", readers.text, default_name)
        title = fields.need("title", readers.text, "")
        teaches = fields.take("teaches", readers.text, "")
        rule = fields.take("rule", readers.text, "")
        limit = fields.take("limit_seconds", readers.seconds, LIMIT_SECONDS)
        cluster = fields.need("cluster", self._cluster, _NO_CLUSTER)
        topics = fields.need("topics", self._topics, ())
        found = fields.need("steps", self.steps_in, ())
        fields.end()
        if cluster.mode == KRAFT_MODE or cluster.zookeeper_only:
            self.refuse_kraft("are for a scenario that is played in both modes, and this one has one")
        if cluster.brokers == 0 or not topics:
            return None
        return Scenario(
            name=name,
            title=title.strip(),
            teaches=teaches.strip(),
            rule=rule.strip(),
            brokers=cluster.brokers,
            controller=cluster.controller,
            settings=cluster.settings,
            topics=topics,
            steps=found,
            limit_seconds=limit,
            mode=cluster.mode,
            controllers=cluster.controllers,
            features=cluster.features,
            steps_in_kraft=tuple(self._in_kraft.get(step.line, step) for step in found),
            zookeeper_only=cluster.zookeeper_only,
        )

    def refuse_kraft(self, why: str) -> None:
        """Refuse the steps that differ in KRaft mode."""
        self.problems += [MalformedYaml(line, f"values under {_IN_KRAFT!r} {why}") for line in self._in_kraft]

    def _cluster(self, node: Node) -> _Cluster:
        if not isinstance(node, Mapping):
            raise MalformedYaml(node.line, "cluster is a mapping: brokers, controller, settings, mode")
        fields = _Fields(node, self.problems, "cluster")
        brokers = fields.need("brokers", readers.positive, 0)
        controller = fields.take("controller", readers.integer, 0)
        mode = fields.take("mode", readers.choice(*MODES), ZOOKEEPER_MODE)
        settings = fields.take("settings", lambda found: self._settings(found, mode), _NOTHING)
        controllers = fields.take("controllers", readers.positive, 0)
        features = fields.take("features", readers.by_name(readers.integer), {})
        zookeeper_only = fields.take("zookeeper_only", readers.text, "")
        fields.end()
        if mode == ZOOKEEPER_MODE and (controllers or features):
            self.problems.append(MalformedYaml(node.line, "controllers and features belong to mode: kraft"))
        if mode == KRAFT_MODE:
            controllers = controllers or DEFAULT_CONTROLLERS
        if zookeeper_only and mode == KRAFT_MODE:
            self.problems.append(MalformedYaml(node.line, "zookeeper_only is said of a story without KRaft mode"))
        if brokers > MAX_BROKERS:
            raise MalformedYaml(node.line, f"a scenario has at most {MAX_BROKERS} brokers, not {brokers}")
        if controller >= brokers > 0:
            self.problems.append(MalformedYaml(node.key_lines.get("controller", node.line), no_broker(controller)))
        return _Cluster(brokers, controller, settings, mode, controllers, features, zookeeper_only.strip())

    def _settings(self, node: Node, mode: str) -> dict[str, str]:
        found = dict(readers.by_name(readers.setting)(node))
        assert isinstance(node, Mapping), "by_name has looked"
        for name, value in found.items():
            try:
                check_settings({**SETTINGS, name: value}, DEFAULT_PROFILE, mode)
            except TidegaugeError as problem:
                self.problems.append(MalformedYaml(node.key_lines[name], problem.message))
        if not self.problems:
            try:
                check_settings({**SETTINGS, **found}, DEFAULT_PROFILE, mode)
            except TidegaugeError as problem:
                self.problems.append(MalformedYaml(node.line, problem.message))
        return found

    def _topics(self, node: Node) -> tuple[Topic, ...]:
        if not isinstance(node, Sequence) or not node.items:
            raise MalformedYaml(node.line, "topics is a list of at least one topic: name, assignment, config")
        found = [topic for one in node.items if (topic := tried(self.problems, None, self._topic, one)) is not None]
        names = [topic.name for topic in found]
        for place, topic in enumerate(found):
            if topic.name in names[:place]:
                self.problems.append(MalformedYaml(topic.line, f"topic {topic.name} occurs a second time"))
        return tuple(found)

    def _topic(self, node: Node) -> Topic | None:
        if not isinstance(node, Mapping):
            raise MalformedYaml(node.line, "a topic is a mapping: name, assignment, config")
        fields = _Fields(node, self.problems, "a topic")
        name = fields.need("name", readers.text, "")
        assignment = fields.need("assignment", readers.assignment, ())
        config = fields.take("config", readers.by_name(readers.setting), _NOTHING)
        fields.end()
        problem = topic_name_problem(name) if name else ""
        if problem:
            raise MalformedYaml(node.key_lines["name"], problem)
        return Topic(name, assignment, config, node.line) if name and assignment else None

    def steps_in(self, node: Node) -> tuple[Step, ...]:
        if not isinstance(node, Sequence) or not node.items:
            raise MalformedYaml(node.line, "steps is a list of at least one step")
        found = (tried(self.problems, None, self._step, one) for one in node.items)
        return tuple(step for step in found if step is not None)

    def _step(self, node: Node) -> Step | None:
        if not isinstance(node, Mapping):
            raise MalformedYaml(node.line, f"a step is a verb with its arguments, not {readers.shown(node)}")
        verbs = [key for key in node.entries if key not in {"note", _IN_KRAFT}]
        if len(verbs) != 1:
            raise MalformedYaml(
                node.line, f"a step has one verb, not {len(verbs)}" + (": " + ", ".join(verbs) if verbs else "")
            )
        [verb] = verbs
        kind = STEPS.get(verb)
        if kind is None:
            raise MalformedYaml(node.key_lines[verb], unknown(verb, STEPS, "among the steps"))
        note = tried(self.problems, "", readers.text, node.entries["note"]) if "note" in node.entries else ""
        line = node.key_lines[verb]
        step = self._made(kind, node.entries[verb], line, note.strip())
        if step is not None and _IN_KRAFT in node.entries:
            changed = _changed(kind, node.entries[verb], node.entries[_IN_KRAFT])
            other = self._made(kind, changed, line, note.strip())
            if other is not None:
                self._in_kraft[line] = other
        return step

    def _made(self, kind: type[Step], node: Node, line: int, note: str) -> Step | None:
        """Return a step with these arguments; None if invalid, with noted problems."""
        before = len(self.problems)
        values = self._arguments(kind, node, line)
        if len(self.problems) > before:
            return None
        return kind.made(line, note, values)

    def _arguments(self, kind: type[Step], node: Node, line: int) -> dict[str, Any]:
        arguments = kind.arguments()
        if not _is_named(kind, node) or not isinstance(node, Mapping):
            if not kind.main:
                raise MalformedYaml(node.line, f"{kind.verb} needs its arguments by name: {', '.join(arguments)}")
            return {kind.main: arguments[kind.main].read(node)}
        fields = _Fields(dataclasses.replace(node, line=line), self.problems, kind.verb)
        values = {}
        for name, argument in arguments.items():
            if argument.is_required:
                values[argument.attribute] = fields.need(name, argument.read, None)
            elif name in node.entries or argument.default is None:
                values[argument.attribute] = fields.take(name, argument.read, argument.default)
            else:
                fields.take(name, argument.read, None)
        fields.end()
        return values


def _is_named(kind: type[Step], node: Node) -> bool:
    """Return whether a step's arguments are named; else the node is its main one."""
    arguments = kind.arguments()
    return isinstance(node, Mapping) and (not kind.main or any(key in arguments for key in node.entries))


def _changed(kind: type[Step], node: Node, in_kraft: Node) -> Node:
    """Return a step's arguments, replaced by KRaft mode's where given."""
    if not _is_named(kind, in_kraft) or not isinstance(in_kraft, Mapping):
        return in_kraft
    if not isinstance(node, Mapping) or not _is_named(kind, node):
        node = dataclasses.replace(in_kraft, entries={kind.main: node}, key_lines={kind.main: node.line})
    return dataclasses.replace(
        node, entries={**node.entries, **in_kraft.entries}, key_lines={**node.key_lines, **in_kraft.key_lines}
    )


def no_broker(broker_id: int) -> str:
    """Return the sentence for a broker that the scenario does not have."""
    return f"there is no broker {broker_id} in this scenario"


class _Context:
    """Whether what the steps name is there."""

    def __init__(self, scenario: Scenario, problems: list[MalformedYaml]) -> None:
        self._scenario = scenario
        self._problems = problems
        self._marks: set[str] = set()
        self._produced: set[str] = set()
        self._voters: set[str] = set()
        self._counts = {topic.name: len(topic.assignment) for topic in scenario.topics}

    def check(self, *, with_names: bool) -> None:
        """Look at all steps; at marks and values only if no step was left out, which might have made them."""
        for topic in self._scenario.topics:
            self._replicas(topic.line, topic.assignment)
        for step in self._scenario.steps:
            for broker_id in brokers_named(step):
                self._broker(step.line, broker_id)
            if isinstance(step, broker_steps.CreateTopic):
                self._replicas(step.line, step.assignment)
                self._counts[step.name] = len(step.assignment)
            if isinstance(step, fault_steps.FaultStep) and (problem := problem_of(step, self._scenario.mode)):
                self._tell(step.line, problem)
            for partition in step.held if isinstance(step, broker_steps.Start) else ():
                self._partition(step.line, partition)
            for role in _roles(step):
                if role.partition is not None:
                    self._partition(step.line, role.partition)
                if role.kind is RoleKind.VOTER and role.name not in self._voters:
                    self._tell(step.line, f"no step before this one has named a voter {role.name!r}")
            if isinstance(step, NameVoters):
                self._name_voters(step)
            if isinstance(step, PartitionStep):
                self._partition(step.line, self._scenario.partition_of(step))
            if with_names:
                self._names(step)

    def _names(self, step: Step) -> None:
        if isinstance(step, state_steps.Verify):
            self._verify(step)
        elif isinstance(step, state_steps.Mark):
            self._marks.add(step.name)
        elif isinstance(step, state_steps.Table) and step.since not in self._marks:
            self._tell(step.line, f"nothing was marked {step.since!r} before this step")
        elif isinstance(step, broker_steps.Produce | Send):
            for value in step.values:
                if value in self._produced:
                    self._tell(step.line, f"{value!r} was produced before; values name records, so each is used once")
                self._produced.add(value)
        elif isinstance(step, broker_steps.WaitResponse):
            self._values(step.line, step.values)
        elif isinstance(step, state_steps.Expect) and step.answers is not None:
            self._values(step.line, step.answers)

    def _name_voters(self, step: NameVoters) -> None:
        if len(set(step.names)) != len(step.names):
            self._tell(step.line, "each voter needs a name of its own")
        self._voters.update(step.names)

    def _verify(self, step: state_steps.Verify) -> None:
        if step.topic is not None and step.topic not in self._counts:
            self._tell(step.line, f"there is no topic {step.topic} in this scenario")
        kinds = [kind.value for kind in Kind]
        for name in step.found:
            if name not in kinds:
                self._tell(step.line, unknown(name, kinds, "among the accountant's findings"))

    def _values(self, line: int, values: Iterable[str]) -> None:
        for value in values:
            if value not in self._produced:
                self._tell(line, f"{value!r} was not produced before this step")

    def _broker(self, line: int, broker_id: int) -> None:
        if broker_id != NO_LEADER and broker_id not in self._scenario.nodes:
            self._tell(line, no_broker(broker_id))

    def _replicas(self, line: int, assignment: Iterable[Iterable[int]]) -> None:
        for broker_id in sorted({broker_id for replicas in assignment for broker_id in replicas}):
            if broker_id >= self._scenario.brokers:
                self._tell(line, no_broker(broker_id))

    def _partition(self, line: int, partition: TopicPartition) -> None:
        if partition == METADATA and self._scenario.mode == KRAFT_MODE:
            return
        if partition.partition >= self._counts.get(partition.topic, 0):
            self._tell(line, f"there is no partition {partition} in this scenario")

    def _tell(self, line: int, message: str) -> None:
        self._problems.append(MalformedYaml(line, message))


_BROKER_ARGUMENTS = ("broker", "brokers", "via", "leader", "followers", "isr")
_BY_BROKER_ARGUMENTS = ("hw", "lso", "leo", "remote_leo", "log", "epochs")


def _roles(step: Step) -> list[Role]:
    """Return the roles by which a step names brokers."""
    found = getattr(step, "brokers", None) or (getattr(step, "broker", None), getattr(step, "leader", None))
    return [one for one in found if isinstance(one, Role)]


def brokers_named(step: Step) -> list[int]:
    """Return all broker ids in a step."""
    found = list(step.fault.brokers) if isinstance(step, fault_steps.FaultStep) else []
    for name in _BROKER_ARGUMENTS:
        value = getattr(step, name, None)
        if isinstance(value, int):
            found.append(value)
        elif isinstance(value, tuple):
            found.extend(one for one in value if isinstance(one, int))
    for name in _BY_BROKER_ARGUMENTS:
        # Epochs of a group's members are by their names.
        found.extend(one for one in getattr(step, name, None) or () if isinstance(one, int))
    return found
