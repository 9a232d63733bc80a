// The page of `tidegauge watch`. The server tells whole brokers and whole partitions that changed; here only what
// differs is touched, once per frame.
"use strict";

const dirty = { ...Object.fromEntries(ENTRIES.map((key) => [key, new Set()])), events: false, frame: 0 };
const link = { text: "connecting", waits: true };

// What the server sends is kept while a moment of the past is shown.
function receive(change) {
  merge(live, change);
  if (!past.shown) take(change);
  else if (change.teaching) take({ teaching: change.teaching }); // it is not of the cluster, and goes on
}

function merge(into, change) {
  for (const [key, value] of Object.entries(change)) {
    if (!ENTRIES.includes(key)) into[key] = value;
  }
  for (const key of ENTRIES) {
    for (const [name, value] of Object.entries(change[key] || {})) {
      if (value === null) delete into[key][name];
      else into[key][name] = value;
    }
  }
}

// Show a change.
function take(change) {
  merge(view, change);
  for (const key of ENTRIES) Object.keys(change[key] || {}).forEach((name) => dirty[key].add(name));
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
  drawControllers();
  for (const broker of Object.values(view.brokers)) drawBroker(broker);
  for (const name of dirty.partitions) {
    if (view.partitions[name]) drawPartition(name);
    else if (rows.has(name)) {
      rows.get(name).group.remove();
      rows.delete(name);
    }
  }
  drawGroups(dirty.groups);
  drawShares(dirty.shares);
  drawTransactions(dirty.transactions);
  for (const key of ENTRIES) dirty[key].clear();
  if (dirty.events) drawEvents();
  dirty.events = false;
  drawForm();
  drawTopics();
  drawCount();
  drawStage();
  drawLesson();
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
}

// The buttons and the form need the vocabulary before anything is drawn.
async function begin() {
  declared = recording ? recording.vocabulary : await source.vocabulary();
  makeForm();
  if (recording) {
    openRecording();
    return;
  }
  connect();
  await makeLessons();
}

function openRecording() {
  view.name = recording.name;
  const { story } = recording;
  show(byId("told"), Boolean(story));
  write(byId("told-title"), story ? story.title : "");
  write(byId("told-text"), story ? story.text : "");
  beginRun(recording.base, recording.steps);
  stepTo(run.steps.length);
}

function connect() {
  source.open({
    linked(text, waits) {
      Object.assign(link, { text, waits });
      drawLink();
    },
    view: (whole) => receive(withMissing(whole, live)),
    change(change) {
      if (!past.shown) tell(change);
      receive(change);
    },
    history({ base, steps }) {
      goLive();
      beginRun(base, steps);
      drawMoment();
      drawEvents();
    },
    events: addEvents,
  });
}

function drawLink() {
  write(byId("link"), recording ? "a recording" : past.shown && !link.waits ? "not live" : link.text);
  byId("link").classList.toggle("waiting", past.shown || link.waits);
}

byId("filter").addEventListener("input", drawFilter);
byId("troubled").addEventListener("change", drawFilter);
byId("events-filter").addEventListener("input", drawEvents);
byId("offsets").addEventListener("change", drawEvents);
window.addEventListener("resize", fit);
makeTopics();
begin();
