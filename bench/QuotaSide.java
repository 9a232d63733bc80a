// Kafka's quota managers without a broker, at a time that the input says: questions on stdin, a line for each on stdout.
// Lines have tabs between their fields; a name that is not part of an entity is "-":
//   reset   SAMPLES  SECONDS
//   set     KIND  USER  CLIENT_ID  LIMIT     (LIMIT "-": remove; KIND: produce, request or mutation)
//   use     KIND  TIME_MS  USER  CLIENT_ID  VALUE      -> throttle time
//   back    TIME_MS  USER  CLIENT_ID  VALUE
//   most    USER  CLIENT_ID                            -> what may be used in the window
//   mutate  TIME_MS  USER  CLIENT_ID  STRICT  COUNT... -> a "1" for each that is refused, "0" for others, throttle time
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.List;
import java.util.function.Supplier;
import kafka.server.ClientQuotaManager;
import kafka.server.ClientRequestQuotaManager;
import kafka.server.ControllerMutationQuota;
import kafka.server.ControllerMutationQuotaManager;
import kafka.server.QuotaType;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import scala.Option;

public class QuotaSide {
    static class GivenTime implements Time {
        long now = 1_700_000_000_000L;
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1_000_000L; }
        public void sleep(long ms) { now += ms; }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
    }

    static class Managers {
        final GivenTime time = new GivenTime();
        final Metrics metrics = new Metrics(time);
        final ClientQuotaManager produce;
        final ClientRequestQuotaManager request;
        final ControllerMutationQuotaManager mutation;

        Managers(int samples, int seconds) {
            ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(samples, seconds);
            produce = new ClientQuotaManager(config, metrics, QuotaType.Produce$.MODULE$, time, "", Option.empty());
            request = new ClientRequestQuotaManager(config, metrics, time, "", Option.empty());
            mutation = new ControllerMutationQuotaManager(config, metrics, time, "", Option.empty());
        }

        ClientQuotaManager of(String kind) {
            return switch (kind) {
                case "produce" -> produce;
                case "request" -> request;
                case "mutation" -> mutation;
                default -> throw new IllegalArgumentException(kind);
            };
        }

        void close() {
            for (ClientQuotaManager one : List.of(produce, request, mutation)) one.shutdown();
            metrics.close();
        }
    }

    static final InetAddress HERE = InetAddress.getLoopbackAddress();

    static Session session(String user) {
        return new Session(new KafkaPrincipal("User", user), HERE);
    }

    static Option<String> name(String text, boolean isEncoded) {
        if (text.equals("-")) return Option.empty();
        return Option.apply(text.equals("<default>") || !isEncoded ? text : Sanitizer.sanitize(text));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        Managers managers = null;
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] part = line.split("\t", -1);
            switch (part[0]) {
                case "reset" -> {
                    if (managers != null) managers.close();
                    managers = new Managers(Integer.parseInt(part[1]), Integer.parseInt(part[2]));
                }
                case "set" -> managers.of(part[1]).updateQuota(
                    name(part[2], true), name(part[3], false), name(part[3], true),
                    part[4].equals("-") ? Option.empty() : Option.apply(new Quota(Double.parseDouble(part[4]), true)));
                case "use" -> {
                    managers.time.now = Long.parseLong(part[2]);
                    output.append(managers.of(part[1]).maybeRecordAndGetThrottleTimeMs(
                        session(part[3]), part[4], Double.parseDouble(part[5]), managers.time.now)).append('\n');
                }
                case "back" -> {
                    managers.time.now = Long.parseLong(part[1]);
                    managers.produce.recordNoThrottle(session(part[2]), part[3], -Double.parseDouble(part[4]));
                }
                case "most" -> output.append(managers.produce.getMaxValueInQuotaWindow(session(part[1]), part[2])).append('\n');
                case "mutate" -> {
                    managers.time.now = Long.parseLong(part[1]);
                    ControllerMutationQuota quota = part[4].equals("1")
                        ? managers.mutation.newStrictQuotaFor(session(part[2]), part[3])
                        : managers.mutation.newPermissiveQuotaFor(session(part[2]), part[3]);
                    for (int at = 5; at < part.length; at++) {
                        try {
                            quota.record(Double.parseDouble(part[at]));
                            output.append('0');
                        } catch (ThrottlingQuotaExceededException refused) {
                            output.append('1');
                        }
                    }
                    output.append(' ').append(quota.throttleTime()).append('\n');
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        if (managers != null) managers.close();
        System.out.print(output);
        System.out.flush();
        System.exit(0);
    }
}
