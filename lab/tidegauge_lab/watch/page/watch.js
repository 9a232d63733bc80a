// The page of `tidegauge watch`. The server tells whole brokers and whole partitions that changed; here only what
// differs is touched, once per frame. Text comes in by textContent alone, so names can't become markup.
"use strict";

const byId = (id) => document.getElementById(id);
const token = document.querySelector('meta[name="tidegauge-token"]').content;
const EVENTS_KEPT = 300;
const COLOURS = 8;
const view = { brokers: {}, partitions: {}, groups: {} };
const cards = new Map(); // id -> card
const rows = new Map(); // "orders-0" -> row
let heads = new Map(); // broker id -> column head
let columns = "";
let events = []; // newest last

// --- Small helpers -----------------------------------------------------------------------------------------------

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function mark(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

function show(node, wanted) {
  if (node.hidden === wanted) node.hidden = !wanted;
}

function style(node, name, value) {
  if (node.style.getPropertyValue(name) !== value) node.style.setProperty(name, value);
}

const ids = (brokers) => (brokers.length ? brokers.join(",") : "nobody");

// --- Buttons -----------------------------------------------------------------------------------------------------

function button(text, label, request) {
  const node = make("button", { type: "button" }, text);
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", () => press(node, request));
  return node;
}

// A pressed button stays where it is and keeps the focus; it takes no second press before the first has its effect.
async function press(node, request) {
  if (node.getAttribute("aria-disabled") === "true" || node.getAttribute("aria-busy") === "true") return;
  node.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch("action", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Tidegauge-Token": token },
      body: JSON.stringify(request()),
    });
    const told = await answer.json();
    say(answer.ok ? told.message : told.error.message, !answer.ok);
  } catch {
    say("the server of this page does not respond; is `tidegauge watch` still running?", true);
  } finally {
    node.removeAttribute("aria-busy");
  }
}

const clock = (moment) => moment.toLocaleTimeString("en-GB");

// With its time: the sentence stays until the next button is pressed.
function say(text, bad) {
  byId("said").classList.toggle("bad", bad);
  byId("said").replaceChildren(make("time", {}, clock(new Date())), ` ${text}`);
}

function able(node, yes) {
  mark(node, "aria-disabled", yes ? "false" : "true");
}

// --- Cards: brokers and ZooKeeper --------------------------------------------------------------------------------

function makeCard(target, title) {
  const card = {
    node: make("li", { class: "card" }),
    state: make("span", { class: "state" }),
    badge: make("span", { class: "badge" }, "controller"),
    place: make("div"),
    session: make("div"),
    leads: make("div"),
    faults: make("div", { class: "faults" }),
    now: "",
    actions: make("div", { class: "buttons" }),
    network: make("div", { class: "buttons" }),
  };
  const does = (name) => () => ({ action: name(), broker: target });
  card.stops = () => (card.now === "down" ? "start" : "stop");
  card.pauses = () => (card.now === "paused" ? "resume" : "pause");
  card.kill = button(texts("kill"), `${texts("kill")} ${title}`, does(() => "kill"));
  card.kill.classList.add("harm");
  card.stop = button("", "", does(card.stops));
  card.pause = button("", "", does(card.pauses));
  card.actions.append(card.kill, card.stop, card.pause);
  card.node.append(
    make("h3", {}, title, card.state, card.badge),
    make("div", { class: "facts" }, card.place, card.session, card.leads, card.faults),
    card.actions,
  );
  if (target !== "zookeeper") {
    const ends = make("select", { "aria-label": `What to isolate ${title} from` });
    const words = declared.faults.isolate.properties.from.anyOf.find((one) => one.enum).enum;
    for (const value of words) ends.append(make("option", { value }, `from ${value}`));
    card.isolate = button("Isolate", `Isolate ${title}`, () => ({ action: "isolate", broker: target, from: ends.value }));
    card.heal = button(texts("heal"), `${texts("heal")} ${title}`, () => ({ action: "heal", broker: target }));
    card.network.append(card.isolate, ends, card.heal);
    card.node.append(card.network);
  }
  card.title = title;
  return card;
}

function drawCard(card, state, place, switchable) {
  card.now = state;
  write(card.state, state);
  mark(card.state, "class", `state ${state}`);
  card.node.classList.toggle("down", state === "down");
  write(card.place, place);
  show(card.actions, switchable);
  show(card.network, switchable);
  write(card.stop, texts(card.stops()));
  mark(card.stop, "aria-label", `${card.stop.textContent} ${card.title}`);
  write(card.pause, texts(card.pauses()));
  mark(card.pause, "aria-label", `${card.pause.textContent} ${card.title}`);
  able(card.kill, state !== "down" && state !== "kafka");
  able(card.pause, state !== "down" && state !== "kafka");
  able(card.stop, state !== "kafka");
}

function drawBroker(broker) {
  let card = cards.get(broker.id);
  if (!card) {
    card = makeCard(broker.id, `Broker ${broker.id}`);
    cards.set(broker.id, card);
    const next = [...cards.keys()].filter((id) => id !== "zookeeper" && id > broker.id).sort((a, b) => a - b)[0];
    byId("cards").insertBefore(card.node, next === undefined ? null : cards.get(next).node);
  }
  const pid = broker.pid === null ? "" : `, process ${broker.pid}`;
  drawCard(card, broker.state, `${broker.address}${pid}`, view.switchable);
  show(card.badge, broker.controller);
  show(card.session, view.switchable);
  write(card.session, `ZooKeeper: ${broker.sessionText}`);
  const kafka = broker.state === "kafka" ? "; an Apache Kafka broker: what its replicas hold can't be shown" : "";
  const silent = broker.state === "up" && !broker.answers ? "; does not respond" : kafka;
  write(card.leads, `leads ${broker.leads} of its ${broker.replicas} partitions${silent}`);
  const held = broker.held ? [`${broker.held} held`] : [];
  write(card.faults, [...broker.faults, ...held].join("; "));
  able(card.isolate, broker.state === "up");
  able(card.heal, broker.faults.length > 0);
  const head = heads.get(broker.id);
  if (head) {
    write(head.state, broker.state === "up" ? "" : broker.state);
    mark(head.state, "class", `state ${broker.state === "up" ? "" : broker.state}`);
    write(head.controller, broker.controller ? "controller" : "");
  }
}

function drawZooKeeper() {
  let card = cards.get("zookeeper");
  if (!card) {
    card = makeCard("zookeeper", "ZooKeeper");
    cards.set("zookeeper", card);
    byId("cards").prepend(card.node);
    show(card.badge, false);
  }
  const zookeeper = view.zookeeper;
  show(card.node, zookeeper.address !== "");
  drawCard(card, zookeeper.state, zookeeper.address, view.switchable && zookeeper.managed);
  const sessions = Object.values(view.brokers).filter((broker) => broker.session !== null).length;
  write(card.session, zookeeper.answers ? `${sessions} sessions of brokers` : "does not respond");
  const epoch = view.controllerEpoch === null ? "" : `, controller epoch ${view.controllerEpoch}`;
  write(card.leads, view.controller === null ? "no controller is known" : `controller: broker ${view.controller}${epoch}`);
}

// --- The table ---------------------------------------------------------------------------------------------------

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
  rows.clear(); // other columns: all rows are made anew, which is rare
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
    cells: new Map(),
    more: null,
  };
  const line = make("div", { class: "row", role: "row" });
  line.append(make("div", { class: "who", role: "rowheader" }, row.name, make("div", {}, row.leader, row.isr, row.osr)));
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
    text: make("div", { class: "bar-text" }),
    start: make("span"),
    mark: make("span"),
    end: make("span"),
    epochs: make("span", { class: "epochs" }),
    epochsAre: "",
  };
  cell.bar.append(cell.above, cell.hw);
  cell.head.append(cell.role, cell.flags, cell.seen);
  cell.text.append(cell.start, cell.mark, cell.end, cell.epochs);
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
  const leaderless = partition.leader === null;
  write(row.leader, (leaderless ? "no leader" : `leader ${partition.leader}`) + (partition.leaderEpoch === null ? "" : `, epoch ${partition.leaderEpoch}`));
  row.leader.classList.toggle("leaderless", leaderless);
  write(row.isr, `ISR ${ids(partition.isr)}`);
  write(row.osr, partition.osr.length ? `OSR ${ids(partition.osr)}` : "");
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
  const known = replica !== undefined && replica.leo !== undefined;
  show(cell.bar, known);
  show(cell.text, known);
  if (!replica) return;
  write(cell.role, replica.role);
  write(cell.flags, [replica.isr ? "" : "not in ISR", replica.held ? "held" : ""].filter(Boolean).join(", "));
  write(cell.seen, replica.old && known ? "as last seen" : "");
  cell.node.classList.toggle("old", replica.old);
  if (!known) return;
  const width = partition.high - partition.low;
  const at = (offset) => (width > 0 ? (100 * (offset - partition.low)) / width : 0);
  const percent = (value) => `${Math.round(value * 100) / 100}%`;
  style(cell.bar, "background-image", gradient(replica, at, percent));
  style(cell.above, "left", percent(at(Math.max(replica.hw, replica.logStart))));
  style(cell.above, "width", percent(Math.max(0, at(replica.leo) - at(Math.max(replica.hw, replica.logStart)))));
  style(cell.hw, "left", `min(${percent(at(replica.hw))}, 100% - 2px)`);
  show(cell.hw, width > 0);
  write(cell.start, replica.logStart > 0 ? `start ${replica.logStart}` : "");
  write(cell.mark, `${holdsReaders(replica) ? `LSO ${replica.lso} ` : ""}HW ${replica.hw}`);
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

// The last three: more do not fit; all of them stand in the details.
function drawEpochs(cell, epochs) {
  const last = epochs.slice(-3);
  const text = (epochs.length > 3 ? "… " : "") + last.map(([epoch, from]) => `${epoch}@${from}`).join(" ");
  if (cell.epochsAre === text) return;
  cell.epochsAre = text;
  cell.epochs.replaceChildren(epochs.length > 3 ? "… " : "", ...last.map(([epoch, from]) => make("i", { class: `t${epoch % COLOURS}` }, `${epoch}@${from}`)));
}

// --- A partition's details: each replica in words, and its holds -------------------------------------------------

function toggleMore(name, row) {
  const open = row.more === null;
  mark(row.name, "aria-expanded", String(open));
  if (!open) {
    row.more.node.parentNode.remove();
    row.more = null;
    return;
  }
  row.more = { node: make("div", { class: "more", role: "cell" }), replicas: new Map() };
  row.group.append(make("div", { role: "row" }, row.more.node));
  drawMore(name, row);
}

function drawMore(name, row) {
  const partition = view.partitions[name];
  const assigned = partition.assigned.join(",");
  if (row.more.assigned !== assigned) {
    row.more.assigned = assigned;
    row.more.replicas.clear();
    row.more.node.replaceChildren(...[...partition.assigned].sort((a, b) => a - b).map((id) => makeMore(name, row, id)));
  }
  for (const [id, part] of row.more.replicas) {
    const replica = partition.replicas[id];
    write(part.text, inWords(replica));
    const free = replica.role === "follower" && !replica.old;
    show(part.buttons, view.switchable && (free || replica.held));
    part.held = replica.held;
    write(part.hold, texts(part.holds()));
    mark(part.hold, "aria-label", `${part.hold.textContent}: ${name} on broker ${id}`);
    able(part.step, replica.held && free);
  }
}

function makeMore(name, row, id) {
  const part = { text: make("p"), buttons: make("div", { class: "buttons" }), held: false };
  part.holds = () => (part.held ? "release_fetch" : "hold_fetch");
  part.hold = button("", "", () => ({ action: part.holds(), broker: id, partition: name }));
  part.step = button(texts("step_fetch"), `${texts("step_fetch")}: one fetch round of ${name} on broker ${id}`, () => ({ action: "step_fetch", broker: id, partition: name }));
  part.buttons.append(part.hold, part.step);
  row.more.replicas.set(id, part);
  return make("div", {}, make("h4", {}, `${name} on broker ${id}`), part.text, part.buttons);
}

function inWords(replica) {
  if (replica.leo === undefined) return replica.role === "offline" ? "Its log folder is offline." : "Its broker has not answered yet.";
  const words = [
    `${replica.role}${replica.epoch === null ? "" : ` in epoch ${replica.epoch}`}, ${replica.isr ? "in the ISR" : "not in the ISR"}${replica.old ? " (as last seen)" : ""}`,
    `offsets ${replica.logStart} to ${replica.leo}, HW ${replica.hw}${holdsReaders(replica) ? `, last stable offset ${replica.lso}` : ""}, ${replica.bytes} bytes`,
  ];
  const epochs = replica.epochs.map(([epoch, from, to]) => (from === to ? `${epoch}@${from} (empty)` : `${epoch}@${from}`));
  words.push(epochs.length ? `epochs ${epochs.join(" ")}` : "no epochs yet");
  const knows = Object.entries(replica.knows).map(([id, leo]) => `broker ${id}: ${leo === null ? "nothing yet" : leo}`);
  if (knows.length) words.push(`knows LEO of ${knows.join(", ")}`);
  if (replica.held) words.push(replica.keptBy === null ? "held" : `held, broker ${replica.keptBy} withholds a response`);
  return `${words.join("; ")}.`;
}

// --- Topics: a new one, and records for one -----------------------------------------------------------------------

let topics = "";

function makeTopics() {
  const number = (id) => Number(byId(id).value);
  byId("create").append(button("Create topic", "", () => ({
    action: "create-topic", topic: byId("topic").value.trim(), partitions: number("topic-partitions"), replicas: number("topic-replicas"),
  })));
  byId("produce").append(button("Write", "Write records", () => ({ action: "produce", topic: byId("records-topic").value, count: number("records") })));
}

function drawTopics() {
  const names = [...new Set(Object.values(view.partitions).map((partition) => partition.topic))].sort();
  show(byId("topics"), Boolean(view.switchable));
  able(byId("produce").firstChild, names.length > 0);
  if (names.join() === topics) return;
  topics = names.join();
  const chosen = byId("records-topic").value;
  byId("records-topic").replaceChildren(...names.map((name) => make("option", {}, name)));
  if (names.includes(chosen)) byId("records-topic").value = chosen;
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
  const parts = [`${shown === all ? all : `${shown} of ${all}`} partitions`];
  if (under) parts.push(`${under} under-replicated`);
  if (leaderless) parts.push(`${leaderless} without leader`);
  write(byId("count"), parts.join(", "));
  show(byId("nothing"), shown === 0);
  write(byId("nothing"), all ? "No partition passes the filters." : view.switchable ? "There are no partitions yet: create a topic above." : "There are no partitions yet: tidegauge create-topic orders --partitions 3 --replication-factor 3");
}

// --- Events ------------------------------------------------------------------------------------------------------

const isOffset = (event) => ["high_watermark", "last_stable_offset", "log_end_offset"].includes(event.kind);

function wantsEvent(event) {
  if (isOffset(event) && !byId("offsets").checked) return false;
  const wanted = byId("events-filter").value.trim();
  return !wanted || `${event.source} ${event.partition} ${event.text}`.includes(wanted);
}

function eventLine(event) {
  const moment = new Date(event.time);
  const written = `${clock(moment)}.${String(moment.getMilliseconds()).padStart(3, "0")}`;
  return make("li", {}, make("time", {}, written), make("span", { class: "source" }, event.source), make("span", {}, event.partition), make("span", { class: `text ${event.kind}` }, event.text));
}

function addEvents(added) {
  events.push(...added);
  let [plain, offsets] = [0, 0]; // each kind keeps its own: offsets come in hundreds
  events = events.reverse().filter((event) => (isOffset(event) ? ++offsets : ++plain) <= EVENTS_KEPT).reverse();
  const wanted = added.filter(wantsEvent).slice(-2 * EVENTS_KEPT);
  byId("events").prepend(...wanted.reverse().map(eventLine));
  while (byId("events").childElementCount > 2 * EVENTS_KEPT) byId("events").lastElementChild.remove();
}

function drawEvents() {
  byId("events").replaceChildren(...events.filter(wantsEvent).reverse().map(eventLine));
}

// --- What a screen reader is told by itself: states, controller, leaders; at most every two seconds ----------------

let news = [];
let newsTimer = 0;

function tell(change) {
  for (const [id, broker] of Object.entries(change.brokers || {})) {
    const before = view.brokers[id];
    if (broker && before && before.state !== broker.state) news.push(`broker ${id} ${broker.state}`);
  }
  if (change.zookeeper && view.zookeeper && change.zookeeper.state !== view.zookeeper.state) news.push(`ZooKeeper ${change.zookeeper.state}`);
  if (change.controller !== undefined && change.controller !== null) news.push(`broker ${change.controller} is the controller`);
  const moved = Object.entries(change.partitions || {}).filter(([name, now]) => now && view.partitions[name] && view.partitions[name].leader !== now.leader);
  for (const [name, now] of Object.entries(change.groups || {})) {
    if (now && view.groups[name] && view.groups[name].state !== now.state) news.push(`group ${name} ${now.state}`);
  }
  if (moved.length > 3) news.push(`${moved.length} partitions changed their leader`);
  else for (const [name, now] of moved) news.push(now.leader === null ? `${name} has no leader` : `broker ${now.leader} leads ${name}`);
  if (news.length && !newsTimer) {
    newsTimer = setTimeout(() => {
      write(byId("news"), news.join("; "));
      news = [];
      newsTimer = 0;
    }, 2000);
  }
}

// --- Changes come in, once per frame ------------------------------------------------------------------------------

const dirty = { all: false, brokers: new Set(), partitions: new Set(), groups: new Set(), frame: 0 };
const ENTRIES = ["brokers", "partitions", "groups"];

function take(change) {
  for (const [key, value] of Object.entries(change)) {
    if (!ENTRIES.includes(key)) view[key] = value;
  }
  for (const key of ENTRIES) {
    for (const [name, value] of Object.entries(change[key] || {})) {
      if (value === null) delete view[key][name];
      else view[key][name] = value;
      dirty[key].add(name);
    }
  }
  if (!dirty.frame) {
    // A page in the background gets no frames; it is drawn then too, so that it is true when it comes back.
    dirty.frame = document.hidden ? setTimeout(draw, 500) : requestAnimationFrame(draw);
  }
}

function draw() {
  dirty.frame = 0;
  write(byId("name"), view.name || "");
  show(byId("problem"), Boolean(view.problem));
  write(byId("problem"), view.problem || "");
  show(byId("waiting"), Boolean(view.waiting));
  write(byId("waiting"), view.waiting || "");
  for (const id of dirty.brokers) {
    if (!view.brokers[id] && cards.has(Number(id))) {
      cards.get(Number(id)).node.remove();
      cards.delete(Number(id));
    }
  }
  drawHeads();
  drawZooKeeper();
  for (const broker of Object.values(view.brokers)) drawBroker(broker);
  for (const name of dirty.partitions) {
    if (view.partitions[name]) drawPartition(name);
    else if (rows.has(name)) {
      rows.get(name).group.remove();
      rows.delete(name);
    }
  }
  drawGroups(dirty.groups);
  dirty.groups.clear();
  dirty.brokers.clear();
  dirty.partitions.clear();
  drawForm();
  drawTopics();
  drawCount();
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
}

// The buttons and the form need the vocabulary before anything is drawn.
async function begin() {
  declared = await (await fetch("vocabulary")).json();
  makeForm();
  connect();
}

function connect() {
  const source = new EventSource("events");
  const link = (text, waiting) => {
    write(byId("link"), text);
    byId("link").classList.toggle("waiting", waiting);
  };
  source.addEventListener("open", () => link("live", false));
  source.addEventListener("error", () => link("connection lost, trying again", true));
  source.addEventListener("view", (message) => {
    const whole = JSON.parse(message.data);
    for (const key of ENTRIES) {
      for (const name of Object.keys(view[key])) if (!(name in whole[key])) whole[key][name] = null;
    }
    events = []; // they follow anew
    byId("events").replaceChildren();
    take(whole);
  });
  source.addEventListener("change", (message) => {
    const change = JSON.parse(message.data);
    tell(change);
    take(change);
  });
  source.addEventListener("events", (message) => addEvents(JSON.parse(message.data)));
}

byId("filter").addEventListener("input", drawFilter);
byId("troubled").addEventListener("change", drawFilter);
byId("events-filter").addEventListener("input", drawEvents);
byId("offsets").addEventListener("change", drawEvents);
window.addEventListener("resize", fit);
makeTopics();
begin();
