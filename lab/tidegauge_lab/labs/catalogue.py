"""All labs, in their order. Pure."""

from __future__ import annotations

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.near_names import did_you_mean
from tidegauge_lab.labs.checks import acknowledgement, elections, groups, loss, network, quorum, shares, transactions
from tidegauge_lab.labs.model import Lab, Topic

ORDERS = Topic("orders", ((1, 2, 0),))
"""One partition on three brokers. The controller, broker 0, is the last of its replicas, so the others die first."""
LONG_PATIENCE = {"replica.lag.time.max.ms": "600000"}
"""A follower that is held stays in the ISR."""
LONG_SESSION = {"zookeeper.session.timeout.ms": "18000"}
"""Kafka's default: if no broker has to die, a busy machine is not mistaken for a dead broker."""

SHARE_GROUPS = "Kafka has share groups in KRaft mode alone"

LABS: tuple[Lab, ...] = (
    Lab(
        1,
        "acks-all",
        acknowledgement.dead_follower,
        (ORDERS,),
        {**LONG_PATIENCE, **LONG_SESSION},
    ),
    Lab(
        2,
        "min-insync-replicas",
        acknowledgement.too_few_in_sync,
        (Topic("orders", ((0, 1, 2),), {"min.insync.replicas": "2"}),),
        LONG_PATIENCE,
        brokers=4,
        controller=3,
    ),
    Lab(3, "high-watermark", acknowledgement.one_round_late, (ORDERS,), {**LONG_PATIENCE, **LONG_SESSION}),
    Lab(4, "acks-1", loss.acknowledged_by_the_leader_alone, (ORDERS,), LONG_PATIENCE),
    Lab(
        5,
        "truncation",
        loss.truncated_or_not,
        (ORDERS,),
        {
            **LONG_PATIENCE,
            "replica.truncation.rule": "high-watermark",
            "replica.high.watermark.checkpoint.interval.ms": "3600000",
        },
    ),
    Lab(
        6,
        "unclean-election",
        elections.unclean,
        (Topic("orders", ((1, 2),), {"unclean.leader.election.enable": "true"}),),
    ),
    Lab(
        7,
        "slow-follower",
        acknowledgement.slow_follower,
        (ORDERS,),
        {"replica.lag.time.max.ms": "15000", **LONG_SESSION},
    ),
    Lab(
        8, "preferred-leader", elections.preferred, (Topic("orders", ((1, 2, 0), (2, 0, 1), (1, 0, 2))),), LONG_SESSION
    ),
    Lab(
        9,
        "controller",
        elections.two_controllers,
        (Topic("orders", ((0, 1, 2),)),),
        LONG_PATIENCE,
        zookeeper_only="it is about a broker that is the controller by its znode /controller; of a quorum's "
        "controllers lab `quorum` tells",
    ),
    Lab(
        10,
        "offsets-topic",
        groups.one_offsets_replica,
        (Topic("orders", ((2, 0, 1),)), Topic("__consumer_offsets", ((1,),), {"cleanup.policy": "compact"})),
        {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"},
    ),
    Lab(11, "rebalance-storm", groups.storm_and_calm, (ORDERS,), LONG_SESSION),
    Lab(12, "crash-before-commit", groups.twice_and_never, (ORDERS, Topic("shipped", ((1, 2, 0),))), LONG_SESSION),
    Lab(13, "producer-fencing", transactions.fenced, (ORDERS,), LONG_SESSION),
    Lab(14, "last-stable-offset", transactions.held_readers, (ORDERS,), LONG_SESSION),
    Lab(15, "advertised-listeners", network.advertised_listeners, (ORDERS,), LONG_SESSION, advertised_port=9),
    Lab(
        16,
        "reconciliation",
        groups.reconciled,
        (Topic("orders", ((0, 1, 2), (1, 2, 0), (2, 0, 1))),),
        {
            "group.consumer.min.heartbeat.interval.ms": "500",
            "group.consumer.heartbeat.interval.ms": "500",
            "group.consumer.assignment.interval.ms": "0",
        },
        kraft_only="Kafka has the consumer protocol (KIP-848) in KRaft mode alone",
    ),
    Lab(
        17,
        "poison-record",
        shares.poison_record,
        (ORDERS,),
        {
            "group.share.delivery.count.limit": "3",
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.record.lock.duration.ms": "3000",
        },
        kraft_only=SHARE_GROUPS,
    ),
    Lab(18, "forgotten-deliveries", shares.forgotten_deliveries, (ORDERS,), kraft_only=SHARE_GROUPS),
    Lab(
        19,
        "quorum",
        quorum.majority_lost,
        (Topic("orders", ((0, 1, 2),)),),
        LONG_SESSION,
        kraft_only="it is about a quorum of controllers",
    ),
    Lab(
        20,
        "eligible-leaders",
        quorum.eligible_leader,
        (Topic("orders", ((0, 1, 2),), {"min.insync.replicas": str(quorum.MIN_ISR)}),),
        LONG_PATIENCE,
        kraft_only="eligible leader replicas are known to the controllers of a quorum (KIP-966)",
    ),
)


def lab_named(name: str) -> Lab:
    """Return a lab by its name or its number.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is none; the sentence says which may be meant.
    """
    for lab in LABS:
        if name in {lab.name, str(lab.number)}:
            return lab
    hint = did_you_mean(name, [lab.name for lab in LABS], "; `tidegauge lab list` shows them")
    raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there is no lab {name!r}{hint}")
