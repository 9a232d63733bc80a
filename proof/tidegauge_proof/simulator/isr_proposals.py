"""ISR proposals of the simulated brokers: waiting for their turn, in flight, and decided (AlterPartitionManager)."""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.control import AlterPartitionRequest, AlterPartitionResponse, IsrProposal, IsrVerdict
from tidegauge.errors import ErrorCode
from tidegauge_proof.simulator.controllers.ports import Term
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.traffic import Traffic, Verdict

_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up
_RETRIED = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Errors after which a broker sends its proposal again (as its AlterPartitionManager does)."""


class IsrProposals:
    """The proposals of all brokers; see the module.

    Args:
        brokers: that make them.
        controllers: of all terms that have not ended, by broker; the caller's, who changes it.
        traffic: where verdicts are put, which are on their way.

    Attributes:
        outbox: what waits at each broker, in the order in which it was made.
        asking: the proposal that a broker has in flight: one at a time.
    """

    def __init__(self, brokers: Mapping[int, MemoryBroker], controllers: Mapping[int, Term], traffic: Traffic) -> None:
        self._brokers = brokers
        self._controllers = controllers
        self._traffic = traffic
        self.outbox: dict[int, list[IsrProposal]] = {b: [] for b in brokers}
        self.asking: dict[int, IsrProposal] = {}
        self._questions: dict[int, object] = {}
        self._asked_epochs = dict.fromkeys(brokers, 0)
        """The epoch of the latest controller that each broker has asked."""

    def may_propose(self, broker_id: int) -> bool:
        """Whether a proposal of the broker waits, and none is in flight."""
        return bool(self.outbox[broker_id]) and broker_id not in self.asking

    def forget(self, broker_id: int) -> None:
        """Drop the state of a process that has died; responses on their way find another one."""
        self.outbox[broker_id] = []
        self.asking.pop(broker_id, None)
        self._questions.pop(broker_id, None)

    def may_ask(self, broker_id: int, controller: int) -> bool:
        """Whether a broker may take a controller for the one there is: ``/controller`` never goes back for a reader.

        So a proposal that a later controller may have written is not refused by an earlier one, on which the rule for
        a rejection relies (AlterPartitionManager).
        """
        return self._controllers[controller].epoch >= self._asked_epochs[broker_id]

    def propose(self, broker_id: int, controller: int) -> None:
        """Deliver the broker's next proposal to a controller, if it waits for its turn."""
        self._asked_epochs[broker_id] = self._controllers[controller].epoch
        broker = self._brokers[broker_id]
        proposal = self.outbox[broker_id].pop(0)
        request = AlterPartitionRequest(broker_id, broker.broker_epoch, [proposal])
        self.asking[broker_id] = proposal
        asked = self._questions[broker_id] = object()

        def done(response: AlterPartitionResponse | None) -> None:
            if self._questions.get(broker_id) is not asked:
                return  # the broker has given this request up
            verdict = None
            if response is not None and response.error is _NONE:
                verdict = response.partitions[0]
            elif response is not None and response.error not in _RETRIED:
                verdict = IsrVerdict(proposal.topic_partition, response.error)
            self._traffic.verdicts.append(Verdict(broker, asked, proposal, verdict))

        self._controllers[controller].alter_partition(request, done)

    def ask_again(self, broker_id: int) -> None:
        """Time out the broker's wait for a verdict; it sends the proposal again, and the first may still be taken."""
        self._questions.pop(broker_id, None)
        self.outbox[broker_id].insert(0, self.asking.pop(broker_id))

    def tell(self, verdict: Verdict, now_ms: int) -> None:
        """Deliver a verdict to the leader. Without a verdict the same proposal is sent again."""
        broker = verdict.broker
        if self._questions.get(broker.broker_id) is not verdict.request:
            return  # given up while the verdict was on its way, or the process is another
        del self._questions[broker.broker_id], self.asking[broker.broker_id]
        if verdict.verdict is None:
            self.outbox[broker.broker_id].insert(0, verdict.proposal)
        else:
            broker.execute(broker.core.isr_verdict(verdict.proposal, verdict.verdict, now_ms))
