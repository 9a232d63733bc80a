// The page `play`: begins the worker, keeps its state, and draws the parts beside the views of `tidegauge watch`.
"use strict";

const AT_MOST_ADDRESS = 8000;

source.listen(({ stage: at, problem, state }) => {
  if (!desk.drawn) performance.mark(`play-${at}`); // bench/play_start.py reads when the page was how far
  if (at === "state") {
    desk.state = state;
    drawPlay();
    return;
  }
  show(byId("loading"), true);
  write(byId("loading"), at === "failed" ? `${word("failed")}${problem}` : word(at));
  byId("loading").classList.toggle("problem", at === "failed");
});

function drawPlay() {
  show(byId("loading"), false);
  for (const name of ["tale", "desk-of-play"]) show(byId(name), true);
  flyNew();
  drawHand();
  drawMessages();
  drawSettings();
  drawTale();
  drawAddress();
  followBeside();
  desk.drawn += 1;
  document.documentElement.dataset.played = String(desk.drawn);
}

// The messages and the table, as they were at the moment that is shown.
function drawMessages() {
  desk.shownAction = actionShown();
  drawFlight();
  drawSequence();
  drawRows();
  drawBeside();
}

// The views of `tidegauge watch` draw a moment of the past by themselves; the rest follows.
new MutationObserver(() => {
  if (desk.state && desk.shownAction !== actionShown()) drawMessages();
}).observe(document.documentElement, { attributes: true, attributeFilter: ["data-drawn"] });

// Let the messages fly that this response has brought.
function flyNew() {
  const { messages, schedule } = desk.state;
  const goesOn = schedule.startsWith(desk.before);
  const last = messages.length ? messages[messages.length - 1].number : 0;
  const isShown = (one) => one.number > desk.flown && !/^UpdateMetadata|no records/.test(one.text); // they move nothing
  if (goesOn) fly(messages.filter(isShown).map((one) => ({ ...one, lost: one.fate === "lost" })), desk.speed);
  Object.assign(desk, { flown: last, before: schedule });
}

// The address holds everything; going back in the browser's history is no undo, so no entries are added.
function drawAddress() {
  const address = new URL(window.location.href);
  address.hash = desk.state.schedule;
  if (address.href !== window.location.href) window.history.replaceState(null, "", address);
  if (byId("address").value !== address.href) byId("address").value = address.href;
}

async function openAddress() {
  const text = (addressed() || window.location.hash.slice(1)).slice(0, AT_MOST_ADDRESS + 1);
  const named = new URLSearchParams(window.location.search).get("story");
  let response = { error: "" };
  if (text && !byId(text)) { // else it is a place on the page
    response = await request({ op: "open", schedule: text });
    if (response.error) {
      await request({ op: "begin", settings: {} });
      sayHere(response.error, true);
    }
  } else { // a first visit begins with the tour
    const wanted = named || tales.list[0].name;
    if (!storyNamed(wanted)) await request({ op: "begin", settings: {} });
    await beginStory(wanted, false);
  }
}

async function beginPlay() {
  for (const node of document.querySelectorAll("[data-text]")) write(node, word(node.dataset.text));
  byId("by-hand").before(byId("transactions"), byId("groups"), byId("shares")); // beside the stage, not below the partitions
  desk.vocabulary = await source.ask({ op: "vocabulary" });
  await source.opened;
  makeHand();
  makeSettings();
  makeShare();
  makeSearch();
  makeBeside();
  await makeOwnRule();
  await makeStories();
  window.addEventListener("hashchange", openAddress);
  await openAddress();
  if ("serviceWorker" in navigator) navigator.serviceWorker.register("service-worker.js").catch(() => {});
}

// The last script of the views has begun when this one runs: it has given the source its reports.
beginPlay();
