// A member of a share group with kafka-clients' KafkaShareConsumer, see tests/integration/test_share_fetch.py.
//
// Arguments: servers, group, topic, acknowledgement mode (implicit or explicit), and, if what it does is to be written
// down (docs/histories.md), a file and the name of this process. It polls all along and prints a line for each record:
// partition, offset, delivery count, value. In explicit mode the value says what becomes of a record: one that begins
// with "release" or "reject", or all others, which are accepted. It commits after each poll and prints "committed" or
// what went wrong. It ends with the first line of its input.

import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareMember {
    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("group.id", given[1]);
        settings.put("share.acknowledgement.mode", given[3]);
        boolean isExplicit = given[3].equals("explicit");
        History history = given.length > 4 ? new History(given[4], given[5], given[1]) : null;
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(given[2]));
            long begunUs = History.nowUs();
            while (System.in.available() == 0) {
                // The client fetches ahead: what a poll returns may have been fetched since the poll before it.
                long sinceUs = begunUs;
                begunUs = History.nowUs();
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (history != null && !records.isEmpty()) {
                    history.acquired(sinceUs, records);
                }
                for (ConsumerRecord<String, String> record : records) {
                    System.out.printf("%d %d %d %s%n", record.partition(), record.offset(),
                        record.deliveryCount().orElse((short) 0), record.value());
                    if (isExplicit) {
                        consumer.acknowledge(record, typeOf(record));
                    }
                }
                if (!records.isEmpty()) {
                    commit(consumer, records, history, isExplicit);
                }
            }
        }
        System.out.println("closed");
    }

    private static AcknowledgeType typeOf(ConsumerRecord<String, String> record) {
        if (record.value().startsWith("release")) {
            return AcknowledgeType.RELEASE;
        }
        return record.value().startsWith("reject") ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
    }

    private static void commit(KafkaShareConsumer<String, String> consumer, ConsumerRecords<String, String> records,
            History history, boolean isExplicit) {
        if (history != null) {
            history.acknowledging(records, isExplicit);
        }
        Map<TopicIdPartition, Optional<KafkaException>> outcomes = consumer.commitSync();
        outcomes.forEach((partition, problem) ->
            System.out.println(problem.map(Throwable::toString).orElse("committed")));
        if (history != null) {
            history.acknowledged(records, outcomes);
        }
    }

    /** Appends what this process does to a file, as docs/histories.md says. */
    private static class History {
        private final FileOutputStream file;
        private final String process;
        private final String group;
        private long number = 0;
        private long firstAcknowledgement = 0;

        History(String path, String process, String group) throws Exception {
            this.file = new FileOutputStream(path, true);
            this.process = process;
            this.group = group;
        }

        static long nowUs() {
            return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        }

        void acquired(long sinceUs, ConsumerRecords<String, String> records) {
            StringJoiner shown = new StringJoiner(",", "[", "]");
            for (ConsumerRecord<String, String> one : records) {
                shown.add(String.format("[\"%s\",%d,%d,\"%s\",%d]", one.topic(), one.partition(), one.offset(),
                    one.value(), one.deliveryCount().orElse((short) 0)));
            }
            line("invoke", number, sinceUs, ",\"op\":\"acquire\",\"group\":\"" + group + "\"");
            line("ok", number++, nowUs(), ",\"records\":" + shown);
        }

        /** One operation for each partition: each has an outcome of its own. */
        void acknowledging(ConsumerRecords<String, String> records, boolean isExplicit) {
            firstAcknowledgement = number;
            for (TopicPartition partition : records.partitions()) {
                StringJoiner shown = new StringJoiner(",", "[", "]");
                for (ConsumerRecord<String, String> one : records.records(partition)) {
                    AcknowledgeType type = isExplicit ? typeOf(one) : AcknowledgeType.ACCEPT;
                    shown.add(String.format("[\"%s\",%d,%d,\"%s\"]", one.topic(), one.partition(), one.offset(),
                        type.toString().toLowerCase()));
                }
                line("invoke", number++, nowUs(),
                    ",\"op\":\"acknowledge\",\"group\":\"" + group + "\",\"records\":" + shown);
            }
        }

        void acknowledged(ConsumerRecords<String, String> records,
                Map<TopicIdPartition, Optional<KafkaException>> outcomes) {
            long at = firstAcknowledgement;
            for (TopicPartition partition : records.partitions()) {
                boolean isThere = outcomes.entrySet().stream().anyMatch(one ->
                    one.getKey().topicPartition().equals(partition) && one.getValue().isEmpty());
                line(isThere ? "ok" : "info", at++, nowUs(), "");
            }
        }

        private void line(String kind, long operation, long timeUs, String fields) {
            String text = String.format("{\"type\":\"%s\",\"process\":\"%s\",\"number\":%d,\"time_us\":%d%s}%n",
                kind, process, operation, timeUs, fields);
            try {
                file.write(text.getBytes(StandardCharsets.UTF_8));
            } catch (java.io.IOException problem) {
                throw new java.io.UncheckedIOException(problem);
            }
        }
    }
}
