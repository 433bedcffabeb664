// The chart of memory over time: the history of the page's process; if it keeps none, the ledgers that are read while
// the page is open. The page /history has the same numbers as a table, without this script.
(() => {
  "use strict";

  const section = document.getElementById("time");
  if (!section || typeof uPlot !== "function") return;

  const MEBIBYTE = 1048576;
  const LEDGER_SECONDS = 5; // Between two ledgers.
  const MOST = 720; // Ledgers: one hour.
  const HEIGHT = 300;
  const FEW = 60; // More events, or major GCs, are not drawn; the text has their number in any case.
  const [plot, text, marks, spoken] = ["plot", "time-text", "time-marks", "time-at"]
    .map((id) => document.getElementById(id));
  const legend = section.querySelector(".legend");
  const links = [...section.querySelectorAll("a[data-range]")];
  const labels = new Map(Object.entries(JSON.parse(section.dataset.labels)));
  const marked = JSON.parse(section.dataset.marks); // Ends and releases, of the same form as the history's events.
  const happenings = marked.length ? "started, forked, ended or released" : "started or forked";
  // For each time, in seconds, the end of a bucket: bytes of the RSS and by row (the first is drawn at the bottom), null where unknown; the
  // number of major GCs; and what happened. The rows are stepped if their samples are further apart than the times.
  let shown = { times: [], step: LEDGER_SECONDS, rss: [], rows: new Map(), events: [], gcs: [], stepped: false };
  let chart = null;
  let note = "";
  let at = null; // The index that the reader looks at; null for the latest.

  const mib = (bytes) => bytes === null ? "–" : (bytes / MEBIBYTE).toFixed(1);
  const counted = (number, word) => number + " " + word + (number === 1 ? "" : "s");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rowColour = (id) => colour("--" + id.replaceAll("_", "-")) || colour("--unattributed");
  const utc = (options) => {
    const format = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...options });
    return (seconds) => format.format(seconds * 1000);
  };
  const clock = utc({ timeStyle: "medium" });
  const minute = utc({ timeStyle: "short" });
  const date = utc({ day: "numeric", month: "short" });
  const full = utc({ weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
  const time = (seconds) => (shown.step < 60 ? clock : full)(seconds) + " UTC";
  const sum = (index) => [...shown.rows.values()].map((values) => values[index])
    .reduce((total, bytes) => bytes === null ? total : (total || 0) + bytes, null);

  // A sample holds until the next one: a busy process samples its rows late. Where the process itself was not sampled,
  // nothing holds.
  const held = (values, rss) => {
    let last = null;
    return values.map((value, index) => {
      if (value !== null) last = value;
      if (rss[index] === null) last = null;
      return last;
    });
  };

  const ofHistory = (history, step) => {
    const rings = new Map(history.curves.map((curve) =>
      [curve.id, { ...curve.rings.find((ring) => ring.step_seconds === step), spacing: curve.spacing_seconds }]));
    const rss = rings.get("rss").last;
    const start = Date.parse(rings.get("rss").at) / 1000;
    const rows = [...labels.keys()].filter((id) => rings.get(id)?.last.some((bytes) => bytes > 0))
      .map((id) => [id, held(rings.get(id).last, rss)]);
    const counts = rings.get("major_gcs")?.last || [];
    let before = counts.find((count) => count !== null);
    const gcs = counts.map((count) => {
      const more = count === null ? 0 : count - before;
      if (count !== null) before = count;
      return more;
    });
    const events = [...history.events, ...marked]
      .map((event) => ({ index: Math.floor((Date.parse(event.at) / 1000 - start) / step), kind: event.kind }))
      .filter(({ index }) => index >= 0 && index < rss.length);
    const ends = rss.map((_bytes, index) => Math.min(start + (index + 1) * step, Date.parse(history.at) / 1000));
    return { times: ends, step, rss, rows: new Map(rows), events, gcs,
             stepped: rows.some(([id]) => rings.get(id).spacing > step) };
  };

  // Adds a ledger, and drops the oldest.
  const withLedger = (ledger) => {
    const before = Array(shown.times.length).fill(0);
    const bytes = new Map(ledger.rows.map((row) => [row.id, row.bytes]));
    const extended = (values, value) => [...values, value].slice(-MOST);
    return { ...shown, times: extended(shown.times, Date.parse(ledger.at) / 1000),
             rss: extended(shown.rss, ledger.rss_bytes),
             rows: new Map([...labels.keys()].filter((id) => bytes.get(id) > 0 || shown.rows.has(id))
               .map((id) => [id, extended(shown.rows.get(id) || before, bytes.get(id) || 0)])) };
  };

  // The rows, each stacked on those below it, and the RSS, in MiB.
  const drawn = () => {
    const sums = shown.times.map(() => null);
    const stacked = [...shown.rows.values()].map((values) => {
      values.forEach((bytes, index) => { if (bytes !== null) sums[index] = (sums[index] || 0) + bytes / MEBIBYTE; });
      return values.map((bytes, index) => bytes === null ? null : sums[index]);
    });
    return [shown.times, ...stacked, shown.rss.map((bytes) => bytes === null ? null : bytes / MEBIBYTE)];
  };

  // A line for each event; a triangle at the bottom for each bucket with a major GC.
  const drawMarks = ({ ctx, bbox, valToPos }) => {
    const bottom = bbox.top + bbox.height;
    const unit = devicePixelRatio;
    const path = (indices, points) => {
      ctx.beginPath();
      if (indices.length <= FEW) indices.forEach((index) => {
        const x = Math.round(valToPos(shown.times[index], "x", true));
        points.forEach(([right, up], at) => ctx[at ? "lineTo" : "moveTo"](x + right * unit, bottom - up));
      });
    };
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("--ink");
    ctx.setLineDash([3 * unit, 3 * unit]);
    ctx.lineWidth = unit;
    path(shown.events.map(({ index }) => index), [[0, 0], [0, bbox.height]]);
    ctx.stroke();
    path([...shown.gcs.keys()].filter((index) => shown.gcs[index] > 0), [[-4, 0], [4, 0], [0, 7 * unit]]);
    ctx.fill();
    ctx.restore();
  };

  const options = () => {
    const ids = [...shown.rows.keys()];
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 },
                   ticks: { stroke: colour("--line"), width: 1 },
                   font: "14px " + getComputedStyle(document.body).fontFamily };
    const points = { show: () => shown.times.length < 2 };
    const row = (id) => ({ stroke: rowColour(id), width: 1, points, fill: rowColour(id) + "66",
                           paths: shown.stepped ? uPlot.paths.stepped({ align: 1 }) : null });
    return {
      width: plot.clientWidth, height: HEIGHT, legend: { show: false }, padding: [null, 28, null, null],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { range: () => [shown.times[0], Math.max(shown.times.at(-1), shown.times[0] + 60)] },
                y: { range: (_chart, _least, most) => [0, Math.max(most * 1.1, 1)] } },
      axes: [{ ...axis, space: 90, values: (_chart, splits, _axis, _space, seconds) =>
                 splits.map(seconds >= 86400 ? date : seconds >= 60 ? minute : clock) },
             { ...axis, size: 78, values: (_chart, splits) => splits.map((split) => split + " MiB") }],
      series: [{}, ...ids.map(row), { stroke: colour("--ink"), width: 2, points }],
      bands: ids.slice(1).map((_id, index) => ({ series: [index + 2, index + 1] })),
      hooks: { draw: [drawMarks], setCursor: [({ cursor }) => look(cursor.idx ?? null)] },
    };
  };

  // An entry of the legend, with the row's number, which is the same on all pages.
  const entry = ([id, values], index) => {
    const chip = document.createElement("span");
    chip.className = "chip row-" + id;
    chip.textContent = [...labels.keys()].indexOf(id) + 1 || "–";
    const item = document.createElement("li");
    item.append(chip, labels.get(id) + " " + mib(values[index]));
    return item;
  };

  const happened = (index) => [
    ...shown.events.filter((event) => event.index === index).map(({ kind }) => kind),
    ...(shown.gcs[index] ? [counted(shown.gcs[index], "major GC")] : [])].join(", ");

  // What the reader looks at, in words; without that, the latest.
  const describe = () => {
    const latest = shown.rss.findLastIndex((bytes) => bytes !== null);
    const index = at ?? latest;
    const split = [...shown.rows.values()].some((values) => values[index] !== null);
    const change = shown.rss[latest] - shown.rss.find((bytes) => bytes !== null);
    const words = happened(index);
    text.textContent = at === null
      ? "RSS " + mib(shown.rss[latest]) + " MiB at " + time(shown.times[latest]) + ", " + (change < 0 ? "−" : "+") + mib(Math.abs(change)) + " MiB since " +
        time(shown.times[0]) + (split ? ". From bottom to top:" : ". Its owners are sampled once a minute; the first sample is still to come.")
      : time(shown.times[index]) + ": RSS " + mib(shown.rss[index]) + " MiB, the rows " + mib(sum(index)) + " MiB" +
        (words && "; " + words) + ".";
    legend.replaceChildren(...(split ? [...shown.rows] : []).map((row) => entry(row, index)));
    spoken.textContent = at === null ? ""
      : text.textContent + [...shown.rows].map(([id, row]) => " " + labels.get(id) + " " + mib(row[index])).join(",");
    plot.ariaValueMax = shown.times.length - 1;
    plot.ariaValueNow = index;
    plot.ariaValueText = time(shown.times[index]);
  };

  const look = (index) => {
    if (index === at) return;
    at = index;
    describe();
  };

  const point = (index) => {
    const left = index === null ? -10 : chart.valToPos(shown.times[index], "x");
    chart.setCursor({ left, top: left < 0 ? -10 : 1 });
    look(index);
  };

  // Draws what is new, and keeps the time that the reader looks at.
  const show = (next) => {
    const kept = at === null ? -1 : next.times.indexOf(shown.times[at]);
    shown = next;
    at = null;
    chart?.destroy();
    chart = new uPlot(options(), drawn(), plot);
    describe();
    if (kept >= 0) point(kept);
    const gcs = shown.gcs.reduce((total, count) => total + count, 0);
    marks.textContent = ["━ RSS", shown.events.length && "┆ " + happenings + ": " + shown.events.length,
                         gcs && "▲ major GCs: " + gcs].filter(Boolean).join(", ") + "." + note;
  };

  // Another process of the server can answer if the server's processes do not know each other.
  let others = 0;
  const own = (reading) => {
    if (reading.pid === Number(section.dataset.pid)) return true;
    others += 1;
    text.textContent = "Process " + reading.pid + " answered instead of " + section.dataset.pid + ", " +
      counted(others, "time") + ": the chart leaves it out." + (chart ? "" : " Nothing is drawn yet.");
    return false;
  };

  const get = async (path) => (await memscope.get(path, "application/json")).json();

  const ledgers = async () => {
    const ledger = await get(section.dataset.ledger);
    const seen = shown.times.at(-1) === Date.parse(ledger.at) / 1000;
    if (own(ledger) && ledger.rss_bytes !== null && !seen) show(withLedger(ledger));
    return LEDGER_SECONDS;
  };

  // Returns the seconds until there is something new.
  const history = async () => {
    const link = links.find((one) => one.ariaCurrent);
    const url = new URL(section.dataset.history, location.origin);
    url.searchParams.set("range", link.dataset.range);
    const found = await get(url.pathname + url.search);
    if (!own(found) || !link.ariaCurrent) return LEDGER_SECONDS;
    if (found.curves.some((curve) => curve.id === "rss")) {
      show(ofHistory(found, Number(link.dataset.step)));
      return Math.min(link.dataset.step, 60);
    }
    links[0].closest("nav").remove();
    note = " There is no history from before this page was opened: " + found.reasons.running + ".";
    read = ledgers;
    return read();
  };

  let read = history;
  let timer = null;
  let turn = 0; // Only the last request leads to another one.
  const follow = async () => {
    clearTimeout(timer);
    const ours = turn += 1;
    if (document.hidden) return;
    try {
      const seconds = await read();
      if (ours === turn) timer = setTimeout(follow, 1000 * seconds);
    } catch (error) {
      text.textContent = "Stopped at " + clock(Date.now() / 1000) + " UTC: " + error.message + ".";
    }
  };

  // The range that was chosen stays in the page's address.
  links.forEach((link) => link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    links.forEach((one) => { one.ariaCurrent = one === link ? "true" : null; });
    const url = new URL(location);
    url.searchParams.set("range", link.dataset.range);
    window.history.replaceState(null, "", url);
    follow();
  }));

  const STRIDES = { ArrowLeft: -1, ArrowRight: 1, PageDown: -0.1, PageUp: 0.1, Home: -Infinity, End: Infinity };
  plot.addEventListener("keydown", (event) => {
    const stride = STRIDES[event.key];
    if (!chart || stride === undefined) return;
    event.preventDefault();
    const last = shown.times.length - 1;
    const steps = Math.abs(stride) < 1 ? Math.round(stride * last) : stride;
    point(Math.min(Math.max((at ?? last) + steps, 0), last));
  });
  plot.addEventListener("blur", () => { if (chart) point(null); });
  plot.tabIndex = 0;
  plot.role = "slider";
  plot.ariaValueNow = plot.ariaValueMin = plot.ariaValueMax = 0;
  plot.setAttribute("aria-labelledby", "time-title");

  new ResizeObserver(() => { if (chart) chart.setSize({ width: plot.clientWidth, height: HEIGHT }); }).observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (chart) show(shown); });
  document.addEventListener("visibilitychange", follow);
  follow();
})();
