import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Spring for Apache Kafka as a program, see tests/clients/applications.py: SERVERS SOURCE SINK GROUP DIRECTORY copies
 * each record in a transaction. A listener of its own refuses each tenth record once: a retry topic brings it back, and
 * its value goes to SINK-retried.
 */
@EnableKafka
@EnableKafkaRetryTopic
@Configuration(proxyBeanMethods = false)
public class SpringCopier {
    public static void main(String[] words) {
        System.setProperty("servers", words[0]);
        System.setProperty("source", words[1]);
        System.setProperty("sink", words[2]);
        System.setProperty("group", words[3]);
        var context = new AnnotationConfigApplicationContext(SpringCopier.class);
        context.registerShutdownHook();
    }

    private static DefaultKafkaProducerFactory<String, String> producers() {
        return new DefaultKafkaProducerFactory<>(Map.of(
            "bootstrap.servers", System.getProperty("servers"),
            "key.serializer", StringSerializer.class,
            "value.serializer", StringSerializer.class));
    }

    private static ConcurrentKafkaListenerContainerFactory<String, String> listeners() {
        var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
        factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(Map.of(
            "bootstrap.servers", System.getProperty("servers"),
            "auto.offset.reset", "earliest",
            "session.timeout.ms", "6000",
            "isolation.level", "read_committed",
            "key.deserializer", StringDeserializer.class,
            "value.deserializer", StringDeserializer.class)));
        return factory;
    }

    @Bean
    KafkaTransactionManager<String, String> transactions() {
        var producers = producers();
        producers.setTransactionIdPrefix(System.getProperty("group") + "-");
        return new KafkaTransactionManager<>(producers);
    }

    @Bean
    KafkaTemplate<String, String> transactional(KafkaTransactionManager<String, String> transactions) {
        return new KafkaTemplate<>(transactions.getProducerFactory());
    }

    @Bean
    KafkaTemplate<String, String> defaultRetryTopicKafkaTemplate() {
        return new KafkaTemplate<>(producers());
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> inTransactions(
            KafkaTransactionManager<String, String> transactions) {
        var factory = listeners();
        factory.getContainerProperties().setKafkaAwareTransactionManager(transactions);
        factory.setAfterRollbackProcessor(
            new DefaultAfterRollbackProcessor<>(new FixedBackOff(500, FixedBackOff.UNLIMITED_ATTEMPTS)));
        return factory;
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory() {
        return listeners();
    }

    @Bean
    KafkaAdmin admin() { // creates the retry topics; Spring Boot has one, Spring alone does not
        var admin = new KafkaAdmin(Map.of("bootstrap.servers", System.getProperty("servers")));
        admin.setFatalIfBrokerNotAvailable(true);
        return admin;
    }

    @Bean
    TaskScheduler scheduler() {
        return new ThreadPoolTaskScheduler();
    }

    @Bean
    Copier copier(@Qualifier("transactional") KafkaTemplate<String, String> transactional) {
        return new Copier(transactional);
    }

    @Bean
    Refuser refuser(@Qualifier("defaultRetryTopicKafkaTemplate") KafkaTemplate<String, String> plain) {
        return new Refuser(plain);
    }

    public static class Copier {
        private final KafkaTemplate<String, String> template;

        Copier(KafkaTemplate<String, String> template) {
            this.template = template;
        }

        @KafkaListener(topics = "${source}", groupId = "${group}", containerFactory = "inTransactions")
        public void copy(String value) {
            template.send(System.getProperty("sink"), value);
        }
    }

    public static class Refuser {
        private final Set<String> refused = ConcurrentHashMap.newKeySet();
        private final KafkaTemplate<String, String> template;

        Refuser(KafkaTemplate<String, String> template) {
            this.template = template;
        }

        @RetryableTopic(attempts = "5", numPartitions = "1", replicationFactor = "3")
        @KafkaListener(topics = "${source}", groupId = "${group}-retries")
        public void refuse(String value) throws Exception {
            if (value.endsWith("0")) {
                if (refused.add(value)) {
                    throw new IllegalStateException("refused once: " + value);
                }
                template.send(System.getProperty("sink") + "-retried", value).get();
            }
        }
    }
}
