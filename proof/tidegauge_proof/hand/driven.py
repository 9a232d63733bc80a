"""A cluster driven by hand: broker cores, effect executor and controller decisions as they run, one action at a time.

Rules:
    1. After an action the controllers decide all they can, and whoever has something to send sends it: these are
       messages in flight. Unless messages wait for a hand (``Settings.by_hand``, or one is delayed), they arrive, the
       oldest first, until there is none that can, and time goes on by as much as watermarks need to reach followers.
    2. A message does not arrive while its sender's or receiver's link is cut or its receiver's process is paused; it
       waits. One to a dead process is lost: the connection breaks.
    3. Every action takes a millisecond, so that no two have the same time. Sessions of processes that are dead or
       paused end ``SESSION_TIMEOUT_MS`` after that, when time goes on so far.
    4. The controller is whoever registers ``/controller`` first: here the living broker with the lowest id.
    5. A broken invariant is noted and the history goes on. If a core's own assertion fails, the history ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from tidegauge_broker.replica.messages import ACKS_ALL, CONSUMER, CoreSettings, FetchPartition, FetchRequest, TopicRules
from tidegauge_proof.hand import messages as kinds
from tidegauge_proof.hand.actions import ABOUT_MESSAGES, ACKS, KINDS, Action, ActionError
from tidegauge_proof.hand.messages import CLIENT, IN_FLIGHT, LOST, Message
from tidegauge_proof.hand.post import Post
from tidegauge_proof.hand.settings import LAG_TIME_MAX_MS, SESSION_TIMEOUT_MS, Settings
from tidegauge_proof.simulator.clients import Produced
from tidegauge_proof.simulator.controllers import chosen
from tidegauge_proof.simulator.controllers.ports import Store
from tidegauge_proof.simulator.memory_broker import AT, Reading
from tidegauge_proof.simulator.witness import Witness
from tidegauge_proof.simulator.world import FETCH_WAIT_MS, World

_PRODUCE_TIMEOUT_MS = 30_000
_MOST_ARRIVALS = 2_000
"""Messages that may arrive in one action: far more than any needs, so that no action lasts for ever."""
_MOST_WAITS = 12


class _Configured:
    """A store whose topics have settings."""

    def __init__(self, store: Store, config: Mapping[str, str]) -> None:
        self._store = store
        self._config = config

    def add_topic(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> str:
        """Store a new topic with these settings."""
        return self._store.add_topic(topic, assignment, self._config)

    def __getattr__(self, name: str) -> Any:
        """Return everything else of the store."""
        return getattr(self._store, name)


class Read:
    """What a consumer has read: from which broker, in which action, the records' numbers."""

    def __init__(self, broker: int, step: int, numbers: list[int]) -> None:
        self.broker, self.step, self.numbers = broker, step, numbers


class HandDriven:
    """The cluster.

    Args:
        settings: of the cluster and its topic.

    Attributes:
        world: the simulated world.
        post: the messages.
        events: what event logs would have, in order; ``time_ms`` is virtual.
        produced: the clients' batches, in the order in which they were sent.
        reads: what consumers have read.
        held: the followers whose fetches are held.
        parted: the brokers that do not reach ZooKeeper.
        step: number of the action that was done last.
        broken: the first broken invariant in words, with its name; empty while all hold.
        has_ended: whether a core's own assertion has failed: nothing can be done any more.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.checker = Witness(settings.min_insync_replicas, may_lose=not settings.flushes)
        config = {"unclean.leader.election.enable": "true"} if settings.unclean else {}
        core = CoreSettings(
            replica_lag_time_max_ms=LAG_TIME_MAX_MS,
            replica_fetch_backoff_ms=100,
            truncation_rule=settings.rule_name,
            coordinator_topics=frozenset({AT.topic}),
            refuses_previous_incarnation=not chosen.trusts_restarted_brokers(),
        )
        rules = TopicRules(
            min_insync_replicas=settings.min_insync_replicas, unclean_leader_election=bool(settings.unclean)
        )
        self.world = World(
            settings.assignment,
            core,
            rules,
            self.checker,
            controller=settings.controller,
            controllers=lambda: cast("Store", _Configured(chosen.DEFAULT(), config)),
        )
        for broker in self.world.brokers.values():
            broker.flushes = bool(settings.flushes)
        self.world.clients.numbers = 1  # records are m1, m2, ..., as in the stories
        self.events = self.world.keep_events()
        self.post = Post(self.world, is_held=bool(settings.by_hand))
        self.produced: list[Produced] = []
        self.reads: list[Read] = []
        self.held: set[int] = set()
        self.parted: set[int] = set()
        self.step = 0
        self.has_ended = False
        self._assertion = ""
        self.silent_since: dict[int, int] = {}
        self._outcomes: dict[int, str] = {}
        self._guarded(lambda: self._rest(at_start=True))

    @property
    def broken(self) -> str:
        """The first broken invariant in words; empty while all hold."""
        return self._assertion or ("" if self.checker.broken is None else str(self.checker.broken))

    def do(self, action: Action) -> str:
        """Do an action and all that follows from it; return a sentence about it.

        Raises:
            ActionError: it has no object now; nothing has changed.
        """
        if self.has_ended:
            raise ActionError(
                "the history has ended: an invariant of the core's own does not hold. Go back, or begin again"
            )
        begin = _DO[action.kind]
        self.step += 1
        self.post.step = self.step
        try:
            said = self._guarded(lambda: begin(self, action))
        except ActionError:
            self.step -= 1
            self.post.step = self.step
            raise
        self.world.now_ms += 1
        if action.kind not in ABOUT_MESSAGES or not self.settings.by_hand:
            self._guarded(self._rest)
        else:
            self._guarded(self._send_all)
        self._guarded(self._look_at_clients)
        self._date()
        return said or ""

    def _guarded(self, act: Callable[[], str | None]) -> str | None:
        """Do it; a failed assertion of a core ends the history, as it would end a broker."""
        try:
            return act()
        except AssertionError as broken:
            self.has_ended = True
            self._assertion = self._assertion or f"the core's own invariant: {broken}"
            return f"A core's own assertion failed: {broken}"

    def _date(self) -> None:
        for event in reversed(self.events):
            if "time_ms" in event:
                return
            event["time_ms"] = self.world.now_ms

    # What follows by itself (rule 1)

    def _rest(self, *, at_start: bool = False) -> None:
        waits = _MOST_WAITS
        for _ in range(_MOST_ARRIVALS):
            self._send_all()
            arriving = next((one for one in self.post.in_flight() if self._may_arrive(one, by_hand=False)), None)
            if arriving is not None:
                self._arrive(arriving)
            elif self._is_behind() and waits and (at_start or not self.settings.by_hand):
                waits -= 1
                self._pass_time(FETCH_WAIT_MS)
            else:
                return

    def _send_all(self) -> None:
        """Let controllers decide, and everybody send what is due."""
        self._elect()
        for broker_id in [b for b in self.world.controllers if b not in self.world.paused]:
            while (term := self.world.controllers.get(broker_id)) is not None and term.is_busy:
                self.world.decide(broker_id, 1000)
                if broker_id not in self.world.controllers:
                    self.world.note("controller", broker_id, state="resigned", controller_epoch=term.epoch)
        if not self.settings.by_hand:
            for broker_id in sorted(self.world.without_session):
                if self.world.is_up(broker_id) and broker_id not in self.parted:
                    self._resign(broker_id)
                    self.world.register_again(broker_id)
        self.post.collect(self.held)
        self._date()

    def _resign(self, broker_id: int) -> None:
        """End the term of a controller whose session has ended, before its broker registers again."""
        term = self.world.controllers.get(broker_id)
        if term is not None and self.world.elected != broker_id:
            self.world.end_term(broker_id)
            self.world.note("controller", broker_id, state="resigned", controller_epoch=term.epoch)

    def _elect(self) -> None:
        world = self.world
        if world.elected is None:
            able = [b for b in sorted(world.brokers) if world.is_up(b) and b not in world.without_session | self.parted]
            if able:
                world.elect(able[0])

    def _is_behind(self) -> bool:
        """Whether a follower that fetches by itself does not know its leader's high watermark yet."""
        state = self.world.state_now
        leader = self.world.brokers.get(state.leader)
        if leader is None or leader.partition is None or not self.world.is_up(state.leader):
            return False
        for broker_id in self.world.replicas:
            broker = self.world.brokers[broker_id]
            if broker_id == state.leader or broker_id in self.held or not self.world.is_up(broker_id):
                continue
            if self.world.is_cut(broker_id, state.leader) or broker.partition is None:
                continue
            if (
                broker.partition.high_watermark < leader.partition.high_watermark
                or broker.partition.log_end_offset < leader.partition.log_end_offset
            ):
                return True
        return False

    # Messages

    def _may_arrive(self, message: Message, *, by_hand: bool) -> bool:
        message.note = self.obstacle(message)
        return not message.note and (by_hand or not message.is_held)

    def obstacle(self, message: Message) -> str:
        """Return why a message can't arrive now, in words; empty if it can."""
        source, target = message.source, message.target
        world = self.world
        if target != CLIENT and target in world.paused:
            return f"broker {target} is paused"
        # A response uses the connection of its call.
        caller, called = (target, source) if message.kind in {kinds.FETCH_RESPONSE, kinds.VERDICT} else (source, target)
        if CLIENT not in {caller, called} and world.is_cut(caller, called):
            return f"the link from {caller} to {called} is cut"
        if source in world.paused and message.kind not in {
            kinds.FETCH_RESPONSE,
            kinds.FETCH,
            kinds.VERDICT,
            kinds.STRAY,
        }:
            return f"broker {source} is paused"
        if message.kind == kinds.PRODUCE or target == CLIENT:
            return ""
        if not world.brokers[target].is_running and message.kind in {kinds.CONTROL, kinds.ALTER_PARTITION}:
            return f"broker {target} is down"
        return ""

    def _arrive(self, message: Message, *, again: bool = False) -> None:
        """Hand a message over; with ``again`` it stays in flight, to arrive once more."""
        self.post.hand_over(message, again=again, produce=self._arrive_produce)

    def _arrive_produce(self, message: Message) -> None:
        produced: Produced = message.payload
        if not self.world.is_up(message.target):
            message.fate, message.note = LOST, f"broker {message.target} does not take connections"
            if produced.first_sequence < 0 and produced.outcome == "info" and not produced.error:
                produced.error = "NETWORK_EXCEPTION"
            return
        partition = self.world.partitions[0]
        self.world.arrive_produce(message.target, produced.acks, _PRODUCE_TIMEOUT_MS, [(partition, produced)])

    def _look_at_clients(self) -> None:
        """Draw the responses that clients have got."""
        for produced in self.produced:
            outcome = f"{produced.outcome} {produced.error} {produced.base_offset}"
            known = self._outcomes.get(produced.first_number)
            if known is not None and known != outcome:
                self._outcomes[produced.first_number] = outcome
                sent = next(one for one in reversed(self.post.kept) if one.payload is produced)
                self.post.responded(sent, self._response_text(produced))

    def _response_text(self, produced: Produced) -> str:
        if produced.outcome == "ok":
            return f"Produce response({kinds.names_of_records(produced)}: offset {produced.base_offset})"
        return f"Produce response({kinds.names_of_records(produced)}: {produced.error or 'no response'})"

    # Actions

    def _message(self, action: Action) -> Message:
        number = action.value("message")
        message = self.post.by_number.get(number)
        if message is None:
            raise ActionError(f"there is no message {number}")
        if message.fate != IN_FLIGHT:
            raise ActionError(f"message {number} is not in flight any more: it {message.fate}")
        return message

    def deliver(self, action: Action) -> str:
        """Let a message arrive."""
        message = self._message(action)
        if not self._may_arrive(message, by_hand=True):
            raise ActionError(f"message {message.number} can't arrive: {message.note}")
        self._arrive(message)
        return f"{message.text} arrived at {_name(message.target)}."

    def lose(self, action: Action) -> str:
        """Lose a message; who sent it goes on as the protocol does."""
        message = self._message(action)
        consequence = self.post.lose(message)
        return f"{message.text} to {_name(message.target)} is lost{consequence}."

    def repeat(self, action: Action) -> str:
        """Let a message arrive, and stay in flight to arrive once more."""
        message = self._message(action)
        if message.kind == kinds.FETCH:
            raise ActionError("a follower has one fetch in flight and never repeats it; lose it, and it sends another")
        if not self._may_arrive(message, by_hand=True):
            raise ActionError(f"message {message.number} can't arrive: {message.note}")
        message.is_held = True
        self._arrive(message, again=True)
        return f"{message.text} arrived at {_name(message.target)}, and will arrive once more."

    def delay(self, action: Action) -> str:
        """Let a message wait for a hand."""
        message = self._message(action)
        message.is_held = True
        return f"{message.text} waits until it is delivered."

    def produce(self, action: Action) -> str:
        """Send a client's batch."""
        produced = self.world.clients.send(ACKS[action.value("acks")], action.value("count"))
        return self._send_batch(produced, action.value("broker"))

    def produce_idempotently(self, action: Action) -> str:
        """Send the idempotent producer's batch, perhaps again."""
        return self._send_batch(self.world.clients.send_idempotent(action.value("count")), action.value("broker"))

    def _send_batch(self, produced: Produced, broker_id: int) -> str:
        if produced not in self.produced:
            self.produced.append(produced)
        self._outcomes.setdefault(produced.first_number, f"{produced.outcome} {produced.error} {produced.base_offset}")
        self.post.send(kinds.PRODUCE, CLIENT, broker_id, kinds.text_of_produce(produced), produced)
        acks = "all" if produced.acks == ACKS_ALL else produced.acks
        return f"A client sent {kinds.names_of_records(produced)} to broker {broker_id} with acks={acks}."

    def consume(self, action: Action) -> str:
        """Read from the start what a broker gives a consumer."""
        broker_id = action.value("broker")
        self._need_up(broker_id)
        self.world.consume(broker_id, {AT: 0})
        broker, reading = self.world.brokers[broker_id], Reading()
        request = FetchRequest(CONSUMER, 0, 1, 1 << 20, [FetchPartition(AT, 0, 1 << 20)])
        broker.execute(broker.core.fetch(request, reading, self.world.now_ms))
        numbers, error = self.post.numbers_read(reading)
        if error:
            return f"Broker {broker_id} refused the consumer's fetch: {error}."
        self.reads.append(Read(broker_id, self.step, numbers))
        named = ", ".join(f"m{number}" for number in numbers) or "no records"
        return f"A consumer read {named} from broker {broker_id}."

    def kill(self, action: Action) -> str:
        """Kill a process."""
        broker_id = self._need_running(action)
        self.world.kill(broker_id)
        self._has_died(broker_id)
        return f"Broker {broker_id} was killed. Its session lasts {SESSION_TIMEOUT_MS // 1000} s, unless it is ended."

    def _has_died(self, broker_id: int) -> None:
        """Let the session of a dead process run out; a hold is in the process and ends with it."""
        self.silent_since.setdefault(broker_id, self.world.now_ms)
        self.held.discard(broker_id)

    def stop(self, action: Action) -> str:
        """Shut a process down in order."""
        broker_id = self._need_running(action)
        self._need_up(broker_id)
        world = self.world
        if broker_id not in world.without_session and world.elected in world.controllers:
            world.leave(broker_id, world.elected)
            self._send_all()
        moved = broker_id in world.leaving
        world.stop(broker_id)
        self._has_died(broker_id)
        self.silent_since.pop(broker_id, None)
        how = "after its leaders had moved" if moved else "without a response of the controller"
        return f"Broker {broker_id} shut down {how}; its session is closed."

    def pause(self, action: Action) -> str:
        """Pause a process."""
        broker_id = self._need_running(action)
        self._need_up(broker_id)
        self.world.paused.add(broker_id)
        self.world.note("fault", broker_id, action="pause")
        self.silent_since[broker_id] = self.world.now_ms
        return f"Broker {broker_id} is paused (SIGSTOP)."

    def resume(self, action: Action) -> str:
        """Resume a paused process."""
        broker_id = action.value("broker")
        if broker_id not in self.world.paused:
            raise ActionError(f"broker {broker_id} is not paused")
        self.world.paused.discard(broker_id)
        self.world.note("fault", broker_id, action="resume")
        if broker_id not in self.parted:
            self.silent_since.pop(broker_id, None)
        self.world.pass_time(0)
        return f"Broker {broker_id} continues."

    def start(self, action: Action) -> str:
        """Start a process, or register one again whose session has ended."""
        broker_id = action.value("broker")
        world = self.world
        if not world.brokers[broker_id].is_running:
            self.parted.discard(broker_id)
            self.silent_since.pop(broker_id, None)
            world.start(broker_id)
            return f"Broker {broker_id} started on its old disks."
        if broker_id in self.parted:
            raise ActionError(f"broker {broker_id} does not reach ZooKeeper: heal its link first")
        if broker_id in world.without_session and world.is_up(broker_id):
            self._resign(broker_id)
            world.register_again(broker_id)
            return f"Broker {broker_id} registered again, with a new session."
        raise ActionError(f"broker {broker_id} is up")

    def power_loss(self, action: Action) -> str:
        """End the power of a machine: each log keeps what was flushed."""
        broker_id = self._need_running(action)
        self._need_replica(broker_id)
        keep = self.world.brokers[broker_id].replica.flushed
        end = self.world.brokers[broker_id].log.log_end_offset
        self.world.cut_power(broker_id, keep)
        self._has_died(broker_id)
        return f"Broker {broker_id} lost power: of {end} records its disk keeps {keep}."

    def flush(self, action: Action) -> str:
        """Put all on disk."""
        broker_id = self._need_running(action)
        self.world.brokers[broker_id].flush()
        return f"Broker {broker_id} flushed its log."

    def checkpoint(self, action: Action) -> str:
        """Write the high watermarks to the checkpoint file."""
        broker_id = self._need_running(action)
        self.world.brokers[broker_id].write_checkpoint()
        return f"Broker {broker_id} wrote replication-offset-checkpoint."

    def hold_fetch(self, action: Action) -> str:
        """Let a follower send no further fetch."""
        broker_id = action.value("broker")
        self._need_replica(broker_id)
        if broker_id in self.held:
            raise ActionError(f"the fetches of broker {broker_id} are held already")
        self.held.add(broker_id)
        self.post.hold_fetches(broker_id, hold=True)
        self.world.note("fault", broker_id, action="hold-fetch")
        return f"Broker {broker_id} sends no further fetch until it is released."

    def release_fetch(self, action: Action) -> str:
        """Let a follower fetch by itself again."""
        broker_id = action.value("broker")
        if broker_id not in self.held:
            raise ActionError(f"the fetches of broker {broker_id} are not held")
        self.held.discard(broker_id)
        self.post.hold_fetches(broker_id, hold=False)
        self.world.note("fault", broker_id, action="release-fetch")
        return f"Broker {broker_id} fetches by itself again."

    def step_fetch(self, action: Action) -> str:
        """Let a held follower do one round."""
        broker_id = action.value("broker")
        self._need_up(broker_id)
        if broker_id not in self.held:
            raise ActionError(f"the fetches of broker {broker_id} are not held: hold them first")
        return self._step(broker_id)

    def send_fetch(self, action: Action) -> str:
        """Let a held follower send its request, and the leader respond to it; the response stays in flight."""
        broker_id = action.value("broker")
        self._need_up(broker_id)
        if broker_id not in self.held:
            raise ActionError(f"the fetches of broker {broker_id} are not held: hold them first")
        return self._step(broker_id, half=True)

    def _step(self, broker_id: int, *, half: bool = False) -> str:
        """Do one round: a request, its response, the append. A request that waits at the leader is given its time."""
        for message in [one for one in self.post.in_flight() if one.source == broker_id and one.kind == kinds.FETCH]:
            if self._may_arrive(message, by_hand=True):
                self._arrive(message)
        if not self.world.open_rounds[broker_id]:
            self.post.ask(broker_id)
            if not self.world.open_rounds[broker_id]:
                self._pass_time(200)  # a back-off after an error
                self.post.ask(broker_id)
        rounds = [*self.world.open_rounds[broker_id]]
        if not rounds:
            raise ActionError(f"broker {broker_id} has nothing to fetch now: it follows no leader that it knows")
        done = []
        for exchange in rounds:
            request = self.post.message_of(exchange, kinds.FETCH)
            if request is not None and request.fate == IN_FLIGHT:
                if not self._may_arrive(request, by_hand=True):
                    return f"{request.text} of broker {broker_id} is in flight: {request.note}."
                self._arrive(request)
            if half:
                continue
            if exchange.response is None:
                self._pass_time(FETCH_WAIT_MS)
            self.post.collect(self.held, asks=False)
            response = self.post.message_of(exchange, kinds.FETCH_RESPONSE)
            if response is not None and response.fate == IN_FLIGHT and self._may_arrive(response, by_hand=True):
                self._arrive(response)
                done.append(response.text)
        if half:
            return f"Broker {broker_id} sent its fetch; the leader knows its log end offset."
        return f"Broker {broker_id} did one round: {'; '.join(done) or 'it has got no response'}."

    def cut_link(self, action: Action) -> str:
        """Cut a link one way."""
        one, other = action.value("broker"), action.value("other")
        if one == other:
            raise ActionError("a broker needs no link to itself")
        if (one, other) in self.world.cut_links:
            raise ActionError(f"calls from {one} to {other} are cut already")
        self.world.cut_links.add((one, other))
        self.world.note("fault", one, action="isolate", **{"from": [other], "direction": "out"})
        return f"Calls from broker {one} do not reach broker {other}."

    def part_zookeeper(self, action: Action) -> str:
        """Part a broker from ZooKeeper."""
        broker_id = self._need_running(action)
        if broker_id in self.parted:
            raise ActionError(f"broker {broker_id} does not reach ZooKeeper already")
        self.parted.add(broker_id)
        self.silent_since.setdefault(broker_id, self.world.now_ms)
        self.world.note("fault", broker_id, action="isolate", **{"from": "zookeeper", "direction": "both"})
        return f"Broker {broker_id} does not reach ZooKeeper."

    def heal_links(self, action: Action) -> str:
        """Let all links work again."""
        del action
        if not self.world.cut_links and not self.parted:
            raise ActionError("no link is cut")
        for broker_id in sorted(self.parted):
            if self.world.is_up(broker_id):
                self.silent_since.pop(broker_id, None)
            self.world.note("fault", broker_id, action="heal")
        self.parted.clear()
        for broker_id in sorted({one for one, _ in self.world.cut_links}):
            self.world.note("fault", broker_id, action="heal")
        self.world.cut_links.clear()
        return "All links work again."

    def end_session(self, action: Action) -> str:
        """End a broker's session."""
        broker_id = action.value("broker")
        if broker_id in self.world.without_session:
            raise ActionError(f"broker {broker_id} has no session")
        self._expire(broker_id)
        return f"ZooKeeper ended the session of broker {broker_id}."

    def _expire(self, broker_id: int) -> None:
        self.world.expire(broker_id)
        self._send_all()

    def elect(self, action: Action) -> str:
        """Elect the preferred replica."""
        del action
        term = None if self.world.elected is None else self.world.controllers.get(self.world.elected)
        if term is None:
            raise ActionError("there is no controller")
        if not term.has_to_rebalance():
            raise ActionError("the preferred replica leads already, or is not in sync")
        term.rebalance()
        return "The controller elects the preferred replica."

    def wait(self, action: Action) -> str:
        """Let time go on; followers that fetch by themselves do so all the while."""
        ms = action.value("ms")
        left = ms
        while left > 0:
            piece = min(left, FETCH_WAIT_MS)
            left -= piece
            self._pass_time(piece)
            if self.settings.by_hand:
                self._send_all()
            else:
                self._rest()
        return f"{ms / 1000:g} s passed."

    def _pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)
        for broker_id, since in sorted(self.silent_since.items()):
            silent_ms = self.world.now_ms - since
            if silent_ms >= SESSION_TIMEOUT_MS and broker_id not in self.world.without_session:
                self._expire(broker_id)

    # What actions need

    def _need_running(self, action: Action) -> int:
        broker_id = action.value("broker")
        if not self.world.brokers[broker_id].is_running:
            raise ActionError(f"broker {broker_id} is down")
        return broker_id

    def _need_up(self, broker_id: int) -> None:
        if not self.world.is_up(broker_id):
            state = "paused" if broker_id in self.world.paused else "down"
            raise ActionError(f"broker {broker_id} is {state}")

    def _need_replica(self, broker_id: int) -> None:
        if broker_id not in self.world.replicas:
            raise ActionError(f"broker {broker_id} has no replica: it is the controller alone")


def _name(broker_id: int) -> str:
    return "the client" if broker_id == CLIENT else f"broker {broker_id}"


_DO: dict[str, Callable[[HandDriven, Action], str]] = {name: getattr(HandDriven, name) for name in KINDS}
