// Where the page's facts come from, and where its actions go: here the server of `tidegauge watch`, over HTTP. The page
// `play` has another file of this name, whose cluster runs in a worker of the browser; both offer the same.
"use strict";

const source = (() => {
  const token = document.querySelector('meta[name="tidegauge-token"]')?.content; // a recording has none
  const read = async (path) => {
    const response = await fetch(path);
    return { ok: response.ok, value: await response.json() };
  };
  return {
    silent: "the server of this page does not respond; is `tidegauge watch` still running?",
    vocabulary: async () => (await read("vocabulary")).value,
    lessons: async () => (await read("lessons")).value,
    lab: (name) => read(`labs/${encodeURIComponent(name)}?language=${language}`),
    // Send what a button asks for; `value` is the response, with a sentence in `message` or in `error.message`.
    async send(path, body) {
      const response = await fetch(path, {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Tidegauge-Token": token },
        body: JSON.stringify(body),
      });
      return { ok: response.ok, value: await response.json() };
    },
    // Begin to report: the whole view and the run so far, then what changes and what happens.
    open(reports) {
      const stream = new EventSource("events");
      stream.addEventListener("open", () => reports.linked("live", false));
      stream.addEventListener("error", () => reports.linked("connection lost, trying again", true));
      for (const name of ["view", "change", "history", "events"]) {
        stream.addEventListener(name, (message) => reports[name](JSON.parse(message.data)));
      }
    },
    now: () => Date.now(),
    // A time as the page writes it.
    precise: (time) => `${clock(new Date(time))}.${String(new Date(time).getMilliseconds()).padStart(3, "0")}`,
  };
})();
