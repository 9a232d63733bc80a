"""Kafka's rules from which the sentences about a partition follow, each with its class, setting or KIP. Pure."""

from __future__ import annotations

RULE_ELECTION = (
    "the controller elects the first live member of the ISR in the order of the assignment "
    "(PartitionLeaderElectionAlgorithms.offlinePartitionLeaderElection)"
)
RULE_UNCLEAN = "only unclean.leader.election.enable=true lets a replica lead that is not in the ISR (KIP-106)"
RULE_ELIGIBLE = (
    "a replica that leaves an ISR which is, or becomes, smaller than min.insync.replicas has every committed record "
    "and stays eligible; if the ISR is empty the controller elects the first live eligible one in the order of the "
    "assignment (KIP-966, PartitionChangeBuilder.isValidNewLeader)"
)
RULE_UNCLEAN_RESTART = (
    "a broker that registers after a crash is no longer eligible, since its disk may have lost records (KIP-966, "
    "ReplicationControlManager.handleBrokerUncleanShutdown)"
)
RULE_LAST_LEADER = (
    "if neither the ISR nor the eligible replicas have a member, the last known leader is elected when it is alive, "
    "whatever unclean.leader.election.enable says, and the partition counts as recovering (KIP-966, "
    "PartitionChangeBuilder.canElectLastKnownLeader)"
)
RULE_HW = (
    "the HW is the smallest LEO over the leader, the maximal ISR, and live replicas that are caught up; it never falls "
    "(Partition.maybeIncrementLeaderHW)"
)
RULE_MIN_ISR = "below min.insync.replicas the HW does not move at all (Partition.maybeIncrementLeaderHW, since 3.7)"
RULE_LAG = (
    "a follower leaves the ISR when it has not had all of the leader's log for replica.lag.time.max.ms; the leader "
    "looks every half of that time (Partition.maybeShrinkIsr)"
)
RULE_CAUGHT_UP = (
    "a live replica that was caught up within replica.lag.time.max.ms holds the HW back though it is not in the ISR, "
    "so that it can join (Partition.maybeIncrementLeaderHW)"
)
RULE_PENDING = "while a change of the ISR is in flight the larger set counts (KIP-497, maximal ISR)"
RULE_JOIN = (
    "a follower joins the ISR by a fetch from an offset that is not below the HW, nor below the start of the leader's "
    "epoch (Partition.maybeExpandIsr)"
)
RULE_ALTER = "the ISR changes when the controller has written it (AlterPartition, KIP-497)"
RULE_LATE = "a follower learns the HW from the response to its next fetch, one round after the leader (KIP-101)"
RULE_ACKS = "acks=all is refused with NOT_ENOUGH_REPLICAS while the ISR is smaller than min.insync.replicas"
RULE_READ = "consumers read below the HW only (FetchIsolation.HIGH_WATERMARK)"
RULE_OFFSETS = (
    "a new leader does not report the latest offset until its HW has reached the start of its epoch "
    "(OFFSET_NOT_AVAILABLE, KIP-207)"
)
RULE_FAILED_DIRECTORY = "a replica whose log directory failed is offline (KIP-112)"
RULE_FETCH = (
    "a follower acknowledges by fetching: the offset it asks from is its LEO for the leader "
    "(Partition.updateFollowerFetchState)"
)
RULE_REASSIGNMENT = (
    "a reassignment ends when the ISR holds all target replicas; the others are then deleted "
    "(KafkaController.isReassignmentComplete)"
)
RULE_REFUSED = (
    "a broker refuses a LeaderAndIsr of an older controller epoch, broker epoch or leader epoch, or of another topic "
    "id (ReplicaManager.becomeLeaderOrFollower)"
)
RULE_VERDICT = (
    "after such a verdict the leader waits for a LeaderAndIsr with other news before it proposes an ISR again "
    "(Partition.handleAlterPartitionError)"
)
RULE_TOPIC_ID = (
    "a topic has one id: the controller reads it from /brokers/topics/T, and each replica keeps it in "
    "partition.metadata (KIP-516)"
)
RULE_PROCESS = "a broker whose process has ended leads nothing and follows nothing; its membership expires"
RULE_CONTROLLER = "only the active controller elects leaders and changes ISRs (/controller)"
RULE_ZOOKEEPER = "sessions end, leaders are elected and ISRs change by ZooKeeper's words alone (KafkaController)"
