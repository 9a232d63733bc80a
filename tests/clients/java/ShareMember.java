// A member of a share group with kafka-clients' KafkaShareConsumer, see tests/integration/test_share_fetch.py.
//
// Arguments: servers, group, topic, acknowledgement mode (implicit or explicit). It polls all along and prints a line for
// each record: partition, offset, delivery count, value. In explicit mode the value says what becomes of a record:
// "release", "reject", or all others, which are accepted. It commits after each poll and prints "committed" or what went
// wrong. It ends with the first line of its input.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareMember {
    private static final Map<String, AcknowledgeType> TYPES =
        Map.of("release", AcknowledgeType.RELEASE, "reject", AcknowledgeType.REJECT);

    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("group.id", given[1]);
        settings.put("share.acknowledgement.mode", given[3]);
        boolean isExplicit = given[3].equals("explicit");
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(given[2]));
            while (System.in.available() == 0) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> record : records) {
                    System.out.printf("%d %d %d %s%n", record.partition(), record.offset(),
                        record.deliveryCount().orElse((short) 0), record.value());
                    if (isExplicit) {
                        consumer.acknowledge(record, TYPES.getOrDefault(record.value(), AcknowledgeType.ACCEPT));
                    }
                }
                if (!records.isEmpty()) {
                    consumer.commitSync().forEach((partition, problem) ->
                        System.out.println(problem.map(Throwable::toString).orElse("committed")));
                }
            }
        }
        System.out.println("closed");
    }
}
