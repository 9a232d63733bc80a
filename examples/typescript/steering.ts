// A client of Tidegauge's control interface in one file: copy it beside your tests. It needs fetch and nothing else.

export type Json = Record<string, any>;

/** The server's error: its HTTP status, its name, its sentence, and what is true instead. */
export class Refused extends Error {
  status: number;
  code: string;
  actual: unknown;

  constructor(status: number, body: Json) {
    super(`${body.error.name}: ${body.error.message}`);
    this.status = status;
    this.code = body.error.name;
    this.actual = body.actual;
  }
}

/** The control interface of one cluster. Each method returns when its effect is there. */
export class Control {
  url: string;
  token: string;

  constructor(url?: string, token?: string) {
    this.url = (url ?? process.env.TIDEGAUGE_CONTROL ?? "http://127.0.0.1:19079").replace(/\/$/, "");
    this.token = token ?? process.env.TIDEGAUGE_CONTROL_TOKEN ?? "";
  }

  async ask(method: string, path: string, body?: Json): Promise<Json> {
    const headers: Record<string, string> = { "Content-Type": "application/json" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    const content = body === undefined ? undefined : JSON.stringify(body);
    const response = await fetch(this.url + path, { method, headers, body: content });
    const found = (await response.json()) as Json;
    if (!response.ok) throw new Refused(response.status, found);
    return found;
  }

  /** Whether the cluster is ready, its addresses, controller and brokers. */
  cluster = () => this.ask("GET", "/v1/cluster");

  /** The addresses for Kafka clients. */
  brokers = async (): Promise<string[]> => (await this.cluster()).kafka_bootstrap_servers.split(",");

  /** Leader, epoch, ISR and every replica. */
  partition = (topic: string, partition = 0) => this.ask("GET", `/v1/topics/${encodeURIComponent(topic)}/${partition}`);

  group = (id: string) => this.ask("GET", `/v1/groups/${encodeURIComponent(id)}`);

  /** kill, stop, pause, resume, start: 1, "leader-of:orders-0", "controller", "coordinator-of:group:app", ... */
  broker = (target: number | string, verb: string, fields?: Json) =>
    this.ask("POST", `/v1/brokers/${encodeURIComponent(target)}/${verb}`, fields);

  /** One of isr, leader, high_watermark, in_sync, group, ready; and timeout_ms. */
  wait = (condition: Json) => this.ask("POST", "/v1/wait", condition);

  /** Steps of a scenario file. */
  steps = (...steps: Json[]) => this.ask("POST", "/v1/steps", { steps });

  /** Rules for requests; the fault's id. */
  fault = async (...rules: Json[]): Promise<number> => (await this.ask("POST", "/v1/faults", { rules })).id;

  waitFault = (id: number, condition: Json) => this.ask("POST", `/v1/faults/${id}/wait`, condition);

  endFault = (id: number) => this.ask("DELETE", `/v1/faults/${id}`);

  /** All brokers up, nothing in force, and without the topics and groups of the test. */
  reset = () => this.ask("POST", "/v1/reset");
}
