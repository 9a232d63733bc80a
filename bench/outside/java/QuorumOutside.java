package org.apache.kafka.common.test;

import java.util.Map;

import kafka.raft.KafkaRaftManager;
import kafka.server.ControllerServer;

import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;

import org.mockito.Mockito;
import org.opentest4j.TestAbortedException;

/**
 * What a test may ask of a quorum outside of its JVM: the end of the leader's metadata log, by DescribeQuorum.
 *
 * <p>What else it asks of a controller aborts the test.
 */
final class QuorumOutside {
    private final String servers;

    /**
     * @param servers the addresses of brokers.
     */
    QuorumOutside(String servers) {
        this.servers = servers;
    }

    ControllerServer controller() {
        RaftLog log = mock(RaftLog.class, "endOffset", () -> new LogOffsetMetadata(endOffset()));
        KafkaRaftManager<?> manager = mock(KafkaRaftManager.class, "raftLog", () -> log);
        return mock(ControllerServer.class, "raftManager", () -> manager);
    }

    private interface Asked {
        Object get() throws Exception;
    }

    private static <T> T mock(Class<T> type, String known, Asked value) {
        return Mockito.mock(type, call -> {
            String name = call.getMethod().getName();
            if (name.equals(known)) {
                return value.get();
            }
            return switch (name) {
                case "toString", "hashCode", "equals" -> Mockito.RETURNS_DEFAULTS.answer(call);
                default -> throw new TestAbortedException("not for a cluster outside of the test's JVM: it looks into "
                    + type.getSimpleName() + " of the quorum: " + name);
            };
        });
    }

    private long endOffset() throws Exception {
        try (Admin admin = Admin.create(Map.of(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, servers))) {
            QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
            return quorum.voters().stream().filter(one -> one.replicaId() == quorum.leaderId()).findFirst()
                .orElseThrow().logEndOffset();
        }
    }
}
