// Tries credentials with kafka-clients, see tests/clients/attempts.py: Attempts SERVERS reads lines
// "mechanism user password topic" and prints for each what came of writing a record and reading it: "done", or the error.
// It is compiled with clients of 0.10 too, which have no poll(Duration), as those of 4.0 have no poll(long).

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Collections;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Attempts {
    public static void main(String[] given) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            System.out.println(outcome(settings(given[0], words[0], words[1], words[2]), words[3]));
        }
    }

    private static Properties settings(String servers, String mechanism, String user, String password) {
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", mechanism);
        settings.put("sasl.jaas.config", String.format("org.apache.kafka.common.security.%s required username=\"%s\" "
            + "password=\"%s\";", module, user, password));
        settings.put("max.block.ms", "10000");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }

    private static String outcome(Properties settings, String topic) throws Exception {
        try {
            attempt(settings, topic);
            return "done";
        } catch (ExecutionException | InvocationTargetException problem) {
            return problem.getCause().toString().replace('\n', ' ');
        } catch (RuntimeException problem) {
            return problem.toString().replace('\n', ' ');
        }
    }

    private static void attempt(Properties settings, String topic) throws Exception {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "java")).get();
        }
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(Collections.singletonList(new TopicPartition(topic, 0)));
            while (poll(consumer).isEmpty()) {
                Thread.onSpinWait();
            }
        }
    }

    private static ConsumerRecords<?, ?> poll(KafkaConsumer<?, ?> consumer) throws Exception {
        for (Method one : KafkaConsumer.class.getMethods()) {
            if (one.getName().equals("poll") && one.getParameterTypes()[0] == java.time.Duration.class) {
                return (ConsumerRecords<?, ?>) one.invoke(consumer, java.time.Duration.ofSeconds(1));
            }
        }
        return (ConsumerRecords<?, ?>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 1000L);
    }
}
