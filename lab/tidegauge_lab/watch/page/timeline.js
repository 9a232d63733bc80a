// The time line at the bottom: drag it back, or step by the keyboard, to see the cluster as it was at any moment of the
// run. In a recording there is nothing else; on a live page Escape leads back to now.
"use strict";

const past = {
  shown: false, // whether a moment of the past is shown
  time: 0, // of that moment
  from: 0, // of the left end
  to: 0, // of the right end
  held: false, // the slider is being dragged: its ends do not move
  playing: 0, // timer
  playedAt: 0, // when the timer ran last
  marked: "",
};
const PLAY_EVERY_MS = 100;
const MOST_MARKS = 400;

function since(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

// --- Going there -------------------------------------------------------------------------------------------------

// Show the cluster after this many steps, at the time of the last of them, or later.
function goTo(count, time) {
  const begins = !past.shown;
  past.shown = true;
  past.time = time;
  const change = seek(count);
  dirty.events = true;
  take(begins ? wholeOf(run.state) : change);
  drawMoment();
}

// Everything of another view, with what the shown one has and that one has not.
function wholeOf(state) {
  const whole = { ...state, past: true, switchable: false, greyed: live.switchable || false, problem: "", waiting: "" };
  return withMissing(whole, view);
}

// A whole view as a change of the one before, in which entries that are gone are null.
function withMissing(whole, before) {
  const change = { ...whole };
  for (const key of ENTRIES) {
    const missing = Object.keys(before[key]).filter((name) => !(name in (whole[key] || {})));
    change[key] = { ...whole[key], ...Object.fromEntries(missing.map((name) => [name, null])) };
  }
  return change;
}

function goLive() {
  if (!past.shown || recording) return;
  pause();
  past.shown = false;
  seek(0);
  dirty.events = true;
  take(withMissing({ ...live, past: false, greyed: false }, view));
  drawMoment();
}

function stepTo(count) {
  const wanted = Math.max(0, Math.min(run.steps.length, count));
  goTo(wanted, wanted ? run.steps[wanted - 1].at : past.from);
}

// The number of steps on view; all of them while it is live.
const shownCount = () => (past.shown ? run.count : run.steps.length);

// The next marked step before or behind the shown one; without any, a tenth of the run.
function markedFrom(count, direction) {
  for (let index = count - 1 + direction; index >= 0 && index < run.steps.length; index += direction) {
    if (run.steps[index].mark) return index + 1;
  }
  return count + direction * Math.max(1, Math.round(run.steps.length / 10));
}

const KEYS = {
  ArrowLeft: () => stepTo(shownCount() - 1),
  ArrowDown: () => stepTo(shownCount() - 1),
  ArrowRight: () => forward(shownCount() + 1),
  ArrowUp: () => forward(shownCount() + 1),
  PageDown: () => stepTo(markedFrom(shownCount(), -1)),
  PageUp: () => forward(markedFrom(shownCount(), 1)),
  Home: () => stepTo(0),
  End: () => forward(Infinity),
};

// Beyond the last step the page is live, unless it is a recording.
function forward(count) {
  if (count > run.steps.length && !recording) goLive();
  else stepTo(count);
}

// --- Playing -----------------------------------------------------------------------------------------------------

function play() {
  if (run.count >= run.steps.length) stepTo(0);
  past.playedAt = performance.now();
  past.playing = setInterval(playOn, PLAY_EVERY_MS);
  drawMoment();
}

function pause() {
  clearInterval(past.playing);
  past.playing = 0;
  drawMoment();
}

function playOn() {
  const now = performance.now();
  const time = past.time + (now - past.playedAt) * Number(byId("speed").value);
  past.playedAt = now;
  const count = countAt(time);
  if (count < run.steps.length) goTo(count, time);
  else {
    stepTo(count);
    pause();
  }
}

// --- Drawing -----------------------------------------------------------------------------------------------------

function drawMoment() {
  if (!run.steps.length) return;
  show(byId("timeline"), true);
  if (!past.held) {
    past.from = run.steps[0].at;
    const last = run.steps[run.steps.length - 1].at;
    past.to = Math.max(past.from + 1, recording ? last : Math.max(last, source.now()));
    mark(byId("moment"), "max", String(past.to - past.from));
    byId("moment").value = String((past.shown ? past.time : past.to) - past.from);
    drawMarks();
  }
  document.body.classList.toggle("past", past.shown && !recording);
  const about = aboutMoment();
  write(byId("as-of"), about.when);
  write(byId("as-of-event"), about.event);
  mark(byId("moment"), "aria-valuetext", about.event ? `${about.when}: ${about.event}` : about.when);
  show(byId("to-live"), past.shown && !recording);
  show(byId("playing"), past.shown);
  write(byId("play"), past.playing ? "Pause" : "Play");
  drawLink();
}

function aboutMoment() {
  if (!past.shown) return { when: "Live", event: "drag back to see any earlier moment" };
  const step = run.count ? run.steps[run.count - 1] : null;
  const ago = recording ? `${since(past.time - past.from)} after the start` : `${since(source.now() - past.time)} ago`;
  const event = step ? [step.source, step.partition, step.text].filter(Boolean).join(" ") : "before the first event";
  return { when: `As of ${precise(past.time)}, ${ago}`, event };
}

// One mark for all of a kind that would share one place.
function drawMarks() {
  const places = new Map();
  for (const step of run.steps) {
    if (!step.mark) continue;
    const place = Math.round(((step.at - past.from) / (past.to - past.from)) * MOST_MARKS) / (MOST_MARKS / 100);
    places.set(`${step.mark} ${place}`, [step.mark, place]);
  }
  const marked = [...places.keys()].join();
  if (marked === past.marked) return;
  past.marked = marked;
  byId("marks").replaceChildren(...[...places.values()].map(([kind, place]) => {
    const node = make("i", { class: `at-${kind}` });
    style(node, "left", `${place}%`);
    return node;
  }));
}

// --- Its events --------------------------------------------------------------------------------------------------

byId("moment").addEventListener("input", () => {
  past.held = true; // set first: otherwise drawing moves the slider
  const time = past.from + Number(byId("moment").value);
  pause();
  if (time >= past.to && !recording) goLive();
  else goTo(countAt(time), time);
});
byId("moment").addEventListener("change", () => {
  past.held = false;
  drawMoment();
});
byId("moment").addEventListener("keydown", (pressed) => {
  const does = KEYS[pressed.key];
  if (!does || pressed.altKey || pressed.ctrlKey || pressed.metaKey || !run.steps.length) return;
  pressed.preventDefault();
  pause();
  past.held = false;
  does();
});
document.addEventListener("keydown", (pressed) => {
  if (pressed.key !== "Escape" || !past.shown) return;
  if (recording) pause();
  else goLive();
});
byId("to-live").addEventListener("click", () => {
  goLive();
  byId("moment").focus();
});
// The line is always in sight, at the bottom of the window; browsers scroll to its place without that.
let scrolledTo = 0;
const keepScroll = () => { scrolledTo = window.scrollY; };
window.addEventListener("scroll", () => { if (document.activeElement !== byId("moment")) keepScroll(); }, { passive: true });
byId("moment").addEventListener("blur", keepScroll);
byId("moment").addEventListener("focus", () => requestAnimationFrame(() => window.scrollTo(window.scrollX, scrolledTo)));
show(byId("save"), recording === null);
show(byId("learn"), recording === null);
byId("play").addEventListener("click", () => (past.playing ? pause() : play()));
setInterval(() => {
  if (!past.held && !past.playing && !document.hidden && !recording) drawMoment();
}, 1000);
