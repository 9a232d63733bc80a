// The table of partitions: brokers as columns, each replica's log as a bar, filters over it.
"use strict";

const rows = new Map(); // "orders-0" -> row
let heads = new Map(); // broker id -> column head
let columns = "";

function drawHeads() {
  const brokers = Object.values(view.brokers).sort((a, b) => a.id - b.id);
  const wanted = brokers.map((broker) => broker.id).join(",");
  if (wanted === columns) return;
  columns = wanted;
  heads = new Map();
  const line = make("div", { class: "heads", role: "row" }, make("div", { class: "corner", role: "columnheader" }, "Partition"));
  for (const broker of brokers) {
    const head = { state: make("span", { class: "state" }), controller: make("span", { class: "unseen" }) };
    heads.set(broker.id, head);
    line.append(make("div", { role: "columnheader" }, `Broker ${broker.id} `, head.state, head.controller));
  }
  byId("table").replaceChildren(make("div", { role: "rowgroup" }, line));
  style(byId("table"), "--brokers", String(Math.max(1, brokers.length)));
  rows.clear(); // other columns: all rows are made again, which is rare
  for (const name of Object.keys(view.partitions)) drawPartition(name);
  fit();
}

function fit() {
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const wide = window.innerWidth > 719;
  const need = heads.size * (wide ? 6.5 : 6.25) * rem + (wide ? 12.5 * rem : rem);
  byId("scroll").classList.toggle("many", need > byId("scroll").clientWidth);
}

function makeRow(name) {
  const row = {
    group: make("div", { class: "group", role: "rowgroup" }),
    name: make("button", { type: "button", "aria-expanded": "false" }, name),
    leader: make("span"),
    isr: make("span"),
    osr: make("span", { class: "osr" }),
    elr: make("span"),
    waiting: make("div", { class: "waits" }),
    cells: new Map(),
    more: null,
  };
  const line = make("div", { class: "row", role: "row" });
  line.append(make("div", { class: "who", role: "rowheader" }, row.name, make("div", {}, row.leader, row.isr, row.osr, row.elr), row.waiting));
  for (const id of heads.keys()) {
    const cell = makeCell();
    row.cells.set(id, cell);
    line.append(cell.node);
  }
  row.group.append(line);
  row.name.addEventListener("click", () => toggleMore(name, row));
  return row;
}

function makeCell() {
  const cell = {
    node: make("div", { class: "cell", role: "cell" }),
    head: make("div"),
    role: make("span", { class: "role" }),
    flags: make("span", { class: "flags" }),
    seen: make("span", { class: "seen" }),
    bar: make("div", { class: "bar", "aria-hidden": "true" }),
    above: make("div", { class: "above" }),
    hw: make("div", { class: "hw" }),
    lso: make("div", { class: "lso" }),
    text: make("div", { class: "bar-text" }),
    start: make("span"),
    stable: make("span"),
    mark: make("span"),
    end: make("span"),
    epochs: make("span", { class: "epochs" }),
    epochsAre: "",
  };
  cell.bar.append(cell.above, cell.hw, cell.lso);
  cell.head.append(cell.role, cell.flags, cell.seen);
  cell.text.append(cell.start, cell.stable, cell.mark, cell.end, cell.epochs);
  cell.node.append(cell.head, cell.bar, cell.text);
  return cell;
}

function compare(left, right) {
  const [a, b] = [view.partitions[left], view.partitions[right]];
  if (a.topic !== b.topic) return a.topic < b.topic ? -1 : 1;
  return a.partition - b.partition;
}

function drawPartition(name) {
  const partition = view.partitions[name];
  let row = rows.get(name);
  if (!row) {
    row = makeRow(name);
    let after = null; // mostly the last one: a new topic's partitions come in order
    for (const other of [...rows.keys()].reverse()) {
      if (!view.partitions[other] || compare(other, name) > 0) after = rows.get(other).group;
      else break;
    }
    rows.set(name, row);
    byId("table").insertBefore(row.group, after);
    if (after) sortRows();
  }
  const leaderless = partition.leader === null && partition.leaderKnown !== false;
  write(row.leader, (leaderless ? "no leader" : `leader ${partition.leader ?? "unknown"}`) + (partition.leaderEpoch === null ? "" : `, epoch ${partition.leaderEpoch}`));
  row.leader.classList.toggle("leaderless", leaderless);
  write(row.isr, `ISR ${partition.isr === null ? "unknown" : ids(partition.isr)}`);
  write(row.osr, partition.osr.length ? `OSR ${ids(partition.osr)}` : "");
  const lastLeader = (partition.lastKnownLeader || []).length ? `last known leader ${ids(partition.lastKnownLeader)}` : "";
  write(row.elr, (partition.elr || []).length ? `ELR ${ids(partition.elr)}` : lastLeader);
  show(row.waiting, Boolean(partition.waiting));
  write(row.waiting, partition.waiting || "");
  for (const [id, cell] of row.cells) drawCell(cell, partition, id);
  show(row.group, passes(name));
  if (row.more) drawMore(name, row);
}

function sortRows() {
  const sorted = [...rows.entries()].filter(([name]) => view.partitions[name]).sort((a, b) => compare(a[0], b[0]));
  rows.clear();
  for (const [name, row] of sorted) rows.set(name, row);
}

function drawCell(cell, partition, id) {
  const replica = partition.replicas[id];
  show(cell.head, replica !== undefined);
  const known = replica !== undefined && Number.isInteger(replica.leo) && Number.isInteger(replica.logStart);
  show(cell.bar, known);
  show(cell.text, known);
  if (!replica) return;
  write(cell.role, replica.role);
  write(cell.flags, [replica.isr === false ? "not in ISR" : "", replica.held ? "held" : ""].filter(Boolean).join(", "));
  write(cell.seen, replica.old && known ? "as last seen" : view.past && !known ? "log unknown" : "");
  cell.node.classList.toggle("old", replica.old);
  if (!known) return;
  const width = partition.high - partition.low;
  const at = (offset) => (width > 0 ? (100 * (offset - partition.low)) / width : 0);
  const percent = (value) => `${Math.round(value * 100) / 100}%`;
  style(cell.bar, "background-image", gradient(replica, at, percent));
  const committed = replica.hw === null ? replica.leo : Math.max(replica.hw, replica.logStart);
  style(cell.above, "left", percent(at(committed)));
  style(cell.above, "width", percent(Math.max(0, at(replica.leo) - at(committed))));
  style(cell.hw, "left", `min(${percent(at(committed))}, 100% - 2px)`);
  show(cell.hw, width > 0 && replica.hw !== null);
  show(cell.lso, width > 0 && holdsReaders(replica));
  if (holdsReaders(replica)) style(cell.lso, "left", `min(${percent(at(replica.lso))}, 100% - 2px)`);
  write(cell.start, replica.logStart > 0 ? `start ${replica.logStart}` : "");
  write(cell.stable, replica.lso === null ? "" : `LSO ${replica.lso}`);
  mark(cell.stable, "class", holdsReaders(replica) ? "holds" : "");
  write(cell.mark, `HW ${replica.hw ?? "unknown"}`);
  write(cell.end, `LEO ${replica.leo}`);
  drawEpochs(cell, replica.epochs);
}

// A transaction that is open, or has just ended: readers of committed records end below the high watermark.
function holdsReaders(replica) {
  return replica.lso !== null && replica.lso !== replica.hw;
}

function gradient(replica, at, percent) {
  const stops = [];
  let last = replica.logStart;
  const stop = (colour, from, to) => {
    if (to > from) stops.push(`${colour} ${percent(at(from))} ${percent(at(to))}`);
  };
  if (at(last) > 0) stops.push(`transparent 0% ${percent(at(last))}`);
  if (replica.epochs.length && replica.epochs[0][1] > last) stop("var(--e7)", last, replica.epochs[0][1]);
  if (!replica.epochs.length) stop("var(--e7)", last, replica.leo);
  for (const [epoch, from, to] of replica.epochs) stop(`var(--e${epoch % COLOURS})`, from, to);
  if (!stops.length || at(replica.leo) === 0) return "none";
  stops.push(`transparent ${percent(at(replica.leo))} 100%`);
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

// The last three: more do not fit; the details have all of them.
function drawEpochs(cell, epochs) {
  const last = epochs.slice(-3);
  const text = (epochs.length > 3 ? "… " : "") + last.map(([epoch, from]) => `${epoch}@${from}`).join(" ");
  if (cell.epochsAre === text) return;
  cell.epochsAre = text;
  cell.epochs.replaceChildren(epochs.length > 3 ? "… " : "", ...last.map(([epoch, from]) => make("i", { class: `t${epoch % COLOURS}` }, `${epoch}@${from}`)));
}

// --- Filters -----------------------------------------------------------------------------------------------------

function passes(name) {
  const partition = view.partitions[name];
  const wanted = byId("filter").value.trim();
  if (wanted && !name.includes(wanted)) return false;
  return !byId("troubled").checked || partition.osr.length > 0 || partition.leader === null;
}

function drawFilter() {
  for (const [name, row] of rows) show(row.group, passes(name));
  drawCount();
}

function drawCount() {
  const all = rows.size;
  const shown = [...rows.values()].filter((row) => !row.group.hidden).length;
  const partitions = Object.values(view.partitions);
  const under = partitions.filter((partition) => partition.osr.length).length;
  const leaderless = partitions.filter((partition) => partition.leader === null).length;
  const parts = [`${shown === all ? "" : `${shown} of `}${counted(all, "partition")}`];
  if (under) parts.push(`${under} under-replicated`);
  if (leaderless) parts.push(`${leaderless} without leader`);
  write(byId("count"), parts.join(", "));
  show(byId("nothing"), shown === 0);
  write(byId("nothing"), all ? "No partition passes the filters." : view.switchable ? "There are no partitions yet: create a topic above." : view.past ? "There are no partitions at this moment." : "There are no partitions yet: tidegauge create-topic orders --partitions 3 --replication-factor 3");
}
