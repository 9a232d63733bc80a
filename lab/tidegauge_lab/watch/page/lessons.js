// What there is to learn beside the cluster: labs and stories, one of them open at a time; the address says which.
"use strict";

const lesson = { key: "", draw: null, titles: new Map() }; // key: "lab-acks-all", "story-loss-cured", or empty for none
const KINDS = { lab: (name) => makeLab(name), story: (name) => makeStory(name) };

async function makeLessons() {
  const found = await source.lessons();
  const group = (label, options) => {
    const node = make("optgroup", { label });
    for (const [key, text] of options) {
      node.append(make("option", { value: key }, text));
      lesson.titles.set(key, text);
    }
    byId("choice").append(node);
  };
  group("Labs: a question, and you", found.labs.map((one) => [`lab-${one.name}`, `${one.number}. ${one.title}`]));
  for (const theme of new Set(found.stories.map((one) => one.theme))) {
    group(`Stories: ${theme}`, found.stories.filter((one) => one.theme === theme).map((one) => [`story-${one.name}`, one.title]));
  }
  byId("choice").addEventListener("change", () => { window.location.hash = byId("choice").value; });
  window.addEventListener("hashchange", openLesson);
  await openLesson();
  drawLesson();
}

// The address's choice; without one the story or the lab that is there.
function lessonWanted() {
  const key = addressed();
  const kind = key.split("-", 1)[0];
  return kind in KINDS && lesson.titles.has(key) ? key : "";
}

async function openLesson() {
  const key = lessonWanted();
  if (window.location.hash.length > 1 && !key) return; // a place on the page
  if (key === lesson.key) return;
  Object.assign(lesson, { key, draw: null });
  byId("choice").value = key;
  show(byId("lesson"), key !== "");
  byId("desk").classList.toggle("open", key !== "");
  byId("lesson-body").replaceChildren();
  write(byId("lesson-title"), lesson.titles.get(key) || "");
  fit();
  if (!key) return;
  const [kind] = key.split("-", 1);
  const made = await KINDS[kind](key.slice(kind.length + 1));
  if (lesson.key !== key) return; // another one was chosen meanwhile
  byId("lesson-body").replaceChildren(made.node);
  byId("lesson").scrollTop = 0;
  lesson.draw = made.draw;
  drawLesson();
}

let offered = ""; // what the server does, and is shown by itself

function drawLesson() {
  if (!lesson.titles.size || !view.teaching) return;
  const { story, lab } = view.teaching;
  if (story && !lesson.titles.has(`story-${story.name}`)) { // a file of the user's own
    const key = `story-${story.name}`;
    lesson.titles.set(key, story.title);
    byId("choice").lastChild.append(make("option", { value: key }, story.title));
  }
  const now = story ? `story-${story.name}` : lab ? `lab-${lab.name}` : "";
  if (now !== offered) {
    offered = now;
    if (now) window.location.hash = now;
  }
  if (lesson.draw) lesson.draw(view.teaching);
}

// HTML that the server made of Markdown, in which HTML was text; parsed without running anything.
function prose(html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  for (const table of parsed.querySelectorAll("table")) wide(table);
  for (const pre of parsed.querySelectorAll("pre")) pre.tabIndex = 0; // it scrolls sideways
  return [...parsed.body.children];
}

function wide(node) {
  const frame = make("div", { class: "wide", tabindex: "0" });
  node.replaceWith(frame);
  frame.append(node);
  return frame;
}

// A sentence of what a button of the lesson did, in the lesson itself.
function makeSaid() {
  const node = make("p", { class: "lesson-said", role: "status" });
  const tell = (text, bad) => {
    node.classList.toggle("bad", bad);
    write(node, text);
  };
  return { node, tell };
}
