// In JupyterLab's page, before its own scripts: when frames came, and when they were to be seen.
(() => {
  const now = () => performance.timeOrigin + performance.now();
  const FRAME = "ddpviz:frame"; // the mark that the explorer leaves of the frame it shows
  const text = new TextDecoder();
  const empty = () => ({ received: [], drawn: [], painted: [], inputs: [], ticks: [] });
  let kept = empty();
  let ticking = 0;

  /** Of a kernel's message, as jupyter_server's protocol "v1.kernel.websocket" lays it out. */
  const note = (data) => {
    if (!(data instanceof ArrayBuffer)) return;
    const at = now();
    const view = new DataView(data);
    const offset = (number) => Number(view.getBigUint64(8 * (number + 1), true));
    const part = (number, most) => {
      const begin = offset(number);
      return text.decode(new Uint8Array(data, begin, Math.min(offset(number + 1) - begin, most)));
    };
    const header = part(1, 2000);
    if (!header.includes('"comm_msg"')) return;
    const sequence = /"type": ?"frame".{0,200}?"sequence": ?(\d+)/.exec(part(4, 500));
    const date = /"date": ?"([^"]+)"/.exec(header);
    if (sequence === null || date === null) return;
    const [, seconds, fraction] = /^(.*?)(\.\d+)?(?:Z|\+00:00)$/.exec(date[1]);
    const sent = Date.parse(`${seconds}Z`) + 1000 * Number(`0${fraction ?? ""}`);
    kept.received.push([Number(sequence[1]), sent, at, data.byteLength]);
  };

  const Native = window.WebSocket;
  window.WebSocket = class extends Native {
    constructor(...given) {
      super(...given);
      this.addEventListener("message", (event) => note(event.data));
    }
  };

  new PerformanceObserver((list) => {
    for (const mark of list.getEntriesByName(FRAME)) {
      const { sequence, steps } = mark.detail;
      kept.drawn.push([sequence, performance.timeOrigin + mark.startTime, steps]);
    }
  }).observe({ type: "mark" });

  for (const kind of ["wheel", "pointermove", "click"]) {
    window.addEventListener(
      kind,
      (event) => kept.inputs.push([kind, performance.timeOrigin + event.timeStamp]),
      { capture: true, passive: true }
    );
  }

  /** What is painted in one animation frame is on the screen when the next one begins. */
  const painted = (view, name) => {
    const [mark] = performance.getEntriesByName(FRAME);
    const { start, end } = view.model.x_range;
    const row = [mark?.detail.sequence ?? 0, name, now(), 0, start, end];
    requestAnimationFrame(() => {
      row[3] = now();
      kept.painted.push(row);
    });
  };

  const followed = new WeakSet();
  setInterval(async () => {
    for (const loading of Object.values(window.ddpvizBokeh ?? {})) {
      const bokeh = await loading;
      for (const view of bokeh.index.roots) {
        if (view.repainted !== undefined && !followed.has(view)) {
          followed.add(view);
          const name = view.el.closest(".ddpviz-figure")?.getAttribute("aria-label") ?? "";
          view.repainted.connect(() => painted(view, name));
        }
      }
    }
  }, 200);

  const tick = () => {
    kept.ticks.push(now());
    ticking = requestAnimationFrame(tick);
  };

  window.ddpvizMeter = {
    /** Everything since the last call. `clock`: how far the page's clock is off the system's, ms. */
    take() {
      const taken = { ...kept, now: now(), clock: Date.now() - now() };
      kept = empty();
      return taken;
    },
    /** Note when each animation frame begins, or no longer. */
    tick(on) {
      cancelAnimationFrame(ticking);
      if (on) ticking = requestAnimationFrame(tick);
    },
    /** The plot of a view: what its tools are asked for. */
    async plot(name) {
      for (const loading of Object.values(window.ddpvizBokeh ?? {})) {
        for (const view of (await loading).index.roots) {
          const figure = view.el.closest(".ddpviz-figure");
          if (figure?.getAttribute("aria-label") === name) return view;
        }
      }
      return null;
    },
  };
})();
