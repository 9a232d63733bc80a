// Where the page's facts come from, and where its actions go: here a cluster that runs in a worker of this browser. The
// page of `tidegauge watch` has another file of this name; both offer the same.
"use strict";

const source = (() => {
  const worker = new Worker("worker.js", { type: "module" });
  const waiting = new Map(); // number of a request -> what takes its response
  const PLAIN = { kill: "kill", stop: "stop", pause: "pause", resume: "resume", start: "start", hold_fetch: "hold_fetch", release_fetch: "release_fetch", step_fetch: "step_fetch", sync: "flush", expire_session: "end_session" };
  let last = 0;
  let reports = null;
  let listener = () => {};
  let time = 0;
  let begin;
  const opened = new Promise((resolve) => { begin = resolve; });

  worker.addEventListener("message", ({ data }) => {
    if (data.stage) {
      listener(data);
      return;
    }
    waiting.get(data.number)(JSON.parse(data.text));
    waiting.delete(data.number);
  });
  worker.addEventListener("error", () => listener({ stage: "failed", problem: "the browser can't run the worker" }));

  // Ask the worker; errors come as `error`, a sentence.
  function ask(wanted) {
    last += 1;
    const number = last;
    return new Promise((resolve) => {
      waiting.set(number, resolve);
      worker.postMessage({ number, text: JSON.stringify(wanted) });
    });
  }

  // Show a response: the whole run after it was replayed, or what an action has added.
  function take(response) {
    if (response.error) return response;
    time = response.time;
    if (response.steps) {
      reports.history({ base: response.base, steps: response.steps });
      reports.view(response.view);
    } else {
      if (past.shown) goLive();
      reports.change(response.view);
      reports.events(response.added);
    }
    listener({ stage: "state", state: response });
    return response;
  }

  // What a button of the page means here: one action, or several.
  function actionsOf({ action, broker, ...rest }) {
    if (action in PLAIN) return [{ do: PLAIN[action], broker }];
    if (action === "heal") return [{ do: "heal_links" }];
    if (action !== "isolate") return [];
    const others = Object.keys(view.brokers).map(Number).filter((id) => id !== broker);
    const from = rest.from === "brokers" ? others : Array.isArray(rest.from) ? rest.from : [];
    const out = rest.direction === "in" ? [] : from.map((other) => ({ do: "cut_link", broker, other }));
    return rest.direction === "out" ? out : [...out, ...from.map((other) => ({ do: "cut_link", broker: other, other: broker }))];
  }

  return {
    silent: "the worker of this page does not respond: load the page again",
    vocabulary: async () => (await fetch("vocabulary.json")).json(),
    lessons: async () => ({ labs: [], stories: [] }),
    lab: async () => ({ ok: false, value: { error: { message: "there is no such lab here" } } }),
    async send(path, body) {
      const wanted = path === "action" ? actionsOf(body) : [];
      if (!wanted.length) return { ok: false, value: { error: { message: "that has no meaning in this browser: there are brokers, and no ZooKeeper or clients to part them from" } } };
      const said = [];
      for (const action of wanted) {
        const response = take(await ask({ op: "do", action }));
        if (response.error) return { ok: false, value: { error: { message: response.error } } };
        said.push(response.said);
      }
      return { ok: true, value: { message: said.join(" ") } };
    },
    open(to) {
      reports = to;
      reports.linked("runs in this browser", false);
      begin();
    },
    now: () => time,
    precise: (ms) => `${(ms / 1000).toFixed(3)} s`,
    // Of this source alone.
    opened, // once the views of the page take reports
    ask,
    take,
    listen(to) {
      listener = to;
    },
  };
})();
