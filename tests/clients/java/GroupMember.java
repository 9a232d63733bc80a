// A member of a consumer group with kafka-clients. Arguments: servers, group, topic, group.protocol (classic or consumer),
// client id. It commits after every batch that it reads, and its end is that of stdin. It prints {"assigned": [partitions]}
// whenever they have changed, and {"committed": count} after each commit with the number of records read so far.

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class GroupMember {
    private static volatile boolean ends = false;

    public static void main(String[] given) {
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (IOException problem) {
                System.err.println(problem);
            }
            ends = true;
        });
        watch.setDaemon(true);
        watch.start();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("group.id", given[1]);
        settings.put("group.protocol", given[3]);
        settings.put("client.id", given[4]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("metadata.max.age.ms", "5000");
        if (given[3].equals("classic")) {
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "500");
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        long read = 0;
        Set<TopicPartition> before = null;
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(given[2]));
            while (!ends) {
                int count = consumer.poll(Duration.ofMillis(100)).count();
                Set<TopicPartition> now = Set.copyOf(consumer.assignment());
                if (!now.equals(before)) {
                    before = now;
                    System.out.println("{\"assigned\": " + now.stream().map(TopicPartition::partition).sorted()
                            .collect(Collectors.toList()) + "}");
                }
                if (count == 0) {
                    continue;
                }
                read += count;
                try {
                    consumer.commitSync();
                    System.out.println("{\"committed\": " + read + "}");
                } catch (KafkaException problem) {
                    System.err.println("not committed: " + problem); // a rebalance; others read it again
                }
            }
        }
    }
}
