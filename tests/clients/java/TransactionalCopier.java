// Copies a topic in transactions with kafka-clients: the Java side of tests/clients/transactional_copier.py.
//
// Arguments: servers, transactional id, group, source, target, partitions of the target, partition that is read or -1 for
// what the group assigns (KIP-447), limit of the records of a transaction. Every third transaction is aborted and done
// again. Its end is that of stdin. It prints a line for each transaction.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class TransactionalCopier {
    private static final int ABORT_EVERY = 3;
    private static volatile boolean ends = false;

    private final String servers;
    private final String transactionalId;
    private final String target;
    private final int partitions;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private KafkaProducer<byte[], byte[]> producer;
    private int transactions = 0;
    private long copied = 0;

    TransactionalCopier(String[] given) {
        servers = given[0];
        transactionalId = given[1];
        target = given[4];
        partitions = Integer.parseInt(given[5]);
        producer = newProducer();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", given[2]);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "1000");
        settings.put("max.poll.records", given[7]);
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        int assigned = Integer.parseInt(given[6]);
        if (assigned < 0) {
            consumer.subscribe(List.of(given[3]));
        } else {
            consumer.assign(List.of(new TopicPartition(given[3], assigned)));
            rewind();
        }
    }

    private KafkaProducer<byte[], byte[]> newProducer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", "30000");
        var made = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        retried(made::initTransactions);
        return made;
    }

    private static void retried(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException problem) {
                System.err.println("again: " + problem);
            }
        }
    }

    void run() {
        while (!ends) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(50));
            if (!records.isEmpty()) {
                transact(records, consumer.groupMetadata());
            }
        }
        consumer.close();
        producer.close();
    }

    private void transact(ConsumerRecords<byte[], byte[]> records, ConsumerGroupMetadata metadata) {
        transactions++;
        try {
            copy(records, metadata);
            if (transactions % ABORT_EVERY == 0) {
                producer.flush();
                abort();
            } else {
                retried(producer::commitTransaction);
                copied += records.count();
            }
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException problem) {
            System.err.println("a new producer: " + problem);
            producer.close(Duration.ZERO);
            producer = newProducer();
            rewind();
        } catch (KafkaException problem) {
            System.err.println("aborted: " + problem);
            abort();
        }
        System.out.println("{\"transactions\": " + transactions + ", \"copied\": " + copied + "}");
    }

    private void copy(ConsumerRecords<byte[], byte[]> records, ConsumerGroupMetadata metadata) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            producer.send(new ProducerRecord<>(target, record.partition() % partitions, null, record.value()));
            offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        retried(() -> producer.sendOffsetsToTransaction(offsets, metadata));
    }

    private void abort() {
        try {
            retried(producer::abortTransaction);
        } catch (KafkaException problem) {
            System.err.println("a new producer: " + problem);
            producer.close(Duration.ZERO);
            producer = newProducer();
        }
        rewind();
    }

    private void rewind() {
        Set<TopicPartition> assigned = consumer.assignment();
        if (assigned.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> committed = new HashMap<>();
        retried(() -> committed.putAll(consumer.committed(assigned)));
        for (TopicPartition at : assigned) {
            OffsetAndMetadata offset = committed.get(at);
            if (offset == null) {
                consumer.seekToBeginning(List.of(at));
            } else {
                consumer.seek(at, offset);
            }
        }
    }

    public static void main(String[] given) {
        Thread reader = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException problem) {
                System.err.println(problem);
            }
            ends = true;
        });
        reader.setDaemon(true);
        reader.start();
        new TransactionalCopier(given).run();
    }
}
