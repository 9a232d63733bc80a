import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/** A client of Tidegauge's control interface in one file: copy it beside your tests. It needs Java 17 and Jackson. */
final class Steering {
    /** The server's error: its HTTP status, its name, its sentence, and what is true instead. */
    static final class Refused extends RuntimeException {
        final int status;
        final String name;
        final transient JsonNode actual;

        Refused(int status, JsonNode body) {
            super(body.at("/error/name").asText() + ": " + body.at("/error/message").asText());
            this.status = status;
            this.name = body.at("/error/name").asText();
            this.actual = body.get("actual");
        }
    }

    private static final ObjectMapper JSON = new ObjectMapper();
    private final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final String url = variable("TIDEGAUGE_CONTROL", "http://127.0.0.1:19079").replaceAll("/$", "");
    private final String token = variable("TIDEGAUGE_CONTROL_TOKEN", "");

    private static String variable(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    /** Sends a request; returns when its effect is there. */
    JsonNode ask(String method, String path, Object body) {
        try {
            HttpRequest.BodyPublisher content = body == null
                ? HttpRequest.BodyPublishers.noBody()
                : HttpRequest.BodyPublishers.ofString(JSON.writeValueAsString(body));
            HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + path))
                .timeout(Duration.ofMinutes(10))
                .header("Content-Type", "application/json")
                .method(method, content);
            if (!token.isEmpty()) {
                request.header("Authorization", "Bearer " + token);
            }
            HttpResponse<String> response = client.send(request.build(), HttpResponse.BodyHandlers.ofString());
            JsonNode found = JSON.readTree(response.body());
            if (response.statusCode() != 200) {
                throw new Refused(response.statusCode(), found);
            }
            return found;
        } catch (IOException problem) {
            throw new IllegalStateException(problem);
        } catch (InterruptedException problem) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(problem);
        }
    }

    private static String quoted(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** The addresses for Kafka clients. */
    String bootstrapServers() {
        return ask("GET", "/v1/cluster", null).get("kafka_bootstrap_servers").asText();
    }

    /** Leader, epoch, ISR and every replica. */
    JsonNode partition(String topic, int partition) {
        return ask("GET", "/v1/topics/" + quoted(topic) + "/" + partition, null);
    }

    /** kill, stop, pause, resume, start: "1", "leader-of:orders-0", "controller", "coordinator-of:group:app", ... */
    JsonNode broker(String target, String verb) {
        return ask("POST", "/v1/brokers/" + quoted(target) + "/" + verb, null);
    }

    /** One of isr, leader, high_watermark, in_sync, group, ready. */
    JsonNode await(String condition, Object value) {
        return ask("POST", "/v1/wait", Map.of(condition, value, "timeout_ms", 60_000));
    }

    /** Puts a rule for requests in force; returns the fault's id. */
    int fault(Map<String, Object> rule) {
        return ask("POST", "/v1/faults", Map.of("rules", List.of(rule))).get("id").asInt();
    }

    /** Waits until a fault has so many hits. */
    JsonNode awaitHits(int fault, int hits) {
        return ask("POST", "/v1/faults/" + fault + "/wait", Map.of("hits", hits)).get("actual");
    }

    /** All brokers up, nothing in force, and without the topics and groups of the test. */
    void reset() {
        ask("POST", "/v1/reset", null);
    }
}
