// A story beside the cluster that it plays on: each step with its text, its action, its expectation, and whether it holds.
"use strict";

const STEP_WORDS = { held: "done", failed: "failed", playing: "playing", next: "next", later: "" };

async function makeStory(name) {
  const said = makeSaid();
  const to = { path: "story", say: said.tell };
  const story = {
    about: make("div"),
    state: make("p", { class: "story-state", role: "status" }),
    problem: make("p", { class: "problem", hidden: "" }),
    steps: make("ol", { class: "story-steps" }),
    drawn: [],
    known: "",
  };
  const plays = button("Play step by step", "", () => ({ do: "start", story: name }), to);
  const next = button("Next step", "Next step (key n)", () => ({ do: "next" }), to);
  let playsOn = false;
  const on = button("Play on", "", () => ({ do: playsOn ? "pause" : "on" }), to);
  const ends = button("End", "End the story, and delete its cluster", () => ({ do: "end" }), to);
  next.classList.add("main");
  const intro = make("p", {}, "A story has a cluster of its own, which is shown here until you end the story. Nothing happens to another cluster.");
  const bar = make("div", { class: "story-bar" }, make("div", { class: "buttons" }, plays, next, on, ends), story.state, said.node);
  const node = make("div", { class: "prose" }, intro, story.about, bar, story.problem, story.steps);
  node.addEventListener("keydown", (event) => {
    if (event.key === "n" && !event.ctrlKey && !event.metaKey && !event.altKey && !next.hidden) press(next, () => ({ do: "next" }), to);
  });
  const draw = (teaching) => {
    const now = teaching.story && teaching.story.name === name ? teaching.story : null;
    const ended = Boolean(now) && ["over", "failed"].includes(now.phase);
    for (const one of [next, on]) show(one, Boolean(now) && !ended);
    show(ends, Boolean(now));
    show(plays, !now || ended);
    show(intro, !now);
    write(plays, ended ? "Play again" : "Play step by step");
    able(plays, !teaching.story || ended);
    able(next, Boolean(now) && now.phase === "waiting" && !now.playsOn);
    playsOn = Boolean(now && now.playsOn);
    write(on, playsOn ? "Pause" : "Play on");
    able(on, Boolean(now) && now.phase !== "starting");
    drawStory(story, now);
    if (!now && teaching.story) write(story.state, `Another story is being played: ${teaching.story.title}`);
  };
  return { node, draw };
}

function drawStory(story, now) {
  show(story.problem, Boolean(now && now.problem));
  show(story.state, true);
  if (!now) {
    story.about.replaceChildren();
    story.steps.replaceChildren();
    Object.assign(story, { drawn: [], known: "" });
    write(story.state, "");
    return;
  }
  const known = JSON.stringify([now.name, now.teaches]);
  if (story.known !== known) {
    story.known = known;
    story.about.replaceChildren(...aboutStory(now));
  }
  write(story.state, storyState(now));
  write(story.problem, now.problem && `${now.problem}. Look at the cluster and its events beside, then play again or end; \`tidegauge scenario run ${now.name}\` plays it without pauses.`);
  now.steps.forEach((step, place) => {
    const drawn = JSON.stringify(step);
    if (story.drawn[place] === drawn) return;
    const made = makeStep(step);
    if (story.steps.children[place]) story.steps.children[place].replaceWith(made);
    else story.steps.append(made);
    story.drawn[place] = drawn;
  });
  keepInView(story);
}

function storyState(now) {
  const place = now.steps.filter((step) => ["held", "failed"].includes(step.state)).length;
  const held = counted(now.expectations, "expectation");
  if (now.phase === "starting") return "Its cluster is being started.";
  if (now.phase === "over") return `The story is over: all ${held} held. Its cluster stays until you end it.`;
  if (now.phase === "failed") return `Failed at step ${Math.min(place, now.steps.length)} of ${now.steps.length}.`;
  if (now.phase === "playing") return `Step ${place + 1} of ${now.steps.length} is being played; it ends when its effect is true.`;
  return place ? `${place} of ${counted(now.steps.length, "step")} played.` : `${counted(now.steps.length, "step")}; press Next step, or the key n.`;
}

function aboutStory(now) {
  const cluster = make("details", {}, make("summary", {}, "Its cluster, and how states are written"), ...[...now.cluster, ...now.legend].map((line) => make("p", {}, line)));
  const rule = now.rule ? [make("p", { class: "rule" }, make("b", {}, "Rule: "), now.rule)] : [];
  return [...now.teaches.split("\n\n").filter(Boolean).map((text) => make("p", {}, text)), ...rule, cluster];
}

function makeStep(step) {
  const words = [step.sentence, ...step.note.split("\n")].filter(Boolean);
  const expects = step.expected.length > 0 && (step.state === "held" ? "Expected, and it holds:" : "Expected:");
  const first = words.shift() || expects || "";
  const head = make("div", { class: "step-head" });
  if (STEP_WORDS[step.state]) head.append(make("b", { class: `mark-${step.state}` }, STEP_WORDS[step.state]), " ");
  head.append(/^[a-z]+\b(?!\d)/.test(first) ? first[0].toUpperCase() + first.slice(1) : first);
  const node = make("li", { class: `step ${step.state}` }, head);
  if (step.state === "next" || step.state === "playing") node.setAttribute("aria-current", "step");
  if (words.length) node.append(make("p", { class: "note" }, words.join(" ")));
  if (expects) {
    if (first !== expects) node.append(make("p", { class: "note" }, expects));
    node.append(make("ul", { class: "expected" }, ...step.expected.map((one) => make("li", {}, one))));
  }
  if (step.details && step.details.length) node.append(make("ul", { class: "details" }, ...step.details.map((one) => make("li", {}, one))));
  if (step.table && step.table.length) node.append(makeRows(step.table));
  const lines = [step.line, ...(step.logs || []).map((one) => `log ${one}`)].filter(Boolean);
  if (lines.length) node.append(make("pre", { tabindex: "0", role: "group", "aria-label": "State after this step" }, lines.join("\n")));
  return node;
}

function makeRows(rows) {
  const line = (tag, cells) => make("tr", {}, ...cells.map((cell) => make(tag, {}, String(cell))));
  const table = make("table", {}, make("thead", {}, line("th", ["attribute", "phase", "old", "new", "note"])), make("tbody", {}, ...rows.map((row) => line("td", row))));
  return make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Table of this step" }, table);
}

// The step in hand stays in view, inside of the lesson: the page itself does not jump.
function keepInView(story) {
  const current = story.steps.querySelector("[aria-current]") || story.steps.lastElementChild;
  const key = current && `${[...story.steps.children].indexOf(current)}${current.className}`;
  if (!current || story.at === key) return;
  story.at = key;
  const frame = byId("lesson");
  const [box, mine] = [frame.getBoundingClientRect(), current.getBoundingClientRect()];
  const bar = frame.querySelector(".story-bar").offsetHeight;
  if (mine.bottom > box.bottom || mine.top < box.top + bar) {
    frame.scrollTop += mine.top - box.top - bar - Math.max(0, (box.height - bar) / 3);
  }
}
