// The worker of the page `play`: Python as WebAssembly with the brokers' own code. Texts in, texts out; it fetches the
// files beside it, and nothing else.
import { loadPyodide } from "./runtime/pyodide.mjs";

const RUNTIME = new URL("runtime/", self.location.href).href;
const CODE = "/tidegauge.zip";
const report = (stage, more = {}) => self.postMessage({ stage, ...more });

async function begin() {
  report("python");
  const [python, code] = await Promise.all([
    loadPyodide({ indexURL: RUNTIME, stdLibURL: `${RUNTIME}library.zip` }),
    fetch(new URL("code.zip", self.location.href)).then((response) => {
      if (!response.ok) throw new Error(`code.zip: ${response.status}`);
      return response.arrayBuffer();
    }),
  ]);
  report("code");
  python.FS.writeFile(CODE, new Uint8Array(code));
  python.runPython(`import sys; sys.dont_write_bytecode = True; sys.path.insert(0, "${CODE}")`);
  const session = python.pyimport("tidegauge_proof.hand.desk").Desk();
  report("ready");
  return session;
}

const ready = begin();
ready.catch((problem) => report("failed", { problem: String(problem.message || problem) }));

self.addEventListener("message", async ({ data: { number, text } }) => {
  let said;
  try {
    said = (await ready).request(text);
  } catch (problem) { // a defect: the person is told, and can go back
    said = JSON.stringify({ error: `a defect of this page: ${String(problem.message || problem).trim().split("\n").pop()}` });
  }
  self.postMessage({ number, text: said });
});
