"""Consumer groups' lag for Prometheus by kafka_exporter's names: python lag_exporter.py SERVERS [PORT]; by Kafka's requests."""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, OffsetSpec

admin = AdminClient({"bootstrap.servers": sys.argv[1]})


def lags():
    """Yield group, topic, partition and lag of every committed offset."""
    for group in admin.list_consumer_groups(request_timeout=10).result().valid:
        asked = [ConsumerGroupTopicPartitions(group.group_id)]
        (committed,) = admin.list_consumer_group_offsets(asked, request_timeout=10).values()
        at = {partition: partition.offset for partition in committed.result().topic_partitions if partition.offset >= 0}
        ends = admin.list_offsets(dict.fromkeys(at, OffsetSpec.latest()), request_timeout=10) if at else {}
        for partition, end in ends.items():
            yield group.group_id, partition.topic, partition.partition, max(0, end.result().offset - at[partition])


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        lines = ["# HELP kafka_consumergroup_lag Records that a group has not committed yet.", "# TYPE kafka_consumergroup_lag gauge"]
        try:
            for group, topic, partition, lag in lags():
                labels = f'consumergroup="{group}",topic="{topic}",partition="{partition}"'
                lines.append(f"kafka_consumergroup_lag{{{labels}}} {lag}")
        except Exception as problem:  # a coordinator or a leader is away: the scrape fails, and the next one asks again
            self.send_error(503, str(problem)[:200])
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write("\n".join([*lines, ""]).encode())

    def log_message(self, *arguments):
        """Print nothing for each scrape."""


HTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 9308), Page).serve_forever()
