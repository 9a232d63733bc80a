// The records of each replica as boxes: what a log holds, in which epoch, and where its high watermark stands.
"use strict";

const logRows = new Map(); // broker -> its row
const lostRow = makeLogRow();

function makeLogRow() {
  const row = { node: make("li"), of: make("span", { class: "of" }), boxes: make("div", { class: "boxes" }) };
  row.node.append(row.of, row.boxes);
  return row;
}

function drawLogs() {
  const { logs, books } = stage.state;
  for (const broker of [...logRows.keys()]) {
    if (!(broker in logs)) {
      logRows.get(broker).node.remove();
      logRows.delete(broker);
    }
  }
  for (const [broker, log] of Object.entries(logs)) {
    if (!logRows.has(broker)) {
      logRows.set(broker, makeLogRow());
      byId("logs").append(logRows.get(broker).node);
    }
    drawLog(logRows.get(broker), broker, log);
  }
  const missing = books.filter((one) => one.lost || one.missing).map((one) => one.value);
  lostRow.node.remove();
  if (!missing.length) return;
  lostRow.node.classList.add("of-lost");
  lostRow.of.replaceChildren(make("b", {}, word("lost")));
  lostRow.boxes.replaceChildren(...missing.map((value) => make("span", { class: "box gone" }, value)));
  byId("logs").append(lostRow.node);
}

function drawLog(row, broker, log) {
  const replica = Object.values(stage.view().partitions)[0].replicas[broker];
  const state = stage.view().brokers[broker].state;
  row.node.classList.toggle("down", state !== "up");
  const role = replica.role === "unknown" ? state : `${replica.role}${state === "up" ? "" : `, ${state}`}`;
  row.of.replaceChildren(make("b", {}, `${word("broker")} ${broker}`), ` ${role}, HW ${replica.hw}, LEO ${replica.leo}${replica.isr ? ", ISR" : ""}`);
  const nodes = [];
  log.forEach((record, offset) => {
    if (offset === replica.hw) nodes.push(make("span", { class: "hw-line", role: "img", "aria-label": "HW" }));
    const node = make("span", { class: `box e${record.epoch % COLOURS}${record.committed ? "" : " open"}` }, record.value, " ", make("small", {}, `@${record.epoch}`));
    node.title = `offset ${offset}, epoch ${record.epoch}${record.flushed ? ", on disk" : ""}`;
    nodes.push(node);
  });
  if (log.length === replica.hw) nodes.push(make("span", { class: "hw-line", role: "img", "aria-label": "HW" }));
  row.boxes.replaceChildren(...nodes);
}
