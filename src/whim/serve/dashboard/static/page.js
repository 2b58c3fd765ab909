// The dashboard's script: theme, refreshing, the stream of changes, charts. No inline code anywhere.
"use strict";

(() => {
  const root = document.documentElement;
  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* it may not */ } };

  // -- theme: before anything is drawn ------------------------------------------------------

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = kept("whim-theme");
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");

  function flip() {
    root.dataset.theme = shown() === "dark" ? "light" : "dark";
    keep("whim-theme", root.dataset.theme);
    redraw();
  }
  dark.addEventListener("change", () => redraw());

  // -- refreshing: every two seconds while the tab is visible ---------------------------------

  const EVERY = 2000;
  let live = true;
  const problems = new Map();

  function tick() {
    if (!live || document.hidden || !window.htmx) return;
    htmx.trigger(document.body, "whim:tick");
    for (const chart of charts.values()) if (chart.kind === "rates") load(chart);
    times();
  }

  function pause(button) {
    live = !live;
    button.setAttribute("aria-pressed", String(live));
    button.querySelector(".word").textContent = live ? "Live" : "Paused";
    if (live) tick();
  }

  function problem(name, text) {
    if (text) problems.set(name, text); else problems.delete(name);
    const box = document.getElementById("lost");
    const said = [...new Set(problems.values())].join(" ");
    if (box.textContent !== said) box.textContent = said;
    box.hidden = !said;
    const button = document.getElementById("live");
    if (button) button.classList.toggle("off", Boolean(said));
  }

  function times() {
    const now = Date.now();
    for (const one of document.querySelectorAll("time")) {
      const past = Math.round((now - Date.parse(one.dateTime)) / 1000);
      let text;
      if (past < 0) text = new Date(one.dateTime).toLocaleString();
      else if (past < 10) text = "just now";
      else if (past < 90) text = past + " s ago";
      else if (past < 5400) text = Math.round(past / 60) + " min ago";
      else if (past < 129600) text = Math.round(past / 3600) + " h ago";
      else text = new Date(one.dateTime).toLocaleString();
      if (one.textContent !== text) one.textContent = text;
    }
  }

  // -- the stream of changes ----------------------------------------------------------------

  let latest = 0;
  let wait = 1000;

  function listen(space) {
    const source = new EventSource(space.dataset.stream + "?since=" + latest);
    source.addEventListener("open", () => { wait = 1000; problem("stream", ""); });
    source.addEventListener("change", (event) => {
      const change = JSON.parse(event.data);
      if (!(change.seq > latest)) return;
      latest = change.seq;
      const arm = change.arm === null ? "all arms" : change.arm;
      document.getElementById("said").textContent = "Change of interest detected: " + arm;
      if (live) {
        htmx.trigger(document.body, "whim:change");
        for (const chart of charts.values()) if (chart.kind === "rates") load(chart);
      }
    });
    source.addEventListener("error", () => {
      problem("stream", "The stream of changes was lost: reconnecting…");
      if (source.readyState === EventSource.CLOSED) {  // refused: the browser gives up, we do not
        wait = Math.min(wait * 2, 30000);
        setTimeout(() => listen(space), wait);
      }
    });
    addEventListener("pagehide", () => source.close());
  }

  function mark() {  // what came after the page was opened is lit for a moment
    const first = Number(document.getElementById("space")?.dataset.latest || 0);
    for (const one of document.querySelectorAll(".event")) {
      const seq = Number(one.dataset.seq);
      if (seq > first && seq > seen) one.classList.add("new");
    }
    const top = document.querySelector(".event");
    if (top) { seen = Math.max(seen, Number(top.dataset.seq)); latest = Math.max(latest, seen); }
  }
  let seen = 0;

  // -- charts -------------------------------------------------------------------------------

  const charts = new Map();
  const TIMES = [  // step; format of a tick, then at a new year, month, day, hour, minute, second
    [31536000, "{YYYY}", null, null, null, null, null, null, 1],
    [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
    [1, ":{ss}", "\n{HH}:{mm}", null, "\n{HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
    [0.001, ":{ss}.{fff}", "\n{HH}:{mm}", null, "\n{HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
  ];
  const probe = () => {
    const one = document.createElement("i");
    document.body.append(one);
    const colour = (name, alpha) => {
      one.style.color = "var(--" + name + ")";
      const found = getComputedStyle(one).color;
      const parts = found.match(/[\d.]+/g);
      return alpha === undefined ? found : "rgba(" + parts.slice(0, 3).join(",") + "," + alpha + ")";
    };
    return [colour, () => one.remove()];
  };

  async function load(chart) {
    if (chart.loading) return;
    chart.loading = true;
    try {
      const answer = await fetch(chart.box.dataset.src, { headers: { accept: "application/json" } });
      if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
      chart.data = await answer.json();
      problem("chart", "");
      draw(chart);
    } catch {
      if (!document.hidden) problem("chart", "The service does not answer: trying again…");
    } finally {
      chart.loading = false;
    }
  }

  function columns(chart) {
    const d = chart.data;
    if (chart.kind === "rates") {
      const policy = [d.t, d.rate, d.low, d.high];
      return d.holdback ? [...policy, d.held, d.held_low, d.held_high] : policy;
    }
    if (chart.kind === "lines") return [d.t, ...d.lines.map((line) => line.values)];
    const at = new Map();
    for (const [i, rows] of [d.logged, d.whatif].entries())
      for (const [t, ...rest] of rows) {
        if (!at.has(t)) at.set(t, [null, null, null, null, null, null]);
        at.get(t).splice(3 * i, 3, ...rest);
      }
    const sorted = [...at.entries()].sort((a, b) => a[0] - b[0]);
    return [sorted.map((row) => row[0]), ...Array.from({ length: 6 }, (_, k) => sorted.map((row) => row[1][k]))];
  }

  function draw(chart) {
    const data = columns(chart);
    if (!document.contains(chart.box)) return;
    if (!data[0].length) {
      message(chart, "Nothing to draw yet: no decision is closed.");
      return;
    }
    if (chart.kind === "rates")
      for (const one of document.querySelectorAll(".when-held")) one.hidden = !chart.data.holdback;
    if (chart.plot && chart.plot.series.length === data.length) { chart.plot.setData(data); return; }
    if (chart.plot) chart.plot.destroy();
    chart.box.replaceChildren();
    const made = chart.kind === "lines" ? manyLines(chart) : options(chart, data.length > 4);
    chart.plot = new uPlot(made, data, chart.box);
  }

  function message(chart, text) {
    if (chart.plot) chart.plot.destroy();
    chart.plot = null;
    const line = document.createElement("p");
    line.className = "waiting";
    line.textContent = text;
    chart.box.replaceChildren(line);
  }

  const axisOf = (colour) => ({ stroke: colour("tick"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 }, font: "13px system-ui, sans-serif" });

  function manyLines(chart) {  // coefficients: told apart by colour and by dashes
    const [colour, done] = probe();
    const axis = axisOf(colour);
    const value = (_, v) => (v === null || v === undefined ? "–" : v.toFixed(3));
    const made = {
      width: chart.box.clientWidth,
      height: chart.box.clientWidth < 500 ? 240 : 300,
      series: [{ label: "time", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" }, ...chart.data.lines.map((line, i) => ({
        label: line.name, stroke: colour("line-" + (i % 8 + 1)), width: 2, value, dash: i % 2 ? [7, 4] : [], points: { show: false },
      }))],
      axes: [{ ...axis, space: 70, values: TIMES }, { ...axis, size: 56 }],
      legend: {
        live: chart.box.clientWidth >= 500, show: chart.box.clientWidth >= 500,
        markers: { dash: (_, i) => (i % 2 ? "solid" : "dashed") },
      },
    };
    done();
    return made;
  }

  function options(chart, two) {
    const [colour, done] = probe();
    const names = chart.kind === "rates" ? [chart.box.dataset.name, "holdback"] : ["actual", "what-if"];
    const inks = chart.kind === "rates" ? ["policy", "holdback"] : ["policy", "other"];
    const number = (v) => (v === null || v === undefined ? "–" : v.toFixed(3));
    const text = (plot, v, s, i) => {
      if (v === null || v === undefined || i === null || i === undefined) return "–";
      return number(v) + " [" + number(plot.data[s + 1][i]) + ", " + number(plot.data[s + 2][i]) + "]";
    };
    const few = (plot) => plot.data[0].length < 3;  // too few for a line to be seen
    const end = (i) => ({ class: "end", stroke: colour(inks[i], 0), width: 0, spanGaps: true, points: { show: false } });
    const line = (i) => [
      { label: names[i], stroke: colour(inks[i]), width: 2, value: text, spanGaps: true, points: { show: few, size: 7 } },
      end(i), end(i),
    ];
    const axis = axisOf(colour);
    const made = {
      width: chart.box.clientWidth,
      height: chart.box.clientWidth < 500 ? 240 : 300,
      series: [{ label: "time", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" }, ...line(0), ...(two ? line(1) : [])],
      bands: [
        { series: [3, 2], fill: colour(inks[0], 0.16) },
        ...(two ? [{ series: [6, 5], fill: colour(inks[1], 0.16) }] : []),
      ],
      axes: [{ ...axis, space: 70, values: TIMES }, { ...axis, size: 56 }],
      scales: { x: { range: (plot, low, high) => (plot.data[0].length > 1 ? [low, high] : [low - 30, low + 30]) }, y: { range: (_, low, high) => {
        if (low === null) return [0, 1];
        const size = Math.max(Math.abs(low), Math.abs(high));
        const room = Math.max((high - low) * 0.06, size * 0.02) || 0.05;
        return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
      } } },
      legend: { live: chart.box.clientWidth >= 500, show: chart.box.clientWidth >= 500 },
      hooks: { draw: [(plot) => marks(plot, chart)] },
    };
    done();
    return made;
  }

  function marks(plot, chart) {
    if (!chart.data.changes) return;
    const { ctx, bbox } = plot;
    const [colour, done] = probe();
    ctx.save();
    ctx.strokeStyle = colour("mark");
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const change of chart.data.changes) {
      const x = Math.round(plot.valToPos(change.t, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
    done();
  }

  function find() {
    for (const [box, chart] of charts)
      if (!document.contains(box)) { if (chart.plot) chart.plot.destroy(); charts.delete(box); }
    for (const box of document.querySelectorAll("[data-chart]"))
      if (!charts.has(box)) {
        const chart = { box, kind: box.dataset.chart, data: null, plot: null, loading: false };
        charts.set(box, chart);
        load(chart);
      }
  }

  function redraw() {
    for (const chart of charts.values())
      if (chart.data) { if (chart.plot) chart.plot.destroy(); chart.plot = null; draw(chart); }
  }

  // -- from and to, in the reader's own time ------------------------------------------------

  function zones() {
    const local = (at) => new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
    for (const form of document.querySelectorAll("form.span")) {
      for (const zone of form.querySelectorAll(".zone")) zone.textContent = "";
      for (const one of form.querySelectorAll("[data-at]")) one.value = local(new Date(one.dataset.at));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const asked = new URLSearchParams();
        for (const one of form.querySelectorAll("input"))
          if (one.value) asked.set(one.name, one.type === "hidden" ? one.value : new Date(one.value).toISOString());
        location.href = form.getAttribute("action") + "?" + asked;
      });
    }
  }

  // -- begin --------------------------------------------------------------------------------

  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", flip);
    const button = document.getElementById("live");
    if (button) button.addEventListener("click", () => pause(button));
    const space = document.getElementById("space");
    zones();
    times();
    find();
    mark();
    if (space) {
      latest = Math.max(latest, Number(space.dataset.latest));
      listen(space);
    }
    setInterval(tick, EVERY);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
    let later;
    addEventListener("resize", () => { clearTimeout(later); later = setTimeout(redraw, 150); });

    const lefts = new Map();
    document.body.addEventListener("htmx:beforeSwap", () => {
      for (const one of document.querySelectorAll(".scroll[id]")) lefts.set(one.id, one.scrollLeft);
    });
    document.body.addEventListener("htmx:afterSettle", () => {
      for (const [id, left] of lefts) { const one = document.getElementById(id); if (one) one.scrollLeft = left; }
      times();
      find();
      mark();
    });
    document.body.addEventListener("htmx:afterOnLoad", () => problem("parts", ""));
    document.body.addEventListener("htmx:sendError", () => {
      if (!document.hidden) problem("parts", "The service does not answer: trying again…");
    });
    document.body.addEventListener("htmx:responseError", (event) => {
      const status = event.detail.xhr.status;
      if (status === 401) location.href = "/login?next=" + encodeURIComponent(location.pathname);
      else if (status === 404) problem("parts", "This space is gone.");
      else problem("parts", "The service has a problem (" + status + "): trying again…");
    });
  });
})();
