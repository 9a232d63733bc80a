"""Consumer groups' lag for Prometheus, by kafka_exporter's name: python lag_exporter.py SERVERS [PORT].

It asks coordinators and leaders every two seconds, by Kafka's own requests; a scrape gets the last complete figures.
"""

import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

PAUSE_SECONDS, OLDEST_SECONDS, LIMIT_SECONDS = 2, 30, 10
HEAD = """\
# HELP kafka_consumergroup_lag Records that a group has not committed yet.
# TYPE kafka_consumergroup_lag gauge
"""


def lags(admin: AdminClient) -> Iterator[tuple[str, str, int, int]]:
    """Yield group, topic, partition and lag of every committed offset."""
    for group in admin.list_consumer_groups(request_timeout=LIMIT_SECONDS).result().valid:
        asked = [ConsumerGroupTopicPartitions(group.group_id)]
        (committed,) = admin.list_consumer_group_offsets(asked, request_timeout=LIMIT_SECONDS).values()
        at = {partition: partition.offset for partition in committed.result().topic_partitions if partition.offset >= 0}
        wanted = dict.fromkeys(at, OffsetSpec.latest())
        ends = admin.list_offsets(wanted, request_timeout=LIMIT_SECONDS) if at else {}
        for partition, end in ends.items():
            yield group.group_id, partition.topic, partition.partition, max(0, end.result().offset - at[partition])


def line(found: tuple[str, str, int, int]) -> str:
    """Return one of them as Prometheus reads it."""
    group, topic, partition, lag = found
    labels = f'consumergroup="{group}",topic="{topic}",partition="{partition}"'
    return f"kafka_consumergroup_lag{{{labels}}} {lag}\n"


class Figures:
    """The last complete figures, and when they were asked for."""

    text, at = "", 0.0

    def keep_up(self, servers: str) -> None:
        """Ask again and again; while a coordinator or a leader is away the figures grow old."""
        admin = AdminClient({"bootstrap.servers": servers})
        while True:
            began = time.monotonic()
            try:
                self.text, self.at = HEAD + "".join(map(line, lags(admin))), began
            except KafkaException as problem:
                sys.stderr.write(f"{problem}\n")
            time.sleep(PAUSE_SECONDS)


figures = Figures()


class Page(BaseHTTPRequestHandler):
    """Serves the figures, or 503 if there are none that are new enough."""

    def do_GET(self) -> None:
        """Respond to a scrape."""
        is_new = bool(figures.text) and time.monotonic() - figures.at < OLDEST_SECONDS
        self.send_response(200 if is_new else 503)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(figures.text.encode() if is_new else b"")

    def log_message(self, *_: object) -> None:
        """Print nothing for each scrape."""


if __name__ == "__main__":
    threading.Thread(target=figures.keep_up, args=(sys.argv[1],), daemon=True).start()
    port = int(sys.argv[2]) if sys.argv[2:] else 9308
    ThreadingHTTPServer(("127.0.0.1", port), Page).serve_forever()
