// The page of `tidegauge watch`. The server tells whole brokers and whole partitions that changed; here only what
// differs is touched, once per frame.
"use strict";

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
  drawLesson();
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
}

// The buttons and the form need the vocabulary before anything is drawn.
async function begin() {
  declared = await (await fetch("vocabulary")).json();
  makeForm();
  connect();
  await makeLessons();
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
