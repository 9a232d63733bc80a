"""All replicas of one broker as one state machine: events in, effects out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegauge.control import (
    IsrVerdict,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import Effect
from tidegauge_broker.replica.messages import (
    CoreSettings,
    EpochAnswer,
    EpochQuestion,
    EpochRound,
    FetchedPartition,
    FetchRequest,
    FetchRound,
    OffsetAnswer,
    ProduceRequest,
    ReplicaView,
    TimeLookup,
    TopicRules,
    Wait,
)
from tidegauge_broker.replica.ports import LoadedLog, Logs
from tidegauge_broker.replica.producer_state import ProducerState


class BrokerCore:
    """The replicas of one broker. Every method returns the effects to execute, in order."""

    def __init__(self, broker_id: int, settings: CoreSettings, logs: Logs) -> None: ...

    # What the controller says
    def set_broker_epoch(self, broker_epoch: int) -> None:
        """A (new) registration in ZooKeeper."""

    def brokers_alive(self, broker_ids: Collection[int], now_ms: int) -> list[Effect]:
        """The live brokers of the metadata cache; call it before leader_and_isr of the same news."""

    def check_controller_epoch(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Fence a control request (STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH) and adopt a newer controller epoch.
        Called by the shell for UpdateMetadata; leader_and_isr and stop_replica call it themselves."""

    def logs_needed(self, request: LeaderAndIsrRequest) -> list[TopicPartition]:
        """The partitions whose log must be opened or created before leader_and_isr may be called."""

    def leader_and_isr(
        self,
        request: LeaderAndIsrRequest,
        loaded: Mapping[TopicPartition, LoadedLog | ErrorCode],
        now_ms: int,
    ) -> tuple[PartitionsResponse, list[Effect]]:
        """Become leader or follower. Execute the effects, then answer."""

    def stop_replica(self, request: StopReplicaRequest, now_ms: int) -> tuple[PartitionsResponse, list[Effect]]:
        """Stop replicas, and drop those that are to be deleted."""

    def configure_topic(self, topic: str, rules: TopicRules) -> None:
        """A topic's settings; call it before the topic's first leader_and_isr and at each change."""

    # What clients and followers ask
    def produce(self, request: ProduceRequest, token: object, now_ms: int) -> list[Effect]:
        """Append; AnswerProduce(token) comes now or later."""

    def fetch(self, request: FetchRequest, token: object, now_ms: int) -> list[Effect]:
        """Read; AnswerFetch(token) comes now or later."""

    def cancel(self, token: object) -> None:
        """The asker has gone: forget its parked operation."""

    def list_offset(
        self, topic_partition: TopicPartition, current_leader_epoch: int | None, timestamp_ms: int
    ) -> OffsetAnswer | TimeLookup:
        """Offsets by time for consumers."""

    def offset_for_leader_epoch(self, question: EpochQuestion) -> EpochAnswer:
        """Where an epoch ends in this broker's log, if it leads."""

    def isr_verdict(self, verdict: IsrVerdict, now_ms: int) -> list[Effect]:
        """The controller's answer to a ProposeIsr."""

    # What this broker asks as a follower
    def leaders_followed(self) -> set[int]:
        """Brokers that lead a partition which this broker follows."""

    def next_round(self, leader: int, now_ms: int) -> tuple[FetchRound | EpochRound | Wait, list[Effect]]:
        """What to ask this leader now; marks the round as the outstanding one of its partitions."""

    def fetch_answered(
        self, leader: int, request_id: int, partitions: Sequence[FetchedPartition], now_ms: int
    ) -> list[Effect]:
        """The answer to a FetchRound. Partitions of the round that are not in it had nothing new."""

    def epochs_answered(
        self, leader: int, request_id: int, partitions: Sequence[EpochAnswer], now_ms: int
    ) -> list[Effect]:
        """The answer to an EpochRound."""

    def round_failed(self, leader: int, request_id: int, now_ms: int) -> list[Effect]:
        """The round got no answer: its partitions pause for replica.fetch.backoff.ms."""

    # What happens by itself
    def tick(self, now_ms: int) -> list[Effect]:
        """Expire waiting operations and look for laggards, as far as it is time."""

    def next_deadline_ms(self) -> int | None:
        """When tick has something to do next."""

    def log_truncated(self, topic_partition: TopicPartition, producer_state: ProducerState) -> None:
        """A TruncateLog or TruncateFully effect was executed."""

    def log_start_advanced(self, topic_partition: TopicPartition, log_start_offset: int) -> list[Effect]:
        """The log manager deleted old segments."""

    def log_dir_failed(self, topic_partitions: Collection[TopicPartition], now_ms: int) -> list[Effect]:
        """These replicas' folder is offline."""

    # What can be seen
    def describe(self, topics: Collection[str] | None = None) -> list[ReplicaView]:
        """All local replicas, by topic and partition."""

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """For replication-offset-checkpoint: every local replica, offline ones excepted."""
