// Buttons: each sends an action to the source, and says what came of it.
"use strict";

// `to` has the path to send to, and the method that shows the result: `to.say(sentence, isBad, response)`.
function button(text, label, request, to = { path: "action", say }) {
  const node = make("button", { type: "button" }, text);
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", () => press(node, request, to));
  return node;
}

// A pressed button keeps its place and focus; it takes no second press before the first has its effect.
async function press(node, request, to) {
  if (node.getAttribute("aria-disabled") === "true" || node.getAttribute("aria-busy") === "true") return;
  node.setAttribute("aria-busy", "true");
  try {
    const { ok, value } = await source.send(to.path, request());
    to.say(ok ? value.message : value.error.message, !ok, value);
  } catch {
    to.say(source.silent, true, {});
  } finally {
    node.removeAttribute("aria-busy");
  }
}

// With its time: the sentence stays until the next button is pressed.
function say(text, bad) {
  byId("said").classList.toggle("bad", bad);
  byId("said").replaceChildren(make("time", {}, clock(new Date())), ` ${text}`);
}

function able(node, yes) {
  mark(node, "aria-disabled", yes ? "false" : "true");
}
