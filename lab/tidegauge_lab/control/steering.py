"""``Control``: what each endpoint does to the cluster in a directory.

Rules:
    1. A method returns when its effect is there, and what it returns is true at that time. Nothing is remembered of the
       cluster's state: each request asks the brokers.
    2. ``reset`` keeps the topics and groups that existed when the control was started.
    3. Requests that stop or start brokers (reset, snapshot, restore, other addresses) run one after the other.
    4. A control that was killed has noted it in the directory: the next one resets to that. One that ends in order, and
       ``down``, forget it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.requests import read_request
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.cli.explain_share import gather_share, share_view
from tidegauge_client.cli.quorum import as_json
from tidegauge_client.cli.quorum_wait import ANY_LEADER, has_committed, has_leader, last_look
from tidegauge_client.cli.wait import POLL_SECONDS, Looker
from tidegauge_client.cluster_file import BootstrapServers, ClusterFile, load_cluster_file
from tidegauge_client.event_conditions import EventCondition, wait_for_event
from tidegauge_client.quorum_admin import QuorumAdmin
from tidegauge_lab.control import endpoints, played, views
from tidegauge_lab.control.advertised import advertise
from tidegauge_lab.control.conditions import (
    cluster_conditions,
    event_condition,
    group_condition,
    kind_in,
    transaction_condition,
)
from tidegauge_lab.control.control_request import ControlRequest
from tidegauge_lab.control.journal import Journal
from tidegauge_lab.control.problems import RefusedError, malformed, not_found, not_so
from tidegauge_lab.control.request_journal import RequestJournal
from tidegauge_lab.control.reset import Baseline, forget_baseline, load_baseline, reset, save_baseline
from tidegauge_lab.control.rules import Faults, wires_of
from tidegauge_lab.control.targets import read_target
from tidegauge_lab.control.transactions import start_offsets
from tidegauge_lab.group_conditions import offset_rows_of
from tidegauge_lab.local import containment, layout
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster, Target
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.roles import Role
from tidegauge_lab.observation import Observation, Observer
from tidegauge_lab.performing import perform
from tidegauge_lab.pytest_plugin.conditions import NotSoError, wait_until_group, wait_until_transaction
from tidegauge_lab.timeline.reading import PATIENCE_SECONDS, Timeline

COORDINATOR_TIMEOUT_MS = 10_000
_QUORUM_SECONDS = 2.0
MOST_EVENTS = 5_000
_FITS = {"start": ProcessState.DOWN, "resume": ProcessState.PAUSED}
_LOOK_AGAIN_SECONDS = 0.05


class Control:
    """The steering of one cluster; ``start`` it before the first request.

    Args:
        directory: of the cluster.

    Raises:
        TidegaugeError: there is no cluster in the directory.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory).absolute()
        containment.require_own(self.directory, load_cluster_file(self.directory))
        self._events = Journal()
        self._timeline = Timeline(self.directory / layout.LOGS)
        self._reading = asyncio.Lock()
        self._restarting = asyncio.Lock()
        self._faults = Faults(self.directory)
        self._requests = RequestJournal(self.directory)
        self._owns_baseline = False

    async def start(self) -> None:
        """Note the baseline, unless a control server that was killed, or that still runs, has noted it. Rule 4.

        Raises:
            TidegaugeError: no broker responds.
        """
        if load_baseline(self.directory) is None:
            await self._note_baseline()
            self._owns_baseline = True
        await self._faults.begin()

    async def _note_baseline(self) -> Baseline:
        """Note the present topics and groups as the baseline."""
        async with Admin(self._file.bootstrap_servers) as admin:
            baseline = await Baseline.of(admin)
        save_baseline(self.directory, baseline)
        return baseline

    async def close(self) -> None:
        """Let go of the event logs, and of the baseline."""
        if self._owns_baseline:
            forget_baseline(self.directory)
        self._timeline.close()

    @property
    def _file(self) -> ClusterFile:
        return load_cluster_file(self.directory)

    # Looking

    async def cluster(self, _: ControlRequest) -> dict[str, Any]:
        """Return the cluster now."""
        local = LocalCluster(self.directory)
        status = await asyncio.to_thread(local.status)
        return views.cluster_view(status, await self._readiness(local.file))

    async def quorum(self, _: ControlRequest) -> dict[str, Any]:
        """Return the quorum as its leader has it."""
        try:
            async with QuorumAdmin(self._controllers(), _QUORUM_SECONDS) as admin:
                return as_json(await admin.describe())
        except TidegaugeError as problem:
            raise RefusedError(409, problem.code.name, problem.message) from None

    def _controllers(self) -> BootstrapServers:
        """Return the controllers' addresses.

        Raises:
            RefusedError: 404, the cluster is in ZooKeeper mode.
        """
        file = self._file
        if file.quorum is None:
            raise not_found("the cluster is in ZooKeeper mode: its controller is a broker, and there is no quorum")
        return file.controllers()

    async def topics(self, _: ControlRequest) -> dict[str, Any]:
        """Return the names of all topics."""
        async with Admin(self._file.bootstrap_servers) as admin:
            return {"topics": await admin.list_topics()}

    async def partition(self, request: ControlRequest) -> dict[str, Any]:
        """Return a partition and its replicas."""
        at = TopicPartition(request.path["topic"], request.number("partition"))
        found = (await self._partitions([at]))[at]
        if found is None:
            raise self._no_partition(at)
        return found

    async def groups(self, _: ControlRequest) -> dict[str, Any]:
        """Return all groups."""
        async with Admin(self._file.bootstrap_servers) as admin:
            listed, missing = await admin.list_groups_there(timeout_ms=COORDINATOR_TIMEOUT_MS, missing_ms=0)
        groups = [{"id": one.group_id, "state": one.state, "coordinator": one.coordinator} for one in listed]
        return {"groups": groups, "lacks": missing}

    async def group(self, request: ControlRequest) -> dict[str, Any]:
        """Return a group as its coordinator has it."""
        name = request.path["group"]
        found = await self._group(name)
        if found is None:
            raise not_found(f"there is no group {name}", ErrorCode.GROUP_ID_NOT_FOUND.name)
        return found

    async def share(self, request: ControlRequest) -> dict[str, Any]:
        """Return a share partition as its leader and its share coordinator have it."""
        at = TopicPartition(request.path["topic"], request.number("partition"))
        async with Admin(self._file.bootstrap_servers) as admin:
            try:
                return share_view(await gather_share(admin, request.path["group"], at, self._file.bootstrap_servers))
            except TidegaugeError as problem:
                if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                raise self._no_partition(at) from None

    async def transactions(self, _: ControlRequest) -> dict[str, Any]:
        """Return all transactional ids."""
        async with Admin(self._file.bootstrap_servers) as admin:
            listed, missing = await admin.list_transactions_there(timeout_ms=COORDINATOR_TIMEOUT_MS, missing_ms=0)
        return {
            "lacks": missing,
            "transactions": [
                {
                    "id": one.transactional_id,
                    "state": one.state,
                    "coordinator": one.coordinator,
                    "producer_id": one.producer_id,
                }
                for one in listed
            ],
        }

    async def transaction(self, request: ControlRequest) -> dict[str, Any]:
        """Return a transactional id as its coordinator has it."""
        name = request.path["transaction"]
        try:
            return await self._transaction(name)
        except TidegaugeError as problem:
            if problem.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            raise not_found(f"there is no transactional id {name}", problem.code.name) from None

    async def _transaction(self, name: str) -> dict[str, Any]:
        async with Admin(self._file.bootstrap_servers) as admin:
            found = await admin.describe_transaction(name, timeout_ms=COORDINATOR_TIMEOUT_MS)
            return views.transaction_view(found, await start_offsets(admin, found))

    async def events(self, request: ControlRequest) -> dict[str, Any]:
        """Return what happened after a numbered event, up to this request."""
        async with self._reading:
            await self._read_events()
            if self._timeline.has_unsettled:  # their order is known when the brokers have written what came meanwhile
                await asyncio.sleep(PATIENCE_SECONDS)
                await self._read_events()
        limit = min(request.query.get("limit", MOST_EVENTS), MOST_EVENTS)
        return self._events.after(request.query.get("after", 0), limit)

    async def _read_events(self) -> None:
        self._events.add(await asyncio.to_thread(lambda: list(self._timeline.settled(time.monotonic()))))

    async def openapi(self, _: ControlRequest) -> dict[str, Any]:
        """Return the interface."""
        return endpoints.document()

    # Doing

    async def broker(self, request: ControlRequest) -> dict[str, Any]:
        """Do a declared action to a target, or put a declared fault in force there."""
        verb, wanted = request.path["verb"], read_target(request.path["target"])
        local = LocalCluster(self.directory)
        if isinstance(wanted, int) and wanted not in local.processes():
            raise not_found(f"there is no broker {wanted}", ErrorCode.BROKER_NOT_AVAILABLE.name)
        # Checked before the role is resolved: a wrong word is reported whether a broker has the role or not.
        read_request(verb, 0 if isinstance(wanted, Role) else wanted, request.body)
        target = await asyncio.to_thread(_resolve, local, verb, wanted)
        done = await perform(local, read_request(verb, target, request.body))
        return {
            "broker": None if target == ZOOKEEPER else target,
            "changed": done.changed,
            "text": done.text,
            "state": local.state_of(target).value,
            "pid": local.pid_of(target),
        }

    async def steps(self, request: ControlRequest) -> dict[str, Any]:
        """Play steps of a scenario file."""
        local = LocalCluster(self.directory)
        assignments = await self._assignments()
        limit_seconds = request.body.get("timeout_ms", 120_000) / 1000
        scenario = played.read_steps(request.body["steps"], assignments, local.file, limit_seconds)
        return await asyncio.to_thread(played.play, scenario, assignments, local)

    async def wait(self, request: ControlRequest) -> dict[str, Any]:
        """Wait until a condition holds."""
        began = time.monotonic()
        kind = kind_in(request.body)
        wanted = request.body[kind]
        if kind == "group":
            state = await self._wait_group(wanted, request.timeout_seconds)
        elif kind == "transaction":
            state = await self._wait_transaction(wanted, request.timeout_seconds)
        elif kind in {"truncated", "event"}:
            state = await self._wait_event(event_condition(kind, wanted), request.timeout_seconds)
        elif kind in {"quorum_leader", "metadata_offset"}:
            state = await self._wait_quorum(kind, wanted, request.timeout_seconds)
        elif kind == "ready":
            state = await self._wait_ready(request.timeout_seconds)
        else:
            state = await self._wait_partitions(kind, wanted, request.timeout_seconds)
        return {"took_ms": round((time.monotonic() - began) * 1000), "actual": state}

    async def reset(self, request: ControlRequest) -> dict[str, Any]:
        """Make the cluster what it was when the control was started."""
        async with self._restarting:
            baseline = load_baseline(self.directory)
            if baseline is None:  # a snapshot was restored: its content is the baseline
                baseline = await self._note_baseline()
            local, with_topics = LocalCluster(self.directory), bool(request.body.get("topics", True))
            return await reset(local, baseline, self._faults, with_topics=with_topics)

    # Faults on requests

    async def add_fault(self, request: ControlRequest) -> dict[str, Any]:
        """Put rules in force at every broker."""
        rules = await self._with_topics(request.body["rules"])
        return {"id": await self._faults.add(rules), "rules": [wires_of(rule) for rule in rules]}

    async def faults(self, _: ControlRequest) -> dict[str, Any]:
        """Return all faults."""
        return {"faults": await self._faults.all()}

    async def fault(self, request: ControlRequest) -> dict[str, Any]:
        """Return one fault."""
        return await self._faults.one(request.number("id"))

    async def clear_faults(self, _: ControlRequest) -> dict[str, Any]:
        """End all faults."""
        return {"deleted": await self._faults.delete()}

    async def delete_fault(self, request: ControlRequest) -> dict[str, Any]:
        """End one fault."""
        return {"deleted": await self._faults.delete(request.number("id"))}

    async def wait_fault(self, request: ControlRequest) -> dict[str, Any]:
        """Wait until a fault has reached a number of hits, or of held responses."""
        began = time.monotonic()
        kind = "hits" if "hits" in request.body else "held"
        while True:
            found = await self._faults.one(request.number("id"))
            if found[kind] >= request.body[kind]:
                return {"took_ms": round((time.monotonic() - began) * 1000), "actual": found}
            if time.monotonic() - began >= request.timeout_seconds:
                sentence = f"fault {found['id']} has {found['hits']} hits and holds {found['held']}"
                raise not_so(f"{sentence} (waited {request.timeout_seconds:g} s for {kind})", found)
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def requests(self, request: ControlRequest) -> dict[str, Any]:
        """Return the requests that arrived while rules were in force."""
        async with self._reading:
            journal = await self._requests.read()
        found = journal.after(request.query.get("after", 0), MOST_EVENTS)
        wanted = {name: request.query[name] for name in ("client_id", "api") if name in request.query}
        entries = [one for one in found["events"] if all(one[name] == value for name, value in wanted.items())]
        limit = min(request.query.get("limit", MOST_EVENTS), MOST_EVENTS)
        last = entries[limit - 1]["number"] if len(entries) > limit else found["next"]
        return {"requests": entries[:limit], "next": last, "dropped": found["dropped"]}

    async def snapshot(self, request: ControlRequest) -> dict[str, Any]:
        """Take a snapshot."""
        return await self._with_snapshot(request.path["name"], LocalCluster(self.directory).snapshot)

    async def restore(self, request: ControlRequest) -> dict[str, Any]:
        """Restore a snapshot; its content is the baseline of later resets."""
        return await self._with_snapshot(request.path["name"], LocalCluster(self.directory).restore, is_restore=True)

    async def _with_snapshot(
        self, name: str, act: Callable[[str], None], *, is_restore: bool = False
    ) -> dict[str, Any]:
        began = time.monotonic()
        async with self._restarting:
            await asyncio.to_thread(act, name)
            if is_restore:
                await self._note_baseline()
        return {"snapshot": name, "took_ms": round((time.monotonic() - began) * 1000)}

    async def advertise(self, request: ControlRequest) -> dict[str, Any]:
        """Let brokers advertise other addresses to Kafka clients; restarts those whose address changes."""
        async with self._restarting:  # the cluster is read inside: another request may have changed its addresses
            return await asyncio.to_thread(advertise, LocalCluster(self.directory), request.body)

    # Inside

    async def _with_topics(self, rules: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Replace topics' ids by their names; the brokers are asked once, if there are any."""
        named = [rule["topic_id"] for rule in rules if "topic_id" in rule]
        if any("topic" in rule for rule in rules if "topic_id" in rule):
            raise malformed("a rule names its topic by topic or by topic_id: not both")
        names: dict[str, str] = {}
        if named:
            async with Admin(self._file.bootstrap_servers) as admin:
                names = {topic.topic_id: topic.name for topic in (await admin.metadata()).topics.values()}
        for topic_id in named:
            if topic_id not in names:
                raise not_found(f"there is no topic with the id {topic_id}", ErrorCode.UNKNOWN_TOPIC_ID.name)
        return [_with_topic(rule, names) for rule in rules]

    async def _look(self, topics: Sequence[str]) -> dict[int, Observation]:
        """Ask every broker that is up for these topics."""
        file = self._file
        up = [
            broker.id
            for broker in file.brokers
            if layout.broker_process(self.directory, broker.id).state is ProcessState.UP
        ]
        observer = _observer_of(file)
        try:
            return await observer.ask(up, topics, with_switches=False)
        finally:
            await observer.close()

    async def _readiness(self, file: ClusterFile) -> dict[int, Observation]:
        observer = _observer_of(file)
        try:
            return await observer.readiness()
        finally:
            await observer.close()

    async def _partitions(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, dict[str, Any] | None]:
        seen = await self._look(sorted({at.topic for at in partitions}))
        if not any(view.metadata is not None for view in seen.values()):
            raise RefusedError(409, ErrorCode.BROKER_NOT_AVAILABLE.name, "no broker responds")
        return {at: views.partition_view(at, seen) for at in partitions}

    @staticmethod
    def _no_partition(at: TopicPartition) -> RefusedError:
        return not_found(f"there is no partition {at}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name)

    async def _group(self, name: str) -> dict[str, Any] | None:
        async with Admin(self._file.bootstrap_servers) as admin:
            group = await admin.describe_group(name, timeout_ms=COORDINATOR_TIMEOUT_MS)
            if group.state == "Dead":
                return None
            return views.group_view(group, await offset_rows_of(admin, group))

    async def _assignments(self) -> dict[str, list[list[int]]]:
        """Return the replicas of each partition of each topic; internal topics come last."""
        async with Admin(self._file.bootstrap_servers) as admin:
            known = (await admin.metadata()).topics
        return {
            name: [list(part.replicas) for _, part in sorted(known[name].partitions.items())]
            for name in sorted(known, key=lambda name: (name.startswith("__"), name))
        }

    async def _wait_partitions(self, kind: str, wanted: Any, limit_seconds: float) -> dict[str, Any]:
        conditions, named = cluster_conditions(kind, wanted)
        deadline = time.monotonic() + limit_seconds
        unknown = [at for at, found in (await self._partitions(named)).items() if found is None] if named else []
        if unknown:
            raise self._no_partition(unknown[0])
        async with Admin(self._file.bootstrap_servers) as admin:
            lookers = [Looker(admin, condition) for condition in conditions]
            while True:
                problems = [await _problem(looker) for looker in lookers]
                if not any(problems):
                    return {str(at): found for at, found in (await self._partitions(named)).items()} if named else {}
                if time.monotonic() >= deadline:
                    break
                await asyncio.sleep(POLL_SECONDS / 2)
        actual = {str(at): found for at, found in (await self._partitions(named)).items()} if named else {}
        sentences = "; ".join(problem for problem in problems if problem)
        raise not_so(f"{sentences} (waited {limit_seconds:g} s)", actual)

    async def _wait_group(self, wanted: Mapping[str, Any], limit_seconds: float) -> dict[str, Any] | None:
        name = str(wanted["id"])
        try:
            await wait_until_group(self._file.bootstrap_servers, name, group_condition(wanted), limit_seconds)
        except NotSoError as late:
            raise not_so(str(late), await self._group_if_any(name)) from None
        return await self._group_if_any(name)

    async def _group_if_any(self, name: str) -> dict[str, Any] | None:
        try:
            return await self._group(name)
        except TidegaugeError:
            return None

    async def _wait_transaction(self, wanted: Mapping[str, Any], limit_seconds: float) -> dict[str, Any] | None:
        name, condition = str(wanted["id"]), transaction_condition(wanted)
        try:
            await wait_until_transaction(self._file.bootstrap_servers, name, condition, limit_seconds)
        except NotSoError as late:
            raise not_so(str(late), await self._transaction_if_any(name)) from None
        return await self._transaction_if_any(name)

    async def _transaction_if_any(self, name: str) -> dict[str, Any] | None:
        try:
            return await self._transaction(name)
        except TidegaugeError:
            return None

    async def _wait_event(self, condition: EventCondition, limit_seconds: float) -> dict[str, Any]:
        """Wait for an event; return it."""
        found, problem = await wait_for_event(self.directory / layout.LOGS, condition, limit_seconds)
        if found is None:
            raise not_so(f"{problem} (waited {limit_seconds:g} s for: {condition.text})", None)
        return dict(found)

    async def _wait_quorum(self, kind: str, wanted: Any, limit_seconds: float) -> dict[str, Any]:
        """Wait until the quorum's leader says so; return the quorum."""
        condition = has_committed(wanted) if kind == "metadata_offset" else has_leader(_leader_of(wanted))
        view, problem = await last_look(self._controllers(), condition, limit_seconds)
        actual = None if view is None else as_json(view)
        lacking = problem.message if problem is not None else "" if view is None else condition.lacks(view)
        if lacking or actual is None:
            raise not_so(f"{lacking} (waited {limit_seconds:g} s for {condition.text})", actual)
        return actual

    async def _wait_ready(self, limit_seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + limit_seconds
        while True:
            state = await self.cluster(ControlRequest({}, {}, {}))
            if state["ready"]:
                return state
            if time.monotonic() >= deadline:
                raise not_so(f"{state['lacks']} (waited {limit_seconds:g} s)", state)
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def _with_topic(rule: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    if "topic_id" not in rule:
        return dict(rule)
    return {"topic": names[rule["topic_id"]], **{key: value for key, value in rule.items() if key != "topic_id"}}


def _leader_of(wanted: Any) -> int:
    return ANY_LEADER if wanted is True else int(wanted)


def _observer_of(file: ClusterFile) -> Observer:
    addresses = {broker.id: broker.address for broker in file.brokers}
    return Observer.of(addresses, has_switches=True, security=file.security)


async def _problem(looker: Looker) -> str | None:
    """Return the actual state if a condition does not hold."""
    try:
        return await looker.look()
    except TidegaugeError as error:
        return str(error)


def _resolve(local: LocalCluster, verb: str, wanted: Target | Role) -> Target:
    return local.resolve(wanted, _FITS.get(verb, ProcessState.UP)) if isinstance(wanted, Role) else wanted
