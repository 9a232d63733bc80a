// Buttons: each sends an action to the server, and says what came of it.
"use strict";

const token = document.querySelector('meta[name="tidegauge-token"]')?.content; // a recording has none

// `to` is where it sends, and who says what came of it: `to.say(sentence, isBad, response)`.
function button(text, label, request, to = { path: "action", say }) {
  const node = make("button", { type: "button" }, text);
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", () => press(node, request, to));
  return node;
}

// A pressed button stays where it is and keeps the focus; it takes no second press before the first has its effect.
async function press(node, request, to) {
  if (node.getAttribute("aria-disabled") === "true" || node.getAttribute("aria-busy") === "true") return;
  node.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(to.path, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Tidegauge-Token": token },
      body: JSON.stringify(request()),
    });
    const told = await answer.json();
    to.say(answer.ok ? told.message : told.error.message, !answer.ok, told);
  } catch {
    to.say("the server of this page does not respond; is `tidegauge watch` still running?", true, {});
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
