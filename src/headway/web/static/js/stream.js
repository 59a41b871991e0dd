// The events of a run. The browser reconnects by itself and says where it was (Last-Event-ID);
// where the server refused, this tries again, at first soon and then each ten seconds.

const NAMES = ["snapshot", "timeline", "dead", "end"];
const QUIET_MS = 4000;

export class Stream {
  /** `on`: functions by event name, and `link(state, text)` with state "live", "lost" or "ended". */
  constructor(url, on) {
    this.url = url;
    this.on = on;
    this.tries = 0;
    this.timer = 0;
    this.heard = Date.now();
    this.watch = setInterval(() => this.#listen(), 1000);
    this.#open();
  }

  #open() {
    this.source = new EventSource(this.url);
    this.source.onopen = () => { this.tries = 0; this.heard = Date.now(); this.on.link("live", "live"); };
    this.source.onerror = () => {
      this.on.link("lost", "Connection lost, trying again");
      if (this.source.readyState !== EventSource.CLOSED || this.ended) return;
      this.tries += 1;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.#open(), Math.min(10_000, 500 * 2 ** this.tries));
    };
    for (const name of NAMES) this.source.addEventListener(name, (event) => {
      this.heard = Date.now();
      this.on[name]?.(JSON.parse(event.data));
      if (name === "end") this.close("ended");
    });
  }

  #listen() {
    const silent = Date.now() - this.heard;
    if (this.source.readyState !== EventSource.OPEN) return;
    if (silent > QUIET_MS) this.on.link("lost", `No news for ${Math.round(silent / 1000)} s`);
    else this.on.link("live", "live");
  }

  close(state) {
    if (this.ended) return;
    this.ended = true;
    clearInterval(this.watch);
    clearTimeout(this.timer);
    this.source.close();
    if (state) this.on.link(state, "ended");
  }
}
