import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Kafka Streams as a program, see tests/clients/applications.py: SERVERS SOURCE SINK ID DIRECTORY writes each record of
 * SOURCE as "number value" to SINK, exactly once (EOS v2). The number comes from a store, which has a standby.
 */
public class StreamsCopier {
    public static void main(String[] words) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "bootstrap.servers", words[0],
            "application.id", words[3],
            "state.dir", words[4],
            "processing.guarantee", "exactly_once_v2",
            "num.standby.replicas", "1",
            "replication.factor", "3",
            "commit.interval.ms", "200",
            "main.consumer.session.timeout.ms", "6000",
            "main.consumer.auto.offset.reset", "earliest"));
        StreamsBuilder builder = new StreamsBuilder();
        var strings = Serdes.String();
        builder.stream(words[1], Consumed.with(strings, strings))
            .groupByKey()
            .aggregate(
                () -> "-1 ",
                (key, value, last) -> (Integer.parseInt(last.split(" ")[0]) + 1) + " " + value,
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>with(strings, strings).withCachingDisabled())
            .toStream()
            .to(words[2], Produced.with(strings, strings));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(problem -> {
            problem.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
