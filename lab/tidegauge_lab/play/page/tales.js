// Stories of the page `play`, the search for flaws, and the links to share.
"use strict";

const tales = { list: [], next: null, before: null, begin: null, leave: null, cure: null, pair: null, on: null, stopped: true, timer: 0 };
const STEP_MS = 3000; // how long a step is shown before the next one, of a story that plays on
const SPEEDS = [0.5, 1, 2, 4];

async function makeStories() {
  tales.list = await (await fetch("stories.json")).json();
  const select = byId("story-choice");
  const themes = Map.groupBy(tales.list.filter((one) => !one.why), (one) => one.theme);
  for (const [theme, list] of themes) {
    select.append(make("optgroup", { label: word(theme) }, ...list.map((one) => make("option", { value: one.name }, `${isCure(one) ? "↳ " : ""}${titleOf(one)}`))));
  }
  byId("story-find").setAttribute("aria-label", word("find-story"));
  byId("story-find").placeholder = word("find-story");
  byId("story-find").addEventListener("input", filterStories);
  select.addEventListener("change", () => beginStory(select.value));
  tales.begin = own(word("begin"), () => beginStory(select.value));
  tales.next = own(word("next"), () => stepOn());
  tales.before = own(word("before"), () => stepBack());
  tales.on = own(word("play-on"), () => playOnStory());
  tales.leave = own(word("leave"), () => leaveStory());
  tales.cure = own(word("cure"), () => cure());
  tales.pair = own(word("pair"), () => setBeside(desk.vocabulary.rules.length - 1));
  for (const node of [tales.next, tales.cure]) node.classList.add("main");
  const speed = make("select", { id: "story-speed", "aria-label": word("speed") }, ...SPEEDS.map((one) => make("option", { value: one }, `${one}×`)));
  speed.value = "1";
  speed.addEventListener("change", () => { desk.speed = Number(speed.value); });
  byId("story-buttons").append(tales.begin, tales.next, tales.before, tales.cure, tales.pair, tales.on, speed, tales.leave);
  document.addEventListener("keydown", pressedInStory);
}

const isCure = (one) => tales.list.some((other) => other.cure === one.name);

// Leave those stories to choose from that have all words of the search in their name, title or introduction.
function filterStories() {
  const words = byId("story-find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const isFound = (one) => words.every((part) => `${one.name} ${titleOf(one)} ${introOf(one)}`.toLowerCase().includes(part));
  for (const option of byId("story-choice").options) option.hidden = option.disabled = !isFound(storyNamed(option.value));
  for (const group of byId("story-choice").children) group.hidden = [...group.children].every((option) => option.hidden);
}

// Step and speed by the keyboard, wherever the focus is but in a field.
async function pressedInStory(pressed) {
  if (!desk.story || !isPlainKey(pressed)) return;
  const place = SPEEDS.indexOf(desk.speed);
  const does = { n: stepOn, b: stepBack, p: playOnStory, "+": () => setSpeed(place + 1), "-": () => setSpeed(place - 1) }[pressed.key];
  if (!does) return;
  pressed.preventDefault();
  await does();
}

function setSpeed(place) {
  desk.speed = SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, place))];
  byId("story-speed").value = String(desk.speed);
}

const titleOf = (one) => one.title[language] || one.title.en;
const storyNamed = (name) => tales.list.find((one) => one.name === name && !one.why);
const atEnd = (story) => story.place >= story.steps.length;

// Begin a story; the focus goes to its next step if a person has asked for it.
async function beginStory(name, isAsked = true) {
  const story = storyNamed(name);
  if (!story) {
    sayHere(`There is no story ${name} here.`, true);
    return;
  }
  stopPlaying();
  const response = await source.ask({ op: "story", scenario: story.scenario });
  if (response.error) {
    sayHere(response.error, true);
    return;
  }
  byId("story-choice").value = name;
  byId("drawer").open = false;
  desk.story = { ...story, place: 0, results: [], steps: story.scenario.steps };
  source.take(response);
  sayHere("");
  if (isAsked) tales.next.focus();
}

// Put the partition on the stage that a step is about; one that names none is about the first, if it is about records.
const ABOUT_RECORDS = ["send", "produce", "consume", "expect", "expect_read", "start_producer", "start_consumer"];

function stageWhatIsMeant(steps) {
  const select = byId("stage-partition");
  const isMeant = (step) => JSON.stringify(step).match(/"partition":"([^"]+)"/)?.[1] || (ABOUT_RECORDS.some((name) => name in step) ? "orders-0" : "");
  const wanted = steps.map(isMeant).findLast(Boolean);
  if (!wanted || select.value === wanted || ![...select.options].some((one) => one.value === wanted)) return;
  select.value = wanted;
  drawStage();
}

async function stepOn() {
  if (!atEnd(desk.story)) await storyTo(desk.story.place + 1);
}

async function stepBack() {
  stopPlaying();
  await storyTo(Math.max(0, desk.story.place - 1));
}

async function storyTo(place) {
  const story = desk.story;
  const response = await source.ask({ op: "story_to", place });
  if (story !== desk.story) return; // another one was begun meanwhile
  if (response.error) {
    sayHere(response.error, true);
    return;
  }
  story.results.length = response.story.place;
  if (response.story.place) story.results[response.story.place - 1] = response.story;
  story.place = response.story.place;
  source.take(response);
  stageWhatIsMeant(story.steps.slice(0, story.place));
  for (const button of [tales.next, tales.cure, tales.leave]) { // the one that was pressed may be hidden now
    if (document.activeElement !== document.body) break;
    button.focus();
  }
}

// Play on until the end, a step every few seconds; again: stop.
function playOnStory() {
  if (tales.timer) {
    stopPlaying();
    return;
  }
  const go = async () => {
    if (!desk.story || atEnd(desk.story)) {
      stopPlaying();
      return;
    }
    await stepOn();
    if (tales.timer) tales.timer = setTimeout(go, STEP_MS / desk.speed);
  };
  tales.timer = setTimeout(go, 0);
  drawTale();
}

function stopPlaying() {
  clearTimeout(tales.timer);
  tales.timer = 0;
  if (desk.state) drawTale();
}

function leaveStory() {
  stopPlaying();
  desk.story = null;
  byId("drawer").open = true;
  drawTale();
}

// The same steps by today's rule.
async function cure() {
  const wanted = tales.list.find((one) => one.name === desk.story.cure);
  if (wanted) await beginStory(wanted.name);
}

const noteOf = (step) => (typeof step.note === "object" ? step.note[language] || step.note.en : step.note || "").trim();

function plainStep(step) {
  const [name, value] = Object.entries(step).find(([key]) => key !== "note" && key !== "kraft");
  return spoken(`${name}: ${typeof value === "object" ? JSON.stringify(value).replaceAll('"', "") : String(value)}`);
}

const stepText = (step) => (noteOf(step) ? `${noteOf(step)} (${plainStep(step)})` : plainStep(step));

function drawTale() {
  const { story } = desk;
  const chosen = storyNamed(byId("story-choice").value);
  const ended = Boolean(story) && atEnd(story);
  document.body.classList.toggle("telling", Boolean(story));
  show(tales.begin, !story);
  for (const node of [tales.next, tales.on, byId("story-speed")]) show(node, Boolean(story) && !ended);
  show(tales.before, Boolean(story) && story.place > 0);
  show(tales.leave, Boolean(story));
  show(tales.cure, ended && Boolean(story.cure));
  show(tales.pair, ended && Boolean(story.cure) && beside.rule < 0);
  write(tales.on, word(tales.timer ? "pause" : "play-on"));
  show(byId("story-all"), Boolean(story));
  write(byId("story-place"), story ? `${story.place} / ${story.steps.length}` : "");
  if (!chosen) return;
  const step = story && story.place ? story.steps[story.place - 1] : null;
  const result = step && story.results[story.place - 1];
  write(byId("story-text"), step ? noteOf(step) || plainStep(step) : introOf(story || chosen));
  byId("story-text").classList.toggle("now", Boolean(step));
  const did = result ? (result.wrong.length ? `✕ ${result.wrong.join("; ")}` : `✓ ${result.done.join(" ")}`) : "";
  write(byId("story-did"), ended ? `${did} ${word("done")}` : did);
  byId("story-did").classList.toggle("bad", Boolean(result && result.wrong.length));
  if (story) drawSteps(story);
}

function drawSteps(story) {
  byId("story-steps").replaceChildren(...story.steps.map((step, place) => {
    const node = make("li", place === story.place - 1 ? { class: "now", "aria-current": "step" } : {}, stepText(step));
    const result = story.results[place];
    if (result) node.append(make("span", { class: result.wrong.length ? "check bad" : "check" }, result.wrong.length ? `✕ ${result.wrong.join("; ")}` : `✓ ${result.done.join(" ")}`));
    return node;
  }));
  if (byId("story-all").open) byId("story-steps").querySelector(".now")?.scrollIntoView({ block: "nearest" });
}

const introOf = (one) => (one.intro[language] || one.intro.en).trim();

// --- Find the flaw -------------------------------------------------------------------------------------------------

const PIECE = 5; // schedules that the worker tries before it looks whether it shall stop

function makeSearch() {
  const rule = make("select", { id: "search-rule" }, ...desk.vocabulary.rules.map((name, place) => make("option", { value: place }, name)));
  const seed = make("input", { type: "number", min: 0, max: 999999, value: 0, id: "search-seed" });
  const stop = own(word("stop"), () => { tales.stopped = true; });
  const go = own(word("go"), () => find(Number(rule.value), Number(seed.value), stop));
  show(stop, false);
  byId("search-tools").append(
    make("label", {}, `${word("rule")} `, rule), make("label", {}, `${word("seed")} `, seed), go, stop,
  );
}

async function find(rule, from, stop) {
  tales.stopped = false;
  show(stop, true);
  let [tried, found] = [0, null];
  while (!tales.stopped && !found) {
    const response = await source.ask({ op: "search", seed: from + tried, count: PIECE, rule });
    if (response.error) {
      write(byId("search-said"), response.error);
      break;
    }
    ({ found } = response);
    tried += response.tried;
    write(byId("search-said"), `${tried} ${word("tried")}`);
  }
  show(stop, false);
  if (!found) {
    if (tried) write(byId("search-said"), `${word("nothing")}${tried} ${word("tried")}`);
    return;
  }
  leaveStory();
  await request({ op: "open", schedule: found.schedule });
  write(byId("search-said"), `${word("found")}${spoken(found.broken)}. ${phrase(found.rule)} (${word("seed")} ${found.seed}, ${tried} ${word("tried")})`);
}

// --- Share ---------------------------------------------------------------------------------------------------------

function makeShare() {
  const copy = own(word("copy"), async () => {
    try {
      await navigator.clipboard.writeText(byId("address").value);
      sayHere("✓");
    } catch { // the browser does not allow it: the text is selected, to be copied by hand
      byId("address").select();
    }
  });
  const real = own(word("real"), async () => {
    const response = await source.ask({ op: "scenario" });
    const shipped = desk.story && desk.story.shipped ? `# tidegauge scenario run ${desk.story.name}\n` : "";
    show(byId("scenario"), true);
    write(byId("scenario"), response.error || `${shipped}# ${response.command}\n${response.text}`);
  });
  byId("share-buttons").append(copy, real);
}
