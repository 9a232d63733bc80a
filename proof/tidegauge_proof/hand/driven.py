"""A cluster driven by hand: what each action does, before what follows by itself (``cluster``)."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge_broker.replica.messages import ACKS_ALL, CONSUMER, FetchPartition, FetchRequest
from tidegauge_proof.hand import messages as kinds
from tidegauge_proof.hand.actions import ABOUT_MESSAGES, ACKS, KINDS, OF_COORDINATORS, Action, ActionError
from tidegauge_proof.hand.cluster import HandCluster, Read
from tidegauge_proof.hand.messages import CLIENT, IN_FLIGHT, Message
from tidegauge_proof.hand.settings import SESSION_TIMEOUT_MS
from tidegauge_proof.simulator.clients import Produced
from tidegauge_proof.simulator.follower_rounds import FETCH_WAIT_MS
from tidegauge_proof.simulator.memory_broker import AT, Reading


class HandDriven(HandCluster):
    """The cluster; ``do`` does an action and all that follows from it."""

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
            said = self.guarded(lambda: begin(self, action))
        except ActionError:
            self.step -= 1
            self.post.step = self.step
            raise
        self.world.now_ms += 1
        if action.kind not in ABOUT_MESSAGES or not self.settings.by_hand:
            self.guarded(self.rest)
        else:
            self.guarded(self.send_all)
        self.guarded(self.look_at_clients)
        self.date_events()
        news = [] if self.applications is None else self.applications.news()
        return " ".join([*([said] if said else []), *news])

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
        if not self.may_arrive(message, by_hand=True):
            raise ActionError(f"message {message.number} can't arrive: {message.note}")
        self.arrive(message)
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
        if not self.may_arrive(message, by_hand=True):
            raise ActionError(f"message {message.number} can't arrive: {message.note}")
        message.is_held = True
        self.arrive(message, again=True)
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
        self.has_sent(produced)
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
        if self.coordination is not None:
            self.coordination.process_ended(broker_id)
        if self.settings.placed:
            self.post.break_held_fetches(broker_id)

    def stop(self, action: Action) -> str:
        """Shut a process down in order."""
        broker_id = self._need_running(action)
        self._need_up(broker_id)
        world = self.world
        if broker_id not in world.without_session and world.elected in world.controllers:
            world.leave(broker_id, world.elected)
            self.send_all()
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
            self.resign(broker_id)
            world.register_again(broker_id)
            return f"Broker {broker_id} registered again, with a new session."
        raise ActionError(f"broker {broker_id} is up")

    def power_loss(self, action: Action) -> str:
        """End the power of a machine: each log keeps its flushed part."""
        broker_id = self._need_running(action)
        self._need_replica(broker_id)
        broker = self.world.brokers[broker_id]
        keep, end = broker.replica.flushed, broker.log.log_end_offset
        self.world.cut_power(broker_id, {at: replica.flushed for at, replica in broker.replicas.items()})
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
            if self.may_arrive(message, by_hand=True):
                self.arrive(message)
        if not self.world.open_rounds[broker_id]:
            self.post.ask(broker_id)
            if not self.world.open_rounds[broker_id]:
                self.pass_time(200)  # a back-off after an error
                self.post.ask(broker_id)
        rounds = [*self.world.open_rounds[broker_id]]
        if not rounds:
            raise ActionError(f"broker {broker_id} has nothing to fetch now: it follows no leader that it knows")
        done = []
        for exchange in rounds:
            request = self.post.message_of(exchange, kinds.FETCH)
            if request is not None and request.fate == IN_FLIGHT:
                if not self.may_arrive(request, by_hand=True):
                    return f"{request.text} of broker {broker_id} is in flight: {request.note}."
                self.arrive(request)
            if half:
                continue
            if exchange.response is None:
                self.pass_time(FETCH_WAIT_MS)
            self.post.collect(self.held, asks=False)
            response = self.post.message_of(exchange, kinds.FETCH_RESPONSE)
            if response is not None and response.fate == IN_FLIGHT and self.may_arrive(response, by_hand=True):
                self.arrive(response)
                done.append(response.text)
        if half:
            return f"Broker {broker_id} sent its fetch; the leader knows its log end offset."
        return f"Broker {broker_id} did one round: {'; '.join(done) or 'it has got no response'}."

    def cut_link(self, action: Action) -> str:
        """Partition a link one way."""
        one, other = action.value("broker"), action.value("other")
        if one == other:
            raise ActionError("a broker needs no link to itself")
        if (one, other) in self.world.cut_links:
            raise ActionError(f"calls from {one} to {other} are partitioned already")
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
            raise ActionError("no link is partitioned")
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
        self.expire(broker_id)
        return f"ZooKeeper ended the session of broker {broker_id}."

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
            self.pass_time(piece)
            if self.settings.by_hand:
                self.send_all()
            else:
                self.rest()
        return f"{ms / 1000:g} s passed."

    def of_coordinators(self, action: Action) -> str:
        """Do what concerns transactions or groups."""
        if self.applications is None:
            raise ActionError("this cluster has no coordinators: choose 'transactions and groups' in the settings")
        said: str = self.applications.do(action)
        return said

    # Preconditions of actions

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
        if not any(broker_id in one.replicas for one in self.world.partitions):
            raise ActionError(f"broker {broker_id} has no replica: it is the controller alone")


def _name(broker_id: int) -> str:
    return "the client" if broker_id == CLIENT else f"broker {broker_id}"


_DO: dict[str, Callable[[HandDriven, Action], str]] = {
    name: HandDriven.of_coordinators if name in OF_COORDINATORS else getattr(HandDriven, name) for name in KINDS
}
