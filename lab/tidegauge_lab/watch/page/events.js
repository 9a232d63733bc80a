// The list of events, and what a screen reader is told by itself.
"use strict";

const EVENTS_KEPT = 300;

const isOffset = (event) => ["high_watermark", "last_stable_offset", "log_end_offset"].includes(event.kind);

function wantsEvent(event) {
  if (isOffset(event) && !byId("offsets").checked) return false;
  const wanted = byId("events-filter").value.trim();
  return !wanted || `${event.source} ${event.partition} ${event.text}`.includes(wanted);
}

function eventLine(event) {
  return make("li", {}, make("time", {}, precise(event.time)), make("span", { class: "source" }, event.source), make("span", {}, event.partition), make("span", { class: `text ${event.kind === "fault" ? event.mark : event.kind}` }, event.text));
}

function addEvents(added) {
  extendRun(added);
  drawMoment();
  if (past.shown) return;
  byId("events").prepend(...added.filter(wantsEvent).slice(-2 * EVENTS_KEPT).reverse().map(eventLine));
  while (byId("events").childElementCount > 2 * EVENTS_KEPT) byId("events").lastElementChild.remove();
}

// The last ones up to the shown moment; each kind has its own limit, since offsets come in hundreds.
function drawEvents() {
  const lines = [];
  let [plain, offsets] = [0, 0];
  for (let index = shownCount() - 1; index >= 0 && plain < EVENTS_KEPT; index -= 1) {
    const event = run.steps[index];
    if (wantsEvent(event) && (isOffset(event) ? ++offsets : ++plain) <= EVENTS_KEPT) lines.push(eventLine(event));
  }
  byId("events").replaceChildren(...lines);
}

// --- Announced to screen readers: states, controller, leaders; at most every two seconds ----------------

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
  if (moved.length > 3) news.push(`${counted(moved.length, "partition")} changed their leader`);
  else for (const [name, now] of moved) news.push(now.leader === null ? `${name} has no leader` : `broker ${now.leader} leads ${name}`);
  if (news.length && !newsTimer) {
    newsTimer = setTimeout(() => {
      write(byId("news"), news.join("; "));
      news = [];
      newsTimer = 0;
    }, 2000);
  }
}
