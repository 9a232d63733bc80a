// Write the rule yourself: an editor, the ladder of exercises with hints, and the search for a history that breaks it. The
// rule runs in the worker, inside the brokers' own core; it goes into no address and to no server.
"use strict";

const MOST_TRIED = 200; // schedules, after which a rule is taken to hold
const ladder = { list: [], shown: 0, stopped: false, stop: null, hint: null };

async function makeOwnRule() {
  ladder.list = await (await fetch("exercises.json")).json();
  const choose = make("select", { id: "own-rule-exercise" }, ...ladder.list.map((one) => make("option", { value: one.name }, inLanguage(one.title))));
  choose.addEventListener("change", () => showExercise());
  byId("own-rule-choice").append(make("label", {}, `${word("exercise")} `, choose));
  ladder.stop = own(word("stop"), () => { ladder.stopped = true; });
  ladder.hint = own(word("hint"), () => showHint());
  const go = own(word("try"), () => tryRule());
  go.classList.add("main");
  show(ladder.stop, false);
  byId("own-rule-buttons").append(go, ladder.stop, ladder.hint);
  showExercise();
}

const inLanguage = (text) => text[language] || text.en;
const exercise = () => ladder.list.find((one) => one.name === byId("own-rule-exercise").value);

function showExercise() {
  ladder.shown = 0;
  ladder.stopped = true;
  write(byId("own-rule-task"), inLanguage(exercise().task));
  byId("own-rule-code").value = exercise().code;
  byId("own-rule-hints").replaceChildren();
  write(byId("own-rule-said"), "");
  show(ladder.hint, true);
}

// One hint more; after the last one a rule that holds.
function showHint() {
  const { hints, solution } = exercise();
  const isSolution = ladder.shown === hints.length;
  byId("own-rule-hints").append(make("li", {}, isSolution ? make("pre", { tabindex: 0 }, solution) : inLanguage(hints[ladder.shown])));
  ladder.shown += 1;
  if (ladder.shown > hints.length) {
    show(ladder.hint, false);
    byId("own-rule-code").focus();
  }
}

const sayOfRule = (text) => write(byId("own-rule-said"), text);

// Take the rule in, look whether a cluster gets anywhere with it, then search for a history that breaks it.
async function tryRule() {
  ladder.stopped = false;
  let response = await source.ask({ op: "rule", code: byId("own-rule-code").value });
  let tried = 0;
  show(ladder.stop, true);
  while (!response.error && !response.fault && !response.found && !ladder.stopped && tried < MOST_TRIED) {
    response = await source.ask({ op: "search", seed: tried, count: PIECE, rule: desk.vocabulary.rules.length - 1, own: true });
    tried += response.tried || 0;
    sayOfRule(`${tried} ${word("tried")}`);
  }
  show(ladder.stop, false);
  if (response.error || response.fault) {
    sayOfRule(response.error || response.fault);
    return;
  }
  if (!response.found) {
    if (!ladder.stopped) sayOfRule(`${word("rule-holds")} ${tried} ${word("tried")}.`);
    return;
  }
  leaveStory();
  const shown = await request({ op: "open", schedule: response.found.schedule, own: true });
  const broken = shown.view.verdict.find((one) => one.kind === "broken"); // it names records by their values
  sayOfRule(`${word("found")}${broken ? broken.text : response.found.broken}. ${word("rule-shown")}`);
  byId("stage").scrollIntoView({ block: "nearest" });
}
