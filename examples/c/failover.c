/* A producer of librdkafka lives through a killed leader, and its records arrive once and in order. */
#include <librdkafka/rdkafka.h>

#include "steering.h"

#define RECORDS 100

static char response[STEERING_BYTES];

/* Ends the test unless a request has status 200. */
static void steer(const char *method, const char *path, const char *body) {
    int status = steering_ask(method, path, body, response);
    if (status == 200) return;
    fprintf(stderr, "%s %s: %d %s\n", method, path, status, response);
    exit(1);
}

static void require(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static rd_kafka_t *client(rd_kafka_type_t type, const char *name, const char *value) {
    char servers[1024], problem[512];
    steer("GET", "/v1/cluster", NULL);
    steering_text(response, "kafka_bootstrap_servers", servers, sizeof servers);
    rd_kafka_conf_t *settings = rd_kafka_conf_new();
    rd_kafka_conf_set(settings, "bootstrap.servers", servers, problem, sizeof problem);
    require(rd_kafka_conf_set(settings, name, value, problem, sizeof problem) == RD_KAFKA_CONF_OK, problem);
    rd_kafka_t *made = rd_kafka_new(type, settings, problem, sizeof problem);
    require(made != NULL, problem);
    return made;
}

static void produce(rd_kafka_t *producer, int from, int to) {
    for (int number = from; number < to; number++) {
        char value[16];
        int size = snprintf(value, sizeof value, "%d", number);
        rd_kafka_resp_err_t error =
            rd_kafka_producev(producer, RD_KAFKA_V_TOPIC("orders"), RD_KAFKA_V_PARTITION(0),
                              RD_KAFKA_V_VALUE(value, size), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
        require(!error, rd_kafka_err2str(error));
    }
}

static void read_all(void) {
    rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, "group.id", "unused");
    rd_kafka_topic_partition_list_t *partitions = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(partitions, "orders", 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
    rd_kafka_assign(consumer, partitions);
    for (int number = 0; number < RECORDS;) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 30000);
        require(message != NULL, "no record in 30 s");
        if (!message->err) {
            char value[16], wanted[16];
            snprintf(value, sizeof value, "%.*s", (int)message->len, (const char *)message->payload);
            snprintf(wanted, sizeof wanted, "%d", number++);
            require(!strcmp(value, wanted), "a record is lost, doubled or out of order");
        }
        rd_kafka_message_destroy(message);
    }
    rd_kafka_topic_partition_list_destroy(partitions);
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
}

int main(void) {
    char path[64], body[128];
    steer("POST", "/v1/reset", NULL);
    steer("POST", "/v1/steps", "{\"steps\": [{\"create_topic\": {\"name\": \"orders\", \"assignment\": [0, 1, 2]}}]}");
    steer("POST", "/v1/wait", "{\"in_sync\": [\"orders\"]}");

    rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, "enable.idempotence", "true");
    produce(producer, 0, RECORDS / 2);
    require(!rd_kafka_flush(producer, 30000), "not all records were acknowledged");
    steer("POST", "/v1/brokers/leader-of:orders-0/kill", NULL);
    long killed = steering_number(response, "broker");
    produce(producer, RECORDS / 2, RECORDS);
    snprintf(body, sizeof body, "{\"leader\": {\"orders-0\": {\"not\": %ld}}}", killed);
    steer("POST", "/v1/wait", body);
    require(!rd_kafka_flush(producer, 60000), "not all records were acknowledged after the failover");
    rd_kafka_destroy(producer);

    snprintf(path, sizeof path, "/v1/brokers/%ld/start", killed);
    steer("POST", path, NULL);
    steer("POST", "/v1/wait", "{\"isr\": {\"orders-0\": [0, 1, 2]}}");
    read_all();
    require(steering_ask("GET", "/v1/topics/nothing/0", NULL, response) == 404, "an unknown topic is 404");
    puts("No record was lost or doubled.");
    return 0;
}
