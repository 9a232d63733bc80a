package org.apache.kafka.common.test;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;

import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;

import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.server.common.ApiMessageAndVersion;

import org.mockito.Mockito;
import org.opentest4j.TestAbortedException;

/**
 * Stands in for the class of Kafka's test kit: the cluster of a test is started outside of this JVM.
 *
 * <p>The system property {@code outside.cluster} is the command that starts clusters (bench/outside/test_kit.py). A test
 * that looks into the process of a broker or of a controller is aborted, so it counts as skipped, with the reason.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    private static final int FIRST_CONTROLLER = 3000;
    private final TestKitNodes nodes;
    private final Map<String, String> settings;
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final MockFaultHandler fatal = new MockFaultHandler("fatal");
    private final MockFaultHandler nonFatal = new MockFaultHandler("non-fatal");
    private Process process;
    private PrintWriter commands;
    private BufferedReader responses;
    private String servers = "";
    private String controllers = "";
    private String clusterId = "";
    private String[] directories = {};

    private KafkaClusterTestKit(TestKitNodes nodes, Map<String, String> settings) {
        this.nodes = nodes;
        this.settings = settings;
    }

    /** Collects what a test wants of its cluster. */
    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, String> settings = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String name, Object value) {
            settings.put(name, String.valueOf(value));
            return this;
        }

        public Builder setStandalone(boolean standalone) {
            return this;
        }

        public Builder setInitialVoterSet(Map<Integer, Uuid> voters) {
            return aborted("it names the voters of the quorum");
        }

        public Builder setDeleteOnClose(boolean delete) {
            return this;
        }

        public KafkaClusterTestKit build() {
            return new KafkaClusterTestKit(nodes, settings);
        }
    }

    private static <T> T aborted(String reason) {
        throw new TestAbortedException("not for a cluster outside of the test's JVM: " + reason);
    }

    public void format() {
        // The cluster is formatted when it starts.
    }

    public void startup() throws InterruptedException {
        if (!nodes.brokerListenerProtocol().name.equals("PLAINTEXT")) {
            aborted("its brokers' listener is " + nodes.brokerListenerProtocol());
        }
        try {
            process = new ProcessBuilder(List.of(System.getProperty("outside.cluster").split("\\|")))
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
            commands = new PrintWriter(process.outputWriter(), true);
            responses = new BufferedReader(new InputStreamReader(process.getInputStream()));
            settings.forEach((name, value) -> send("set", name, value));
            nodes.brokerNodes().forEach((id, node) ->
                node.propertyOverrides().forEach((name, value) -> send("set", id + ":" + name, value)));
            nodes.controllerNodes().forEach((id, node) ->
                node.propertyOverrides().forEach((name, value) -> send("set", id + ":" + name, value)));
            nodes.bootstrapMetadata().records().forEach(this::sendLevel);
            send("start", nodes.brokerNodes().size(), nodes.controllerNodes().size());
            String[] words = received();
            servers = words[0];
            controllers = words[1];
            clusterId = words[2];
            directories = words[3].split(",");
        } catch (IOException problem) {
            throw new IllegalStateException(problem);
        }
        nodes.brokerNodes().keySet().forEach(id -> brokers.put(id, broker(id)));
    }

    private void sendLevel(ApiMessageAndVersion record) {
        if (record.message() instanceof org.apache.kafka.common.metadata.FeatureLevelRecord level) {
            send("feature", level.name(), level.featureLevel());
        }
    }

    private void send(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.isEmpty() ? "" : "\t").append(word);
        }
        commands.println(line);
    }

    private String[] received() {
        try {
            String line = responses.readLine();
            if (line == null || line.startsWith("refused\t")) {
                return aborted(line == null ? "it did not start" : line.substring("refused\t".length()));
            }
            return line.split("\t", -1);
        } catch (IOException problem) {
            throw new IllegalStateException(problem);
        }
    }

    private synchronized void ask(Object... words) {
        send(words);
        received();
    }

    /** Returns a broker of which a test may ask its state, its metadata and logs of topics, its end and its start. */
    private BrokerServer broker(int id) {
        boolean[] runs = {true};
        BrokerOutside outside = new BrokerOutside(id, servers.split(",")[id], List.of(directories[id]), runs);
        BrokerServer broker = Mockito.mock(BrokerServer.class, call -> switch (call.getMethod().getName()) {
            case "brokerState" -> runs[0] ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
            case "isShutdown" -> !runs[0];
            case "clusterId" -> clusterId;
            case "metadataCache" -> metadataOf(id);
            case "config" -> outside.config();
            case "logManager" -> outside.logManager();
            case "replicaManager" -> outside.replicaManager();
            case "groupCoordinator" -> outside.groupCoordinator();
            case "boundPort" -> outside.port();
            case "sharedServer" -> outside.sharedServer();
            case "dataPlaneRequestProcessor" -> Mockito.mock(KafkaApis.class, asked ->
                asked.getMethod().getName().equals("isConsumerGroupProtocolEnabled")
                    ? true : aborted("it looks into broker " + id + ": " + asked.getMethod().getName()));
            case "shutdown" -> {
                ask("stop", id);
                runs[0] = false;
                yield null;
            }
            case "startup" -> {
                ask("restart", id);
                runs[0] = true;
                yield null;
            }
            case "awaitShutdown" -> null;
            case "toString", "hashCode", "equals" -> Mockito.RETURNS_DEFAULTS.answer(call);
            default -> aborted("it looks into broker " + id + ": " + call.getMethod().getName());
        });
        return broker;
    }

    private KRaftMetadataCache metadataOf(int id) {
        return Mockito.mock(KRaftMetadataCache.class, call -> switch (call.getMethod().getName()) {
            case "numPartitions" -> partitionsOf(servers.split(",")[id], call.getArgument(0));
            case "contains" -> partitionsOf(servers.split(",")[id], String.valueOf((Object) call.getArgument(0))).isPresent();
            default -> aborted("it looks into the metadata of broker " + id + ": " + call.getMethod().getName());
        });
    }

    private static Optional<Integer> partitionsOf(String server, String topic) {
        try (Admin admin = Admin.create(Map.of(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, server))) {
            TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            return Optional.of(found.partitions().size());
        } catch (Exception problem) {
            return Optional.empty();
        }
    }

    public void waitForReadyBrokers() {
        // They are when the cluster has started.
    }

    public Admin admin() {
        return admin(Map.of());
    }

    public Admin admin(Map<String, Object> configs) {
        return admin(configs, false);
    }

    public Admin admin(Map<String, Object> configs, boolean atControllers) {
        Map<String, Object> all = new HashMap<>(configs);
        if (atControllers) {
            all.put(AdminClientConfig.BOOTSTRAP_CONTROLLERS_CONFIG, controllers);
        } else {
            all.put(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, servers);
        }
        return Admin.create(all);
    }

    public Properties clientProperties() {
        Properties properties = new Properties();
        properties.put(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, servers);
        return properties;
    }

    public String bootstrapServers() {
        return servers;
    }

    public String bootstrapControllers() {
        return controllers;
    }

    /** Returns the quorum as one controller, of which a test may ask the end of the metadata log. */
    public Map<Integer, ControllerServer> controllers() {
        return servers.isEmpty() ? Map.of() : Map.of(FIRST_CONTROLLER, new QuorumOutside(servers).controller());
    }

    public Controller waitForActiveController() {
        return aborted("it looks into the active controller");
    }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    public Map<Integer, KafkaRaftManager<ApiMessageAndVersion>> raftManagers() {
        return aborted("it looks into the quorum");
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public MockFaultHandler fatalFaultHandler() {
        return fatal;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return nonFatal;
    }

    @Override
    public void close() throws Exception {
        if (process != null) {
            commands.close();
            process.waitFor();
            process = null;
        }
    }
}
