"""The cluster at a moment of the past: a fold over the events up to then, in causal order. Pure.

Rules:
    1. A fact in no event is unknown (null), never guessed. A replica's log is known from its first ``role`` event,
       which says what it holds; brokers of versions before that say less.
    2. Leader and ISR are the controller's (``election``) until the leader reports a later one (``isr``); one of an
       older leader epoch counts for nothing. They stay as they are when the leader dies: that is what Kafka's clients
       see until the controller elects another.
    3. The replicas of a broker that is down or paused, or that has started and not taken a role yet, stay as they were
       reported last, and are marked ``old``.
    4. Without an event of its own the last stable offset is the high watermark. No high watermark is shown above its
       replica's log end offset: where an event log says so, the log end offset is unknown.
    5. Records in flight of a share partition are in its leader's memory: they are lost with the broker's process.
    6. An event that lacks a field, as of another version, changes nothing.

The result has the form that ``tidegauge_lab.watch.view.view_of`` gives the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegauge.event_log import broker_of
from tidegauge.partition import INTERNAL_TOPICS, TopicPartition
from tidegauge_lab.timeline.choice import Event
from tidegauge_lab.timeline.quorum_moment import QuorumMoment, controller_named
from tidegauge_lab.timeline.replica_moment import PartitionMoment, ReplicaMoment
from tidegauge_lab.timeline.share_moment import ShareMoments
from tidegauge_lab.timeline.words import NO_LEADER

Json = dict[str, Any]
Entry = tuple[str, str]
"""A room of the view, such as ``brokers`` or ``shares``, and the name in it; or ``("", key)`` of the whole."""

_DOWN = frozenset({"kill", "power-cut"})
_ZOOKEEPER = "zookeeper"
_ZOOKEEPER_STATES = {"kill": "down", "stop": "down", "pause": "paused", "resume": "up", "start": "up"}
_WHOLE = ("controller", "controllerEpoch", "controllers", "zookeeper")


class _Broker:
    """One broker: its process, its active faults."""

    __slots__ = ("faults", "fenced", "held", "incarnation", "session", "state")

    def __init__(self) -> None:
        self.state = "unknown"
        self.incarnation = 0
        self.session = ""
        self.fenced = False
        self.faults: dict[int, str] = {}
        self.held: set[str] = set()


class ClusterMoment:
    """The cluster after some events."""

    def __init__(self) -> None:
        self._brokers: dict[int, _Broker] = {}
        self._partitions: dict[str, PartitionMoment] = {}
        self._deleted: set[str] = set()
        self._groups: dict[str, Json] = {}
        self._shares = ShareMoments()
        self._transactions: dict[str, Json] = {}
        self._controller: int | None = None
        self._controller_epoch: int | None = None
        self._zookeeper = "unknown"
        self._quorum = QuorumMoment()

    def apply(self, event: Event) -> set[Entry]:
        """Take an event in; return what it may have changed."""
        handler = _HANDLERS.get(str(event.get("kind")))
        touched: set[Entry] = set()
        source = broker_of(event)
        if source is not None and source not in self._brokers:
            self._brokers[source] = _Broker()
            touched.add(("brokers", str(source)))
        has_written = event.get("source") == f"broker-{source}"
        if source is not None and self._brokers[source].state == "unknown" and has_written:
            self._brokers[source].state = "up"  # it has written this
            touched |= self._of_broker(source)
        try:
            if self._quorum.take(event):
                return {*touched, ("", "controllers")}
            return touched if handler is None else touched | handler(self, event)
        except (KeyError, TypeError, ValueError):  # rule 6: each handler reads all fields before it changes anything
            return touched

    # The form of the page

    def view(self) -> Json:
        """Return everything."""
        return {
            **{key: self.entry(("", key)) for key in _WHOLE},
            "brokers": {str(one): self.entry(("brokers", str(one))) for one in sorted(self._brokers)},
            "partitions": {name: self.entry(("partitions", name)) for name in self._partitions},
            "groups": {name: self.entry(("groups", name)) for name in self._groups},
            "shares": {name: self.entry(("shares", name)) for name in self._shares},
            "transactions": {name: self.entry(("transactions", name)) for name in self._transactions},
        }

    def entry(self, entry: Entry) -> Any:
        """Return one entry of the view; None if there is none (any more)."""
        room, name = entry
        match room:
            case "brokers":
                return self._broker_view(int(name)) if int(name) in self._brokers else None
            case "partitions":
                return self._partition_view(name) if name in self._partitions else None
            case "groups":
                return self._spoken(self._groups.get(name))
            case "shares":
                return self._shares.get(name)
            case "transactions":
                return self._spoken(self._transactions.get(name))
            case _:
                return self._whole(name)

    def _whole(self, key: str) -> Any:
        match key:
            case "controller":
                return self._controller
            case "controllerEpoch":
                return self._controller_epoch
            case "controllers":
                return self._quorum.view()
        return {"address": "", "state": self._zookeeper, "managed": False, "answers": False}

    def _spoken(self, said: Json | None) -> Json | None:
        """Return a coordinator's last report, ``old`` if it does not respond."""
        return None if said is None else said | {"old": self._state(said["coordinator"]) != "up"}

    def _state(self, broker_id: int) -> str:
        broker = self._brokers.get(broker_id)
        return "unknown" if broker is None else broker.state

    def _broker_view(self, broker_id: int) -> Json:
        broker = self._brokers[broker_id]
        mine = [one for one in self._partitions.values() if broker_id in one.assigned]
        return {
            "id": broker_id,
            "address": "",
            "state": broker.state,
            "pid": None,
            "answers": True,
            "controller": broker_id == self._controller,
            "leads": sum(1 for one in mine if one.leader == broker_id),
            "replicas": len(mine),
            "session": None,
            "sessionText": f"session {broker.session}" if broker.session else "session not in the event log",
            "faults": list(broker.faults.values()),
            "held": len(broker.held),
            "fenced": broker.fenced and broker.state != "down",
        }

    def _partition_view(self, name: str) -> Json:
        at, partition = TopicPartition.parse(name), self._partitions[name]
        known = {one: partition.replicas.get(one, ReplicaMoment()) for one in partition.assigned}
        isr = partition.isr
        return {
            "topic": at.topic,
            "partition": at.partition,
            "internal": at.topic in INTERNAL_TOPICS,
            "leader": partition.leader,
            "leaderEpoch": partition.leader_epoch,
            "leaderKnown": partition.leader_epoch is not None,
            "assigned": partition.assigned,
            "isr": isr,
            "osr": [] if isr is None else [one for one in partition.assigned if one not in isr],
            "elr": partition.elr,
            "lastKnownLeader": partition.last_known_leader,
            "low": min((one.log_start for one in known.values() if one.log_start is not None), default=0),
            "high": max((one.shown_log_end or 0 for one in known.values()), default=0),
            "replicas": {
                str(one): replica.view(
                    in_isr=None if isr is None else one in isr,
                    held=one in self._brokers and name in self._brokers[one].held,
                    old=self._state(one) != "up" or replica.incarnation != self._brokers[one].incarnation,
                )
                for one, replica in known.items()
            },
        }

    # Changes that belong together

    def _of_broker(self, broker_id: int) -> set[Entry]:
        """Return a broker, and all that shows whether it responds."""
        shown = {("partitions", name) for name, one in self._partitions.items() if broker_id in one.assigned}
        shown |= {("groups", name) for name, one in self._groups.items() if one["coordinator"] == broker_id}
        shown |= {("transactions", name) for name, one in self._transactions.items() if one["coordinator"] == broker_id}
        return {*shown, ("brokers", str(broker_id))}

    def _forgotten(self, broker_id: int) -> set[Entry]:
        """Forget what the process of a broker had in memory; rule 5."""
        return {("shares", name) for name in self._shares.forget(broker_id)}

    def _all_brokers(self) -> set[Entry]:
        return {("brokers", str(one)) for one in self._brokers}

    def _partition_of(self, event: Event) -> tuple[str, PartitionMoment] | None:
        """Return the partition of an event; None after its deletion."""
        name = str(TopicPartition(event["topic"], event["partition"]))
        return None if name in self._deleted else (name, self._partitions.setdefault(name, PartitionMoment()))

    def _replica_of(self, event: Event) -> tuple[str, PartitionMoment, ReplicaMoment] | None:
        """Return the replica of an event; its broker counts as assigned."""
        source = broker_of(event)
        found = self._partition_of(event)
        if source is None or found is None:
            return None
        name, partition = found
        if source not in partition.assigned:
            partition.assigned = [*partition.assigned, source]
        return name, partition, partition.replicas.setdefault(source, ReplicaMoment())

    # Events of brokers and the controller

    def _on_broker(self, event: Event) -> set[Entry]:
        source, state = broker_of(event), event["state"]
        if source is None:
            return set()
        broker = self._brokers[source]
        if state == "starting":
            fresh = _Broker()
            fresh.state, fresh.incarnation, fresh.fenced = "up", broker.incarnation + 1, broker.fenced
            self._brokers[source] = fresh
        elif state == "stopped":
            broker.state = "down"
        else:
            return set()
        return self._of_broker(source) | self._forgotten(source)

    def _on_session(self, event: Event) -> set[Entry]:
        source, state = broker_of(event), str(event["state"])
        if source is None:
            return set()
        self._brokers[source].session = state
        return {("brokers", str(source))}

    def _on_controller(self, event: Event) -> set[Entry]:
        source, state, epoch = _controller_in(event), event["state"], int(event["controller_epoch"])
        if epoch < (self._controller_epoch or 0):
            return set()
        if state == "elected":
            self._controller = source
        elif self._controller == source:
            self._controller = None
        self._controller_epoch = epoch
        return {*self._all_brokers(), ("", "controller"), ("", "controllerEpoch")}

    def _on_fencing(self, event: Event) -> set[Entry]:
        broker_id, state = int(event["broker"]), event["state"]
        self._brokers[broker_id].fenced = state == "fenced"
        return {("brokers", str(broker_id))}

    def _on_fault(self, event: Event) -> set[Entry]:
        action, process = event["action"], event["process"]
        if process == _ZOOKEEPER:
            self._zookeeper = _ZOOKEEPER_STATES.get(action, self._zookeeper)
            return {("", _ZOOKEEPER)}
        broker_id = event.get("broker")
        if not isinstance(broker_id, int) or broker_id not in self._brokers:
            return set()
        broker = self._brokers[broker_id]
        if action in _DOWN:
            broker.state = "down"
            return self._of_broker(broker_id) | self._forgotten(broker_id)
        if action == "pause":
            broker.state = "paused"
        elif action == "resume":
            broker.state = "up"
        elif action in {"hold-fetch", "release-fetch"}:
            name = str(TopicPartition(event["topic"], event["partition"]))
            (broker.held.add if action == "hold-fetch" else broker.held.discard)(name)
        elif action == "clear-fault":
            broker.faults.pop(event["fault"], None)
        elif "fault" in event:
            broker.faults[event["fault"]] = str(event["text"])
        return self._of_broker(broker_id)

    def _on_restore(self, event: Event) -> set[Entry]:
        """Forget all that the data of before held: the brokers find other data when they start."""
        del event
        touched = self._all_brokers() | {("partitions", name) for name in self._partitions}
        touched |= {("groups", name) for name in self._groups}
        touched |= {("shares", name) for name in self._shares}
        touched |= {("transactions", name) for name in self._transactions}
        self._shares = ShareMoments()
        self._partitions, self._groups, self._transactions = {}, {}, {}
        self._deleted.clear()
        for broker in self._brokers.values():
            broker.state = "down"
        self._controller = self._controller_epoch = None
        return touched | {("", "controller"), ("", "controllerEpoch")}

    # Events of partitions

    def _on_election(self, event: Event) -> set[Entry]:
        leader, epoch, isr = int(event["leader"]), int(event["leader_epoch"]), _ids(event["isr"])
        name = str(TopicPartition(event["topic"], event["partition"]))
        if event.get("cause") == "TopicDeletion":
            self._deleted.add(name)
            self._partitions.pop(name, None)
            return {("partitions", name), *self._all_brokers()}
        if event.get("strategy") == "initial":
            self._deleted.discard(name)
            self._partitions[name] = PartitionMoment()
        found = self._partition_of(event)
        if found is None:
            return set()
        partition = found[1]
        if epoch >= (partition.leader_epoch or 0):
            partition.leader, partition.leader_epoch = None if leader == NO_LEADER else leader, epoch
            partition.isr = isr
            partition.assigned = [*partition.assigned, *(one for one in isr if one not in partition.assigned)]
        return {("partitions", name), *self._all_brokers()}

    def _on_elr(self, event: Event) -> set[Entry]:
        new, last_known = _ids(event["new"]), _ids(event["last_known"])
        found = self._partition_of(event)
        if found is None:
            return set()
        found[1].elr, found[1].last_known_leader = new, last_known
        return {("partitions", found[0])}

    def _on_reassignment(self, event: Event) -> set[Entry]:
        replicas = _ids(event["replicas"])
        found = self._partition_of(event)
        if found is None:
            return set()
        found[1].assigned = replicas
        return {("partitions", found[0]), *self._all_brokers()}

    def _on_role(self, event: Event) -> set[Entry]:
        source, leader, epoch = broker_of(event), int(event["leader"]), int(event["leader_epoch"])
        role, log = str(event["role"]), ReplicaMoment.log_in(event)
        found = self._replica_of(event)
        if found is None or source is None:
            return set()
        name, partition, replica = found
        replica.take_role(role, epoch, self._brokers[source].incarnation, log)
        if epoch > (-1 if partition.leader_epoch is None else partition.leader_epoch):
            partition.leader, partition.leader_epoch = None if leader == NO_LEADER else leader, epoch
            if role != "leader":  # a leader has reported its ISR just before
                partition.isr = None
        if replicas := _ids(event.get("replicas", ())):
            partition.assigned = replicas
        return {("partitions", name), *self._all_brokers()}

    def _on_isr(self, event: Event) -> set[Entry]:
        new, partition_epoch, state = _ids(event["new"]), int(event["partition_epoch"]), event["state"]
        found = self._replica_of(event)
        if found is None:
            return set()
        name, partition, _ = found
        if state == "committed" and partition_epoch >= partition.partition_epoch:
            partition.isr, partition.partition_epoch = new, partition_epoch
        return {("partitions", name)}

    def _on_log(self, event: Event) -> set[Entry]:
        """Take in what happened to one replica's log."""
        change = ReplicaMoment.change_in(event)
        found = self._replica_of(event)
        if found is None:
            return set()
        change(found[2])
        return {("partitions", found[0])}

    # Groups and transactions

    def _on_group(self, event: Event) -> set[Entry]:
        name, source, state = str(event["group"]), broker_of(event), str(event["new"])
        said = {
            "group": name,
            "state": state,
            "generation": int(event["generation"]),
            "protocol": "",
            "coordinator": source,
            "offsetsPartition": None,
            "offsetsTopicPartition": None,
            "reason": str(event.get("reason", "")),
            "memberCount": int(event["members"]),
            "members": [],
            "partitions": [],
            "lag": None,
        }
        if state == "Dead":
            self._groups.pop(name, None)
        else:
            self._groups[name] = said
        return {("groups", name)}

    def _on_share(self, event: Event) -> set[Entry]:
        source = broker_of(event)
        if source is None:
            return set()
        return {("shares", name) for name in self._shares.take(event, source)}

    def _on_transaction(self, event: Event) -> set[Entry]:
        name, source, state = str(event["transactional_id"]), broker_of(event), str(event["new"])
        before = self._transactions.get(name, {})
        begins = state == "Ongoing" and before.get("state") != "Ongoing"
        said = {
            "id": name,
            "state": state,
            "producerId": int(event["producer_id"]),
            "producerEpoch": int(event["producer_epoch"]),
            "coordinator": source,
            "since": event.get("time_ms") if begins else before.get("since"),
            "timeoutMs": None,
            "partitions": [{"partition": str(one), "first": None} for one in event.get("partitions", ())],
        }
        if state == "Dead":
            self._transactions.pop(name, None)
        else:
            self._transactions[name] = said
        return {("transactions", name)}


def _controller_in(event: Event) -> int | None:
    """Return the controller by an event: a broker, or a quorum's node."""
    of_quorum = controller_named(event.get("source"))
    return broker_of(event) if of_quorum is None else of_quorum


def _ids(brokers: Sequence[object]) -> list[int]:
    return [int(str(one)) for one in brokers]


_HANDLERS: Mapping[str, Callable[[ClusterMoment, Event], set[Entry]]] = {
    "broker": ClusterMoment._on_broker,  # noqa: SLF001 - of this class
    "session": ClusterMoment._on_session,  # noqa: SLF001 - of this class
    "controller": ClusterMoment._on_controller,  # noqa: SLF001 - of this class
    "fencing": ClusterMoment._on_fencing,  # noqa: SLF001 - of this class
    "elr": ClusterMoment._on_elr,  # noqa: SLF001 - of this class
    "fault": ClusterMoment._on_fault,  # noqa: SLF001 - of this class
    "restore": ClusterMoment._on_restore,  # noqa: SLF001 - of this class
    "election": ClusterMoment._on_election,  # noqa: SLF001 - of this class
    "reassignment": ClusterMoment._on_reassignment,  # noqa: SLF001 - of this class
    "role": ClusterMoment._on_role,  # noqa: SLF001 - of this class
    "isr": ClusterMoment._on_isr,  # noqa: SLF001 - of this class
    **dict.fromkeys(
        ("epoch", "high_watermark", "last_stable_offset", "log_end_offset", "log_start_offset", "truncation"),
        ClusterMoment._on_log,  # noqa: SLF001 - of this class
    ),
    "group": ClusterMoment._on_group,  # noqa: SLF001 - of this class
    "share": ClusterMoment._on_share,  # noqa: SLF001 - of this class
    "transaction": ClusterMoment._on_transaction,  # noqa: SLF001 - of this class
}
