import io.debezium.config.Configuration;
import io.debezium.embedded.KafkaConnectUtil;
import io.debezium.relational.Column;
import io.debezium.relational.Table;
import io.debezium.relational.TableId;
import io.debezium.relational.Tables;
import io.debezium.relational.history.HistoryRecordComparator;
import io.debezium.relational.history.SchemaHistory;
import io.debezium.relational.history.SchemaHistoryListener;
import io.debezium.relational.history.TableChanges;
import io.debezium.storage.kafka.history.KafkaSchemaHistory;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.storage.OffsetBackingStore;

/**
 * Debezium's stores in Kafka: SERVERS NAME. Each line of stdin is a number, for which a table with that name is put
 * into the schema history and the number into the store of offsets; "stored N" follows. At the end of stdin new
 * instances of both stores read everything back: "recovered TABLES OFFSET".
 */
public class DebeziumStores {
    private static final Map<String, String> SOURCE = Map.of("server", "s");
    private static final ByteBuffer KEY = bytes("position");

    private final String servers;
    private final String name;

    private DebeziumStores(String servers, String name) {
        this.servers = servers;
        this.name = name;
    }

    public static void main(String[] words) throws Exception {
        var stores = new DebeziumStores(words[0], words[1]);
        long last = stores.store();
        stores.recover(last);
        System.exit(0); // Connect's thread pools are no daemons
    }

    private long store() throws Exception {
        var history = history();
        if (!history.storageExists()) {
            history.initializeStorage();
        }
        history.start();
        var offsets = offsets();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        long last = 0;
        for (String line; (line = lines.readLine()) != null; ) {
            last = Long.parseLong(line);
            var changes = new TableChanges();
            changes.create(table("t" + last));
            history.record(SOURCE, Map.of("pos", last), "db", null, "CREATE TABLE t" + last, changes, Instant.EPOCH);
            offsets.set(Map.of(KEY, bytes(line)), (error, nothing) -> { }).get(120, TimeUnit.SECONDS);
            System.out.println("stored " + last);
        }
        history.stop();
        offsets.stop();
        return last;
    }

    private void recover(long last) throws Exception {
        var history = history();
        history.start();
        var tables = new Tables();
        history.recover(SOURCE, Map.of("pos", last), tables, null);
        history.stop();
        var offsets = offsets();
        var value = offsets.get(List.of(KEY)).get(120, TimeUnit.SECONDS).get(KEY);
        offsets.stop();
        System.out.println("recovered " + tables.size() + " " + StandardCharsets.UTF_8.decode(value));
    }

    private SchemaHistory history() {
        var history = new KafkaSchemaHistory();
        history.configure(
            Configuration.from(Map.of(
                "schema.history.internal.kafka.bootstrap.servers", servers,
                "schema.history.internal.kafka.topic", name + "-history",
                "schema.history.internal.kafka.recovery.poll.interval.ms", "1000",
                "schema.history.internal.kafka.query.timeout.ms", "60000",
                "schema.history.internal.kafka.create.timeout.ms", "60000",
                "schema.history.internal.connector.class", "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "schema.history.internal.connector.id", name)),
            new HistoryRecordComparator() {
                @Override
                public boolean isAtOrBefore(
                        io.debezium.relational.history.HistoryRecord recorded,
                        io.debezium.relational.history.HistoryRecord desired) {
                    return true; // all of it is wanted
                }
            },
            SchemaHistoryListener.NOOP,
            true);
        return history;
    }

    private OffsetBackingStore offsets() {
        var settings = Map.of(
            "bootstrap.servers", servers,
            "group.id", name,
            "key.converter", "org.apache.kafka.connect.storage.StringConverter",
            "value.converter", "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic", name + "-configs",
            "status.storage.topic", name + "-status",
            "offset.storage.topic", name + "-offsets",
            "offset.storage.partitions", "1",
            "offset.storage.replication.factor", "3");
        var store = KafkaConnectUtil.kafkaOffsetBackingStore(settings);
        store.configure(new DistributedConfig(settings));
        store.start();
        return store;
    }

    private static Table table(String name) {
        var id = Column.editor().name("id").type("INT").jdbcType(java.sql.Types.INTEGER).create();
        return Table.editor().tableId(new TableId("db", null, name)).addColumn(id).setPrimaryKeyNames("id").create();
    }

    private static ByteBuffer bytes(String text) {
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
    }
}
