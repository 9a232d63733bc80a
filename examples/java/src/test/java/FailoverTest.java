import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A producer of Kafka's Java client lives through a killed leader, and its records arrive once and in order. */
@Timeout(180)
class FailoverTest {
    private final Steering cluster = new Steering();
    private Map<String, Object> servers;

    @BeforeEach
    void reset() {
        cluster.reset();
        servers = Map.of("bootstrap.servers", cluster.bootstrapServers());
    }

    private void createTopic(String name) throws Exception {
        try (Admin admin = Admin.create(servers)) {
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 3))).all().get();
        }
        cluster.await("in_sync", List.of(name));
    }

    private KafkaProducer<String, String> producer() {
        return new KafkaProducer<>(servers, new StringSerializer(), new StringSerializer());
    }

    private List<String> readAll(String topic, int count) {
        List<String> found = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(servers, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(consumer.assignment());
            while (found.size() < count) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> found.add(record.value()));
            }
        }
        return found;
    }

    @Test
    void noRecordIsLostWhenTheLeaderIsKilled() throws Exception {
        createTopic("orders");
        String killed;
        try (var producer = producer()) {
            for (int number = 0; number < 20; number++) {
                producer.send(new ProducerRecord<>("orders", String.valueOf(number))).get();
            }
            killed = cluster.broker("leader-of:orders-0", "kill").get("broker").asText();
            for (int number = 20; number < 40; number++) {
                producer.send(new ProducerRecord<>("orders", String.valueOf(number))).get();
            }
        }
        cluster.await("leader", Map.of("orders-0", Map.of("not", Integer.parseInt(killed))));
        cluster.broker(killed, "start");
        cluster.await("isr", Map.of("orders-0", List.of(0, 1, 2)));
        assertEquals(IntStream.range(0, 40).mapToObj(String::valueOf).toList(), readAll("orders", 40));
    }

    @Test
    void aProduceWhoseResponseIsLostIsWrittenOnce() throws Exception {
        createTopic("payments");
        int lost = cluster.fault(
            Map.of("keys", List.of("Produce"), "topic", "payments", "disconnect", true, "after_effect", true));
        try (var producer = producer()) {
            producer.send(new ProducerRecord<>("payments", "one")).get();
        }
        assertEquals(1, cluster.awaitHits(lost, 1).get("hits").asInt());
        assertEquals(1, cluster.partition("payments", 0).get("high_watermark").asInt());
        assertEquals(404, assertThrows(Steering.Refused.class, () -> cluster.partition("nothing", 0)).status);
    }
}
