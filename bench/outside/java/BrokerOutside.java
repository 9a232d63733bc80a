package org.apache.kafka.common.test;

import java.io.File;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;

import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeFeaturesOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import org.mockito.Mockito;
import org.mockito.stubbing.Answer;
import org.opentest4j.TestAbortedException;

/**
 * What a test may ask of the logs of a broker that runs outside of its JVM.
 *
 * <p>Whether a running broker has a replica is asked by DescribeLogDirs, whether it leads by the metadata of topics, and
 * its offset in the metadata log by the epoch of its finalized features; of a broker that does not run the folders tell.
 * What else a test asks of it aborts the test.
 */
final class BrokerOutside {
    private final int id;
    private final String server;
    private final List<String> directories;
    private final boolean[] runs;

    /**
     * @param id of the broker.
     * @param server its address.
     * @param directories its log directories.
     * @param runs whether it runs, in the first place.
     */
    BrokerOutside(int id, String server, List<String> directories, boolean[] runs) {
        this.id = id;
        this.server = server;
        this.directories = directories;
        this.runs = runs;
    }

    private <T> T mock(Class<T> type, Answer<?> known) {
        return Mockito.mock(type, call -> {
            Object found = known.answer(call);
            if (found != null) {
                return found;
            }
            return switch (call.getMethod().getName()) {
                case "toString", "hashCode", "equals" -> Mockito.RETURNS_DEFAULTS.answer(call);
                default -> throw new TestAbortedException("not for a cluster outside of the test's JVM: it looks into "
                    + type.getSimpleName() + " of broker " + id + ": " + call.getMethod().getName());
            };
        });
    }

    /** Returns the port of its listener. */
    int port() {
        return Integer.parseInt(server.substring(server.lastIndexOf(':') + 1));
    }

    KafkaConfig config() {
        return mock(KafkaConfig.class, call -> switch (call.getMethod().getName()) {
            case "brokerId", "nodeId" -> id;
            case "logDirs" -> directories;
            default -> null;
        });
    }

    LogManager logManager() {
        return mock(LogManager.class, call -> switch (call.getMethod().getName()) {
            case "getLog" -> scala.Option.apply(
                hosts(call.getArgument(0)) ? mock(UnifiedLog.class, asked -> null) : null);
            case "liveLogDirs" -> scala.jdk.javaapi.CollectionConverters.asScala(
                directories.stream().map(File::new).toList()).toSeq();
            default -> null;
        });
    }

    ReplicaManager replicaManager() {
        return mock(ReplicaManager.class, call -> switch (call.getMethod().getName()) {
            case "onlinePartition" -> scala.Option.apply(
                hosts(call.getArgument(0)) ? partition(call.getArgument(0)) : null);
            case "logManager" -> logManager();
            default -> null;
        });
    }

    /** Returns the part of its coordinator of groups that tells the settings of their topic. */
    GroupCoordinator groupCoordinator() {
        Properties settings = new Properties();
        settings.put(TopicConfig.CLEANUP_POLICY_CONFIG, TopicConfig.CLEANUP_POLICY_COMPACT);
        settings.put(TopicConfig.COMPRESSION_TYPE_CONFIG, "producer");
        settings.put(TopicConfig.SEGMENT_BYTES_CONFIG, "104857600");
        return mock(GroupCoordinator.class, call ->
            call.getMethod().getName().equals("groupMetadataTopicConfigs") ? settings : null);
    }

    /** Returns the part of its process that knows up to which offset of the metadata log it is. */
    SharedServer sharedServer() {
        MetadataLoader loader = mock(MetadataLoader.class, call ->
            call.getMethod().getName().equals("lastAppliedOffset") ? appliedOffset() : null);
        return mock(SharedServer.class, call -> call.getMethod().getName().equals("loader") ? loader : null);
    }

    private long appliedOffset() {
        try (Admin admin = admin()) {
            return admin.describeFeatures(new DescribeFeaturesOptions().nodeId(id)).featureMetadata().get()
                .finalizedFeaturesEpoch().orElse(-1L);
        } catch (Exception problem) {
            return -1L;
        }
    }

    private Partition partition(TopicPartition at) {
        return mock(Partition.class, call -> switch (call.getMethod().getName()) {
            case "leaderIdIfLocal" -> scala.Option.apply(leads(at) ? id : null);
            default -> null;
        });
    }

    private boolean hosts(TopicPartition at) {
        if (!runs[0]) {
            return directories.stream().anyMatch(directory -> new File(directory, at.toString()).exists());
        }
        try (Admin admin = admin()) {
            Map<String, LogDirDescription> found = admin.describeLogDirs(List.of(id)).allDescriptions().get().get(id);
            return found.values().stream().anyMatch(one -> one.replicaInfos().containsKey(at));
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    private boolean leads(TopicPartition at) {
        try (Admin admin = admin()) {
            return admin.describeTopics(List.of(at.topic())).allTopicNames().get().get(at.topic())
                .partitions().get(at.partition()).leader().id() == id;
        } catch (Exception problem) {
            return false;
        }
    }

    private Admin admin() {
        return Admin.create(Map.of(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, server));
    }
}
