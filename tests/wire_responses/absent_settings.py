"""Kafka 3.9.1's broker settings that Tidegauge does not have, each under the reason why; docs/not-emulated.md has more.

Every setting is named: one that Kafka describes and we do not is a difference, unless it is listed here.
"""

from __future__ import annotations

from collections.abc import Mapping

ABSENT: Mapping[str, str] = {
    "KRaft, and the migration to it": """
        broker.heartbeat.interval.ms broker.session.timeout.ms controller.listener.names
        controller.quorum.append.linger.ms controller.quorum.bootstrap.servers
        controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
        controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
        controller.quorum.voters early.start.listeners eligible.leader.replicas.enable
        initial.broker.registration.timeout.ms metadata.log.dir metadata.log.max.record.bytes.between.snapshots
        metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.ms
        metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms node.id process.roles
        sasl.mechanism.controller.protocol zookeeper.metadata.migration.enable
    """,
    "share groups, which Kafka has in KRaft alone": """
        group.share.max.groups
    """,
    "tiered storage": """
        remote.fetch.max.wait.ms remote.log.index.file.cache.total.size.bytes
        remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
        remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
        remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.task.interval.ms remote.log.manager.thread.pool.size
        remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
        remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
        remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.reader.threads
        remote.log.storage.manager.class.name remote.log.storage.manager.class.path
        remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
    """,
    "of SASL: Kerberos, signed tokens, and classes of a user's own": """
        sasl.client.callback.handler.class sasl.kerberos.kinit.cmd
        sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
        sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
        sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
        sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
        sasl.server.callback.handler.class
    """,
    "delegation tokens": """
        delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms delegation.token.master.key
        delegation.token.max.lifetime.ms delegation.token.secret.key
    """,
    "classes of a user's own: authorizers, policies, principals, callbacks": """
        alter.config.policy.class.name client.quota.callback.class
        create.topic.policy.class.name principal.builder.class security.providers
    """,
    "of TLS certificates and keys are PEM, and gRPC's own versions and cipher suites hold": """
        ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites ssl.enabled.protocols
        ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
        ssl.keystore.password ssl.protocol ssl.provider ssl.secure.random.implementation
        ssl.trustmanager.algorithm ssl.truststore.password
    """,
    "TLS to ZooKeeper": """
        zookeeper.clientCnxnSocket zookeeper.ssl.cipher.suites zookeeper.ssl.client.enable zookeeper.ssl.crl.enable
        zookeeper.ssl.enabled.protocols zookeeper.ssl.endpoint.identification.algorithm
        zookeeper.ssl.keystore.location zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type
        zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol zookeeper.ssl.truststore.location
        zookeeper.ssl.truststore.password zookeeper.ssl.truststore.type
    """,
    "passwords are not kept in ZooKeeper": """
        password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
        password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
    """,
    "metrics over JMX, and those that clients push": """
        auto.include.jmx.reporter kafka.metrics.polling.interval.secs kafka.metrics.reporters metrics.num.samples
        metrics.recording.level metrics.sample.window.ms telemetry.max.bytes
    """,
    "the window of a quota of replication is Kafka's default": """
        alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
        replication.quota.window.num replication.quota.window.size.seconds
    """,
    "limits that are fixed here, or counted otherwise": """
        max.connections.per.ip.overrides max.request.partition.size.limit queued.max.request.bytes
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
    """,
    "one cleaner and one mover of replicas, as fast as the disk": """
        log.cleaner.io.buffer.load.factor log.cleaner.io.max.bytes.per.second num.replica.alter.log.dirs.threads
    """,
}
"""Names of settings, separated by spaces, by reason."""

OUR_OWN = frozenset(
    {
        "add.partitions.to.txn.retry.backoff.max.ms",
        "add.partitions.to.txn.retry.backoff.ms",
        "allow.everyone.if.no.acl.found",
        "controller.failover.trusts.restarted.brokers",
        "event.log.file",
        "follower.replication.throttled.rate",
        "group.consumer.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
        "group.consumer.migration.policy",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.regex.refresh.interval.ms",
        "group.share.assignment.interval.ms",
        "group.share.assignors",
        "group.share.initialize.retry.interval.ms",
        "group.share.max.assignment.interval.ms",
        "group.share.max.delivery.count.limit",
        "group.share.max.partition.max.record.locks",
        "group.share.max.share.sessions",
        "group.share.min.assignment.interval.ms",
        "group.share.min.delivery.count.limit",
        "group.share.min.partition.max.record.locks",
        "lab.controller.stop.file",
        "lab.enable",
        "lab.held",
        "lab.rules.file",
        "lab.session.file",
        "leader.replication.throttled.rate",
        "log.initial.task.delay.ms",
        "metrics.listener",
        "queued.max.response.bytes",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "replica.reelected.leader.keeps.follower.state",
        "replica.truncation.rule",
        "request.log.enable",
        "share.coordinator.append.linger.ms",
        "share.coordinator.cold.partition.snapshot.interval.ms",
        "share.coordinator.load.buffer.size",
        "share.coordinator.snapshot.update.records.per.snapshot",
        "share.coordinator.state.topic.compression.codec",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.prune.interval.ms",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.segment.bytes",
        "share.coordinator.threads",
        "share.coordinator.write.timeout.ms",
        "super.users",
        "tidegauge.as.kafka",
        "tidegauge.zookeeper.group.protocols",
    }
)
"""Settings that our brokers describe and Kafka's do not: our own, ones that Kafka has in ZooKeeper alone, and ones of
consumer groups, share groups and transactions v2, which Kafka 3.9 lacks or does not show in ZooKeeper mode."""
