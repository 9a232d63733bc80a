"""The settings of the replication core, out of a broker's."""

from __future__ import annotations

from tidegauge.settings import Values
from tidegauge_broker.replica.messages import CoreSettings


def core_settings(settings: Values, *, is_kafka_4: bool = False) -> CoreSettings:
    """Return the core's settings out of a broker's.

    Args:
        settings: the broker's.
        is_kafka_4: whether the broker is one of Kafka 4 (KRaft mode).
    """
    return CoreSettings(
        replica_lag_time_max_ms=settings.integer("replica.lag.time.max.ms"),
        replica_fetch_max_bytes=settings.integer("replica.fetch.max.bytes"),
        replica_fetch_backoff_ms=settings.integer("replica.fetch.backoff.ms"),
        fetch_max_bytes=settings.integer("fetch.max.bytes"),
        producer_id_expiration_ms=settings.integer("producer.id.expiration.ms"),
        truncation_rule=settings.text("replica.truncation.rule"),
        verifies_transactions=settings.flag("transaction.partition.verification.enable"),
        judges_open_epochs=is_kafka_4,
        reelected_leader_keeps_follower_state=settings.flag("replica.reelected.leader.keeps.follower.state"),
        refuses_previous_incarnation=not settings.flag("controller.failover.trusts.restarted.brokers"),
    )
