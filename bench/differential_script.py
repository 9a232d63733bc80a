"""The script of the differential run: the events of both clusters, step by step, and the looks after each.

A step is a function; what a command prints and what the look after the step finds become facts under the step's name.
Brokers are started one after the other and die so that it is clear who is elected, as leader and as controller.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import differential_look as look
from differential_sides import BROKERS, READY_SECONDS, Batch, Entry, Said, Side, settle
from kazoo.exceptions import NoNodeError
from tests.waiting import until
from tests.zookeeper_view import ZooKeeperView

BEGAN_MS = 1_750_000_000_000


class Run:
    """One side's way through the script."""

    def __init__(self, side: Side, directory: Path) -> None:
        self.side = side
        self.facts: look.Facts = {}
        self._directory = directory
        self._step = ""
        self._said = 0
        self._clock_ms = BEGAN_MS
        self._view: ZooKeeperView | None = None

    @property
    def view(self) -> ZooKeeperView:
        """Its ZooKeeper, once it runs."""
        self._view = self._view or ZooKeeperView(self.side.zookeeper)
        return self._view

    def play(self, note: Callable[[str], None]) -> look.Facts:
        """All steps; gives the facts."""
        self.side.begin()
        try:
            for step in STEPS:
                self._step, self._said = step.__name__, 0
                note(f"{self.side.name}: {self._step}")
                step(self)
                for topic in self.view.children("/brokers/topics"):
                    for partition in self.view.json(f"/brokers/topics/{topic}")["partitions"]:
                        self._wait_taken_over(topic, int(partition))
                self.note(settle(lambda: look.znodes(self.view) | look.checkpoints(self.side)))
        finally:
            if self._view is not None:
                self._view.close()
            self.side.end()
        return self.facts

    def note(self, facts: look.Facts) -> None:
        """Keep facts under this step's name."""
        self.facts |= {f"{self._step}: {name}": value for name, value in facts.items()}

    def run(self, tool: str, *options: str) -> Said:
        """Run a command and note its output."""
        said = self.side.command(tool, *options)
        name = f"command {self._said} {tool} {' '.join(Path(option).name for option in options)}"
        self._said += 1
        outcome = "succeeded" if said.ok else "failed"
        self.note({name: outcome})
        if said.ok or tool == "delete-records":  # which tells the failure of a partition there
            self.note({f"{name} stdout": said.stdout.strip()})
        else:
            self.note({f"{name} sentence": sentence(said)})
        return said

    def describe(self, *options: str) -> None:
        self.run("topics", "--describe", *options)

    def offsets(self, topic: str) -> None:
        for time in ("-1", "-2", "-3", str(BEGAN_MS + 2)):
            self.run("get-offsets", "--topic", topic, "--time", time)

    def json_file(self, name: str, document: object) -> str:
        path = self._directory / self.side.name / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document))
        return str(path)

    def write(self, topic: str, *partitions: int, count: int = 3, batches: int = 1, **how: str | bool) -> None:
        """Batches of some records, each with a time of its own."""
        compression = str(how.pop("compression", "none"))
        made = [
            Batch(topic, partition, [self._entry(number) for number in range(count)], compression)
            for _ in range(batches)
            for partition in partitions
        ]
        reported = self.side.write(made, **how)  # type: ignore[arg-type]  # acks and idempotent, as they are
        name = f"written {self._said} to {topic}"
        self._said += 1
        self.note({name: " ".join(reported)})

    def _entry(self, number: int) -> Entry:
        self._clock_ms += 1
        at = self._clock_ms - BEGAN_MS
        key = None if at % 5 == 0 else b"key %d" % (at % 7)
        value = None if at % 6 == 0 else b"value %d" % at
        return Entry(key, value, self._clock_ms, (("h", b"x"),) * (number % 2))

    def state(self, topic: str, partition: int = 0) -> dict[str, object]:
        """Return a partition's state; without leader and ISR if it has none yet."""
        with contextlib.suppress(NoNodeError):
            return self.view.state(topic, partition)
        return {"leader": None, "isr": []}

    def wait_isr(self, topic: str, partition: int, *isr: int) -> None:
        """Until the ISR is this, in any order."""

        def same() -> bool:
            found = self.state(topic, partition)["isr"]
            return isinstance(found, list) and sorted(found) == sorted(isr)

        until(same, READY_SECONDS, f"ISR of {topic}-{partition}")
        self._wait_taken_over(topic, partition)

    def wait_all_in_sync(self) -> None:
        """Until every ISR holds all replicas."""

        def all_in() -> bool:
            for topic in self.view.children("/brokers/topics"):
                for partition, replicas in self.view.json(f"/brokers/topics/{topic}")["partitions"].items():
                    isr = self.state(topic, int(partition))["isr"]
                    if not isinstance(isr, list) or sorted(isr) != sorted(replicas):
                        return False
            return True

        until(all_in, READY_SECONDS, "all in sync")

    def wait_moved(self) -> None:
        """Until no replica is on its way."""

        def none_moves() -> bool:
            topics = [self.view.json(f"/brokers/topics/{topic}") for topic in self.view.children("/brokers/topics")]
            return not any(topic["adding_replicas"] or topic["removing_replicas"] for topic in topics)

        until(none_moves, READY_SECONDS, "replicas move")
        settle(lambda: look.znodes(self.view))
        self.wait_all_in_sync()

    def wait_deleted(self, *broker_ids: int) -> None:
        """Wait until no directory of a deleted log is left on these brokers, or on any."""
        directories = [self.side.directory(broker_id) for broker_id in broker_ids or BROKERS]
        until(
            lambda: not any(list(directory.glob("*-delete")) for directory in directories),
            READY_SECONDS,
            "directories are deleted",
        )

    def wait_leader(self, topic: str, partition: int, leader: int) -> None:
        until(lambda: self.state(topic, partition)["leader"] == leader, READY_SECONDS, f"leader of {topic}-{partition}")
        self._wait_taken_over(topic, partition)

    def _wait_taken_over(self, topic: str, partition: int) -> None:
        """Until the leader leads in the epoch that ZooKeeper has: it notes the epoch's begin when LeaderAndIsr arrives.

        Records written before that have the former epoch, so they depend on the speed of the machine.
        """

        def has() -> bool:
            state = self.state(topic, partition)
            leader, epoch = state["leader"], state.get("leader_epoch")
            if not isinstance(leader, int) or not self.view.exists(f"/brokers/ids/{leader}"):
                return True
            files = self.side.directory(leader).rglob(f"{topic}-{partition}/leader-epoch-checkpoint")
            with contextlib.suppress(FileNotFoundError):  # replaced at this moment
                return any(line.startswith(f"{epoch} ") for path in files for line in path.read_text().splitlines()[2:])
            return False

        until(has, READY_SECONDS, f"the leader of {topic}-{partition} has heard of its epoch")

    def wait_stopped(self, *paths: str) -> None:
        until(lambda: not any(self.view.exists(path) for path in paths), READY_SECONDS, f"no {paths}")

    def wait_registered(self, *broker_ids: int) -> None:
        wanted = [f"/brokers/ids/{broker_id}" for broker_id in broker_ids]
        until(lambda: all(self.view.exists(path) for path in wanted), READY_SECONDS, f"{wanted}")

    def start(self, broker_id: int) -> None:
        self.side.start(broker_id)
        self.wait_registered(broker_id)

    def kill(self, broker_id: int) -> None:
        self.side.kill(broker_id)
        self.wait_stopped(f"/brokers/ids/{broker_id}")


EXCEPTION = re.compile(r"org\.apache\.kafka\.common\.(?:errors|config)\.\w+: (.*)")


def sentence(said: Said) -> str:
    """Return the message of a failed command, without the error's name."""
    reported = said.stdout + "\n" + said.stderr
    if found := EXCEPTION.search(reported):
        return found[1].strip()
    lines = [line.strip() for line in reported.splitlines() if line.strip() and not line.startswith("SLF4J")]
    first = next((line for line in lines if line.startswith("Error")), (lines or [""])[0])
    return re.sub(r"^(Error while executing topic command : |(Error: )?.*?[A-Z_]+ \(\d+\): |Error: )", "", first)


def three_brokers(run: Run) -> None:
    for broker_id in BROKERS:
        run.start(broker_id)


def topics(run: Run) -> None:
    create = ("topics", "--create", "--topic")
    run.run(*create, "orders", "--replica-assignment", "0:1:2,1:2:0,2:0:1", "--config", "min.insync.replicas=2")
    run.run(*create, "pairs", "--replica-assignment", "1:2", "--config", "retention.ms=3600000000000")
    run.run(*create, "small", "--replica-assignment", "0:1:2", "--config", "segment.bytes=300")
    run.run(*create, "orders", "--replica-assignment", "0:1")
    run.run(*create, "bad/name", "--replica-assignment", "0:1")
    run.run(*create, "wide", "--partitions", "1", "--replication-factor", "4")
    run.run(*create, "odd", "--replica-assignment", "0:1", "--config", "min.insync.replicas=0")
    run.run("topics", "--list")
    run.describe()


def records(run: Run) -> None:
    run.write("orders", 0, 1, 2)
    run.write("orders", 0, batches=7)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        run.write("orders", 1, compression=codec)
    run.write("pairs", 0, idempotent=False)
    run.write("small", 0, batches=12)
    for topic in ("orders", "small"):
        run.offsets(topic)


def a_leader_dies(run: Run) -> None:
    """Broker 1 leads orders-1 and pairs-0."""
    run.kill(1)
    run.wait_leader("orders", 1, 2)
    run.wait_leader("pairs", 0, 2)
    run.wait_isr("orders", 0, 0, 2)
    run.write("orders", 0, 1, batches=2)
    run.write("pairs", 0)
    run.describe()
    run.describe("--under-replicated-partitions")
    run.describe("--at-min-isr-partitions")
    run.run("topics", "--create", "--topic", "late", "--replica-assignment", "1:2:0")


def it_returns(run: Run) -> None:
    run.start(1)
    run.wait_all_in_sync()
    run.describe()


def preferred_leaders(run: Run) -> None:
    elect = ("elect", "--election-type", "preferred")
    run.run(*elect, "--topic", "orders", "--partition", "1")
    run.wait_leader("orders", 1, 1)
    run.run(*elect, "--topic", "orders", "--partition", "1")
    run.run(*elect, "--topic", "nothing", "--partition", "0")
    run.run(*elect, "--all-topic-partitions")
    run.wait_leader("pairs", 0, 1)
    run.write("orders", 1)
    run.write("pairs", 0)
    run.describe("--topic", "orders")


def the_controller_dies(run: Run) -> None:
    """Broker 2 stops first, so that only broker 1 can be the next controller."""
    run.side.stop(2)
    run.wait_isr("orders", 0, 0, 1)
    run.kill(0)
    until(lambda: run.view.controller()[0] == 1, READY_SECONDS, "broker 1 is the controller")
    run.wait_isr("orders", 0, 1)
    run.describe()
    run.describe("--under-min-isr-partitions")


def all_return(run: Run) -> None:
    for broker_id, isr in ((2, (1, 2)), (0, (0, 1, 2))):
        run.start(broker_id)
        for partition in range(3):
            run.wait_isr("orders", partition, *isr)
    run.wait_all_in_sync()
    run.describe()
    run.write("orders", 0, 1, 2)
    run.run("elect", "--election-type", "preferred", "--all-topic-partitions")
    run.wait_leader("orders", 0, 0)
    run.wait_leader("orders", 2, 2)
    run.write("orders", 0, 1, 2)


def settings(run: Run) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "orders")
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    every = ("--entity-type", "brokers", "--entity-default")
    run.run("configs", "--alter", *topic, "--add-config", "retention.ms=3600000000000,max.message.bytes=2000000")
    run.run("configs", "--alter", *topic, "--delete-config", "retention.ms")
    run.run("configs", "--alter", *broker, "--add-config", "log.cleaner.threads=2")
    run.run("configs", "--alter", *every, "--add-config", "min.insync.replicas=1")
    run.run("configs", "--alter", *topic, "--add-config", "cleanup.policy=[compact,delete]")
    run.run("configs", "--alter", *topic, "--add-config", "cleanup.policy=delete")
    run.run("configs", "--alter", *topic, "--add-config", "segment.bytes=1")
    run.run("configs", "--alter", *topic, "--add-config", "no.such.setting=1")
    run.run("configs", "--alter", *topic, "--delete-config", "flush.ms")
    run.run("configs", "--alter", *broker, "--add-config", "broker.id=7")
    for entity in (topic, broker, every):
        run.run("configs", "--describe", *entity)
    run.describe("--topic", "orders")
    run.run("configs", "--alter", *broker, "--delete-config", "log.cleaner.threads")


def more_partitions(run: Run) -> None:
    alter = ("topics", "--alter", "--topic", "orders", "--partitions", "4", "--replica-assignment")
    run.run(*alter, "0:1:2,1:2:0,2:0:1,0:2")
    run.run(*alter, "0:1:2,1:2:0,2:0:1,0:2:1")
    run.wait_isr("orders", 3, 0, 1, 2)
    run.run("topics", "--alter", "--topic", "orders", "--partitions", "4")
    run.run("topics", "--alter", "--topic", "orders", "--partitions", "2")
    run.run("topics", "--alter", "--topic", "nothing", "--partitions", "2")
    run.write("orders", 3)
    run.describe("--topic", "orders")


def records_are_deleted(run: Run) -> None:
    def wanted(topic: str, partition: int, offset: int) -> str:
        partitions = [{"topic": topic, "partition": partition, "offset": offset}]
        return run.json_file("delete", {"partitions": partitions, "version": 1})

    run.run("delete-records", "--offset-json-file", wanted("orders", 0, 7))
    run.run("delete-records", "--offset-json-file", wanted("small", 0, 20))
    run.run("delete-records", "--offset-json-file", wanted("orders", 1, -1))
    run.run("delete-records", "--offset-json-file", wanted("orders", 0, 100000))
    for topic in ("orders", "small"):
        run.offsets(topic)


def replicas_move(run: Run) -> None:
    def wanted(*moves: tuple[str, int, list[int]]) -> str:
        partitions = [{"topic": topic, "partition": partition, "replicas": ids} for topic, partition, ids in moves]
        return run.json_file("move", {"version": 1, "partitions": partitions})

    reassign = ("reassign", "--reassignment-json-file")
    plan = wanted(("orders", 3, [1, 2]), ("pairs", 0, [0, 1, 2]))
    run.run(*reassign, plan, "--execute")
    run.wait_isr("orders", 3, 1, 2)
    run.wait_isr("pairs", 0, 0, 1, 2)
    run.wait_stopped("/admin/reassign_partitions")
    run.wait_moved()
    run.run(*reassign, plan, "--verify")
    run.run("reassign", "--list")
    run.run(*reassign, wanted(("nothing", 0, [1, 2])), "--execute")
    run.run(*reassign, wanted(("orders", 0, [1, 9])), "--execute")
    run.describe()
    run.write("orders", 3)
    run.run(*reassign, wanted(("pairs", 0, [2, 1])), "--execute")
    run.wait_moved()


def topics_go(run: Run) -> None:
    """One of them cannot go while a replica's broker is down."""
    run.run("topics", "--delete", "--topic", "small")
    run.wait_stopped("/brokers/topics/small", "/admin/delete_topics/small", "/config/topics/small")
    run.run("topics", "--delete", "--topic", "small")
    run.wait_deleted()
    run.kill(2)
    for topic, partition in (("late", 0), ("orders", 0), ("orders", 1), ("orders", 2)):
        run.wait_isr(topic, partition, 0, 1)
    run.run("topics", "--delete", "--topic", "late")
    run.wait_deleted(0, 1)


def the_last_replica_returns(run: Run) -> None:
    run.start(2)
    run.wait_stopped("/brokers/topics/late", "/admin/delete_topics/late")
    run.wait_deleted()
    run.wait_all_in_sync()
    run.run("topics", "--list")


def an_unclean_election(run: Run) -> None:
    """Broker 2 leaves the ISR, broker 0 goes on alone and dies, broker 2 is elected unclean, broker 0 truncates."""
    run.run("topics", "--create", "--topic", "risky", "--replica-assignment", "0:2")
    run.write("risky", 0, batches=2, acks="1", idempotent=False)
    run.wait_isr("risky", 0, 0, 2)
    settle(lambda: look.checkpoints(run.side))
    run.kill(2)
    run.wait_isr("risky", 0, 0)
    epochs = run.side.directory(0) / "risky-0" / "leader-epoch-checkpoint"
    until(lambda: "\n1 " in epochs.read_text(), READY_SECONDS, "the leader has heard of its new epoch")
    run.write("risky", 0, batches=3, acks="1", idempotent=False)
    run.kill(0)
    run.wait_leader("risky", 0, -1)
    run.start(2)
    run.describe("--topic", "risky")
    run.describe("--unavailable-partitions")
    run.run("elect", "--election-type", "preferred", "--topic", "risky", "--partition", "0")
    run.run("elect", "--election-type", "unclean", "--topic", "risky", "--partition", "0")
    run.wait_leader("risky", 0, 2)
    run.write("risky", 0, acks="1", idempotent=False)
    run.offsets("risky")


def who_was_cut_returns(run: Run) -> None:
    run.start(0)
    run.wait_all_in_sync()
    run.describe("--topic", "risky")
    run.offsets("risky")
    run.note(look.dumps(run.side))


def retention(run: Run) -> None:
    create = ("topics", "--create", "--topic")
    forever = ("--config", "retention.ms=-1")
    run.run(*create, "bounded", "--replica-assignment", "1:2", "--config", "segment.bytes=300", *forever)
    run.write("bounded", 0, batches=10)
    run.run(
        *("configs", "--alter", "--entity-type", "topics", "--entity-name", "bounded"),
        *("--add-config", "retention.bytes=700"),
    )
    until(lambda: len(list((run.side.directory(1) / "bounded-0").glob("*.log"))) <= 4, READY_SECONDS, "segments go")
    until(lambda: len(list((run.side.directory(2) / "bounded-0").glob("*.log"))) <= 4, READY_SECONDS, "segments go")
    run.offsets("bounded")


def all_are_killed(run: Run) -> None:
    for broker_id in BROKERS:
        run.side.kill(broker_id)
    run.wait_stopped(*(f"/brokers/ids/{broker_id}" for broker_id in BROKERS))
    run.note(look.names(run.side, lengths=False))


def the_first_recovers(run: Run) -> None:
    run.start(1)
    until(lambda: run.view.controller()[0] == 1, READY_SECONDS, "broker 1 is the controller")
    run.wait_leader("orders", 0, 1)
    for topic, partition in (("orders", 0), ("orders", 1), ("orders", 2), ("pairs", 0)):
        run.wait_isr(topic, partition, 1)


def the_second_recovers(run: Run) -> None:
    run.start(2)
    for topic, partition in (("orders", 0), ("orders", 1), ("orders", 2), ("pairs", 0), ("bounded", 0)):
        run.wait_isr(topic, partition, 1, 2)


def all_recover(run: Run) -> None:
    run.start(0)
    run.wait_all_in_sync()
    run.describe()
    run.write("orders", 0, 1, 2, 3)
    for topic in ("orders", "bounded"):
        run.offsets(topic)


def all_stop(run: Run) -> None:
    for broker_id in (0, 2, 1):
        run.side.stop(broker_id)
    run.wait_stopped(*(f"/brokers/ids/{broker_id}" for broker_id in BROKERS))
    run.note(look.names(run.side, lengths=True))
    run.note(look.dumps(run.side))


STEPS: tuple[Callable[[Run], None], ...] = (
    three_brokers,
    topics,
    records,
    a_leader_dies,
    it_returns,
    preferred_leaders,
    the_controller_dies,
    all_return,
    settings,
    more_partitions,
    records_are_deleted,
    replicas_move,
    topics_go,
    the_last_replica_returns,
    an_unclean_election,
    who_was_cut_returns,
    retention,
    all_are_killed,
    the_first_recovers,
    the_second_recovers,
    all_recover,
    all_stop,
)
