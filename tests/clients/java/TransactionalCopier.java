// Copies a topic in transactions with kafka-clients: the Java side of tests/clients/transactional_copier.py.
//
// Arguments: servers, transactional id, group, source, target, partitions of the target, partition that is read or -1 for
// what the group assigns (KIP-447), limit of the records of a transaction. Every third transaction is aborted and done
// again. Its end is that of stdin. It prints a line for each transaction. A ninth argument is the file of a history of what
// it does (docs/histories.md); what it writes is then unique: the value that it has read, with # and the transaction's name.

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
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
    private final String group;
    private final History history;
    private boolean hasMoved = false; // positions may be anywhere since the last poll

    TransactionalCopier(String[] given) {
        servers = given[0];
        transactionalId = given[1];
        target = given[4];
        partitions = Integer.parseInt(given[5]);
        group = given[2];
        history = new History(given.length > 8 ? given[8] : null, transactionalId);
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
            consumer.subscribe(List.of(given[3]), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                    hasMoved = true;
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> revoked) {}
            });
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
            String name = history.process + "-" + (transactions + 1);
            long begun = history.invoke("poll", of(name));
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(50));
            if (hasMoved) { // partitions were assigned meanwhile, and the records were read after that
                hasMoved = false;
                history.end(history.invoke("assign", ""), "ok", "");
                begun = history.invoke("poll", of(name));
            }
            if (!records.isEmpty()) {
                history.end(begun, "ok", ", \"records\": " + seen(records));
                transact(records, consumer.groupMetadata());
            }
        }
        consumer.close();
        producer.close();
    }

    private static String seen(ConsumerRecords<byte[], byte[]> records) {
        List<String> rows = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            String value = new String(record.value(), StandardCharsets.UTF_8);
            rows.add(String.format(
                    "[\"%s\", %d, %d, \"%s\"]", record.topic(), record.partition(), record.offset(), value));
        }
        return rows.toString();
    }

    private void transact(ConsumerRecords<byte[], byte[]> records, ConsumerGroupMetadata metadata) {
        transactions++;
        String name = history.process + "-" + transactions;
        try {
            copy(records, metadata, name);
            if (transactions % ABORT_EVERY == 0) {
                producer.flush();
                abort(name);
            } else {
                history.noted("commit", of(name), () -> retried(producer::commitTransaction));
                copied += records.count();
            }
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException problem) {
            System.err.println("a new producer: " + problem);
            producer.close(Duration.ZERO);
            producer = newProducer();
            rewind();
        } catch (KafkaException problem) {
            System.err.println("aborted: " + problem);
            abort(name);
        }
        System.out.println("{\"transactions\": " + transactions + ", \"copied\": " + copied + "}");
    }

    private static String of(String name) {
        return ", \"transaction\": \"" + name + "\"";
    }

    private void send(byte[] read, int partition, String name) {
        String value = new String(read, StandardCharsets.UTF_8) + (history.isWritten() ? "#" + name : "");
        String where = String.format(
                ", \"topic\": \"%s\", \"partition\": %d, \"value\": \"%s\"", target, partition, value);
        long number = history.invoke("send", of(name) + where);
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        producer.send(new ProducerRecord<>(target, partition, null, bytes), (found, problem) -> {
            if (problem == null) {
                history.end(number, "ok", ", \"offset\": " + found.offset());
            } else {
                history.end(number, "info", ""); // it may have been tried more than once
            }
        });
    }

    private String positions(Map<TopicPartition, OffsetAndMetadata> offsets) {
        List<String> rows = new ArrayList<>();
        offsets.forEach((at, one) -> {
            if (one != null) {
                rows.add("\"" + at + "\": " + one.offset());
            }
        });
        return "{" + String.join(", ", rows) + "}";
    }

    private void copy(ConsumerRecords<byte[], byte[]> records, ConsumerGroupMetadata metadata, String name) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            send(record.value(), record.partition() % partitions, name);
            offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        String fields = of(name) + ", \"group\": \"" + group + "\", \"offsets\": " + positions(offsets);
        history.noted("send-offsets", fields, () -> retried(() -> producer.sendOffsetsToTransaction(offsets, metadata)));
    }

    private void abort(String name) {
        try {
            history.noted("abort", of(name), () -> retried(producer::abortTransaction));
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
        long begun = history.invoke("read-offsets", ", \"group\": \"" + group + "\"");
        retried(() -> committed.putAll(consumer.committed(assigned)));
        history.end(begun, "ok", ", \"offsets\": " + positions(committed));
        hasMoved = true;
        for (TopicPartition at : assigned) {
            OffsetAndMetadata offset = committed.get(at);
            if (offset == null) {
                consumer.seekToBeginning(List.of(at));
            } else {
                consumer.seek(at, offset);
            }
        }
    }

    // Appends the operations of this process to a file, each in a line before it begins and one after it.
    private static final class History {
        final String process;
        private final FileOutputStream file;
        private long next = 0;

        History(String path, String name) {
            process = name + "-" + ProcessHandle.current().pid() + "-" + System.nanoTime();
            try {
                file = path == null ? null : new FileOutputStream(path, true);
            } catch (IOException problem) {
                throw new UncheckedIOException(problem);
            }
        }

        boolean isWritten() {
            return file != null;
        }

        synchronized long invoke(String op, String fields) {
            write("invoke", next, ", \"op\": \"" + op + "\"" + fields);
            return next++;
        }

        synchronized void end(long number, String outcome, String fields) {
            write(outcome, number, fields);
        }

        void noted(String op, String fields, Runnable call) {
            long number = invoke(op, fields);
            boolean isOver = false;
            try {
                call.run();
                isOver = true;
            } finally {
                end(number, isOver ? "ok" : "info", "");
            }
        }

        private void write(String kind, long number, String fields) {
            if (file == null) {
                return;
            }
            Instant now = Instant.now();
            long timeUs = ChronoUnit.MICROS.between(Instant.EPOCH, now);
            String line = String.format(
                    "{\"type\": \"%s\", \"process\": \"%s\", \"number\": %d, \"time_us\": %d%s}\n",
                    kind, process, number, timeUs, fields);
            try {
                file.write(line.getBytes(StandardCharsets.UTF_8));
            } catch (IOException problem) {
                throw new UncheckedIOException(problem);
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
