// Topics: a new one, and records for one.
"use strict";

let topics = "";

function makeTopics() {
  const number = (id) => Number(byId(id).value);
  byId("create").append(button("Create topic", "", () => ({
    action: "create-topic", topic: byId("topic").value.trim(), partitions: number("topic-partitions"), replicas: number("topic-replicas"),
  })));
  byId("produce").append(button("Write", "Write records", () => ({ action: "produce", topic: byId("records-topic").value, count: number("records") })));
}

function drawTopics() {
  // Brokers refuse records of clients for the topics that they write themselves.
  const own = Object.values(view.partitions).filter((partition) => !partition.internal);
  const names = [...new Set(own.map((partition) => partition.topic))].sort();
  show(byId("topics"), Boolean(view.switchable || view.greyed));
  able(byId("create").firstChild, view.switchable);
  able(byId("produce").firstChild, view.switchable && names.length > 0);
  if (names.join() === topics) return;
  topics = names.join();
  const chosen = byId("records-topic").value;
  byId("records-topic").replaceChildren(...names.map((name) => make("option", {}, name)));
  if (names.includes(chosen)) byId("records-topic").value = chosen;
}
