// Stories of the page `play`, the search for flaws, and what is taken along.
"use strict";

const tales = { list: [], next: null, before: null, begin: null, leave: null, cure: null, stopped: true };

async function makeStories() {
  tales.list = await (await fetch("stories.json")).json();
  const select = byId("story-choice");
  select.append(...tales.list.filter((one) => !one.why).map((one) => make("option", { value: one.name }, titleOf(one))));
  select.addEventListener("change", () => { if (stage.story) leaveStory(); drawTale(); });
  tales.begin = own(word("begin"), () => beginStory(select.value));
  tales.next = own(word("next"), () => storyTo(stage.story.place + 1));
  tales.before = own(word("before"), () => storyTo(Math.max(0, stage.story.place - 1)));
  tales.leave = own(word("leave"), () => leaveStory());
  tales.cure = own(word("cure"), () => cure());
  byId("story-buttons").append(tales.begin, tales.next, tales.before, tales.cure, tales.leave);
}

const titleOf = (one) => one.title[language] || one.title.en;
const storyNamed = (name) => tales.list.find((one) => one.name === name && !one.why);

async function beginStory(name) {
  const story = storyNamed(name);
  if (!story) {
    sayHere(`There is no story ${name} here.`, true);
    return;
  }
  const response = await source.ask({ op: "story", scenario: story.scenario });
  if (response.error) {
    sayHere(response.error, true);
    return;
  }
  byId("story-choice").value = name;
  stage.story = { ...story, place: 0, results: [], steps: story.scenario.steps };
  source.take(response);
  sayHere("");
  tales.next.focus();
}

async function storyTo(place) {
  const response = await source.ask({ op: "story_to", place });
  if (response.error) {
    sayHere(response.error, true);
    return;
  }
  stage.story.results.length = response.story.place;
  if (response.story.place) stage.story.results[response.story.place - 1] = response.story;
  stage.story.place = response.story.place;
  source.take(response);
  for (const button of [tales.next, tales.cure, tales.leave]) { // the one that was pressed may be hidden now
    if (document.activeElement !== document.body) break;
    button.focus();
  }
  sayHere([...response.story.done, ...response.story.wrong].join(" "), response.story.wrong.length > 0);
}

function leaveStory() {
  stage.story = null;
  drawTale();
}

// The same steps by today's rule.
async function cure() {
  const wanted = tales.list.find((one) => one.name === stage.story.cure);
  if (wanted) await beginStory(wanted.name);
}

const stepText = (step) => {
  const [name, value] = Object.entries(step).find(([key]) => key !== "note");
  const plain = typeof value === "object" ? JSON.stringify(value).replaceAll('"', "") : String(value);
  const note = typeof step.note === "object" ? step.note[language] : step.note;
  return note ? `${note} (${name}: ${plain})` : `${name}: ${plain}`;
};

function drawTale() {
  const { story } = stage;
  const chosen = storyNamed(byId("story-choice").value);
  show(tales.begin, !story);
  show(tales.next, Boolean(story) && story.place < story.steps.length);
  show(tales.before, Boolean(story) && story.place > 0);
  show(tales.leave, Boolean(story));
  show(tales.cure, Boolean(story?.cure) && story.place === story.steps.length);
  show(byId("story-steps"), Boolean(story));
  if (!chosen) return;
  write(byId("story-text"), story && story.place === story.steps.length ? `${introOf(story)}\n\n${word("done")}` : introOf(story || chosen));
  if (!story) return;
  byId("story-steps").replaceChildren(...story.steps.map((step, place) => {
    const node = make("li", place === story.place - 1 ? { class: "now", "aria-current": "step" } : {}, stepText(step));
    const result = story.results[place];
    if (result) node.append(make("span", { class: result.wrong.length ? "check bad" : "check" }, result.wrong.length ? `✕ ${result.wrong.join("; ")}` : `✓ ${result.done.join(" ")}`));
    return node;
  }));
  byId("story-steps").querySelector(".now")?.scrollIntoView({ block: "nearest" });
}

const introOf = (one) => (one.intro[language] || one.intro.en).trim();

// --- Find the flaw -------------------------------------------------------------------------------------------------

const PIECE = 5; // schedules that the worker tries before it looks whether it shall stop

function makeSearch() {
  const rule = make("select", { id: "search-rule" }, ...stage.vocabulary.rules.map((name, place) => make("option", { value: place }, name)));
  const seed = make("input", { type: "number", min: 0, max: 999999, value: 0, id: "search-seed" });
  const stop = own(word("stop"), () => { tales.stopped = true; });
  const go = own(word("go"), () => find(Number(rule.value), Number(seed.value), stop));
  show(stop, false);
  byId("search-tools").append(
    make("label", {}, `${word("rule")} `, rule), make("label", {}, "seed ", seed), go, stop,
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
  write(byId("search-said"), `${word("found")}${found.broken}. ${found.rule}. (seed ${found.seed}, ${tried} ${word("tried")})`);
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
    show(byId("scenario"), true);
    write(byId("scenario"), response.error || `# ${response.command}\n${response.text}`);
  });
  byId("share-buttons").append(copy, real);
}
