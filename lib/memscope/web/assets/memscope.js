// What the pages do beyond links and forms: the overview fetches its findings, then the verdicts of the other workers,
// one after the other; and it draws the ledger's rows over time while it is open. Everything else, and the whole
// overview by another link, works without this script.
(() => {
  "use strict";

  // Resolves the path without credentials: the page's own address can contain them (http://user:password@host), and
  // fetch refuses such URLs.
  const get = async (path, type) => {
    const response = await fetch(new URL(path, location.origin), { headers: { accept: type } });
    if (!response.ok) throw new Error("HTTP " + response.status);
    return response;
  };
  const getPage = async (path) =>
    new DOMParser().parseFromString(await (await get(path, "text/html")).text(), "text/html");

  // Fills in the parts that take longer, from the same process as the page.
  const complete = async (main) => {
    const pending = document.getElementById("pending");
    try {
      const found = await getPage(main.dataset.rest);
      const [here, there] = [document, found].map((one) => one.getElementById("hero").dataset.pid);
      if (here !== there) throw new Error("process " + there + " answered instead of " + here + "; reload the page");
      ["processes", "hero", "ledger", "side", "foot"].forEach((id) => {
        const part = found.getElementById(id);
        if (part) document.getElementById(id)?.replaceWith(document.adoptNode(part));
      });
      if (location.hash) document.querySelector(location.hash)?.scrollIntoView();
    } catch (error) {
      pending.textContent = "No diagnosis: " + error.message + ".";
      document.getElementById("side").removeAttribute("aria-busy");
    }
  };

  // A worker's verdict is in that worker's row, on that worker's page.
  const judge = async () => {
    for (const link of document.querySelectorAll("a[data-verdict]")) {
      const row = link.closest("tr");
      try {
        const found = await getPage(link.getAttribute("href"));
        const cell = found.querySelector('#processes tr[data-pid="' + row.dataset.pid + '"] .of-verdict');
        if (!cell || cell.querySelector("[data-verdict]")) continue;
        cell.querySelectorAll("a").forEach((badge) => badge.setAttribute("href", link.getAttribute("href") + "#findings"));
        link.closest("td").replaceWith(document.adoptNode(cell));
      } catch (error) {
        link.textContent = "unknown: " + error.message;
      }
    }
  };

  // Browsers give the clipboard to pages from https and from this machine only.
  const copyable = () => {
    if (!navigator.clipboard) return;
    document.querySelectorAll("#findings pre").forEach((box) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(box.textContent);
        button.textContent = "Copied";
      });
      box.after(button);
    });
  };

  const main = document.getElementById("main");
  (main.dataset.rest ? complete(main) : Promise.resolve()).then(() => {
    copyable();
    return judge();
  });

  const section = document.getElementById("time");
  if (!section || typeof uPlot !== "function") return;

  const MEBIBYTE = 1048576;
  const EVERY_MS = 5000;
  const MOST = 720; // Readings: one hour.
  const plot = section.querySelector(".plot");
  const text = section.querySelector("figcaption p");
  const legend = section.querySelector(".legend");
  const times = [];
  const readings = []; // For each time: bytes by row.
  const labels = new Map(); // By row; the first is drawn at the bottom.
  let chart = null;

  const mib = (bytes) => (bytes / MEBIBYTE).toFixed(1);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rowColour = (id) => colour("--" + id.replaceAll("_", "-")) || colour("--unattributed");

  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

  // Stacks each row on the rows below it.
  const stacked = () => {
    const sums = new Array(times.length).fill(0);
    return [...labels.keys()].map((id) => {
      readings.forEach((rows, index) => { sums[index] += (rows.get(id) || 0) / MEBIBYTE; });
      return [...sums];
    });
  };

  const options = () => {
    const ids = [...labels.keys()];
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 },
                   ticks: { stroke: colour("--line"), width: 1 },
                   font: "14px " + getComputedStyle(document.body).fontFamily };
    return {
      width: plot.clientWidth, height: 260, legend: { show: false }, cursor: { show: false },
      scales: { x: { range: () => [times[0], Math.max(times.at(-1), times[0] + 60)] },
                y: { range: (_chart, _least, most) => [0, Math.max(most * 1.1, 1)] } },
      axes: [{ ...axis, space: 90, values: (_chart, marks) => marks.map(clock) }, { ...axis, size: 72, values: (_chart, marks) => marks.map((mark) => mark + " MiB") }],
      series: [{}, ...ids.map((id) => ({ label: labels.get(id), stroke: rowColour(id), width: 1.5,
                                         points: { show: times.length < 2 }, fill: rowColour(id) + "66" }))],
      bands: ids.slice(1).map((_id, index) => ({ series: [index + 2, index + 1] })),
    };
  };

  const draw = () => {
    if (chart) chart.destroy();
    chart = new uPlot(options(), [times, ...stacked()], plot);
  };

  const describe = () => {
    const total = (index) => [...readings[index].values()].reduce((sum, bytes) => sum + bytes, 0);
    const now = total(readings.length - 1);
    const change = now - total(0);
    const since = clock(times[0]);
    text.textContent = mib(now) + " MiB now, " + (change < 0 ? "−" : "+") + mib(Math.abs(change)) + " MiB since " + since +
                       ". From bottom to top:";
    legend.replaceChildren(...[...labels].map(([id, label]) => entry(id, label, readings.at(-1).get(id) || 0)));
  };

  // An entry of the legend, with the number that the row has in the tree.
  const entry = (id, label, bytes) => {
    const chip = document.createElement("span");
    chip.className = "chip row-" + id;
    chip.textContent = document.querySelector(".tree .chip.row-" + id)?.textContent || "";
    const item = document.createElement("li");
    item.append(chip, label + " " + mib(bytes));
    return item;
  };

  // Another process of the server can answer if the server's processes do not know each other.
  let others = 0;
  const missed = (ledger) => {
    others += 1;
    text.textContent = "Process " + ledger.pid + " answered instead of " + section.dataset.pid + ", " + others +
      (others === 1 ? " time" : " times") + ": the chart leaves it out." + (times.length ? "" : " Nothing is drawn yet.");
    section.hidden = false;
  };

  const take = (ledger) => {
    if (ledger.pid !== Number(section.dataset.pid)) { missed(ledger); return; }
    const at = Date.parse(ledger.at) / 1000;
    if (ledger.rss_bytes === null || times.at(-1) === at) return;
    times.push(at);
    readings.push(new Map(ledger.rows.map((row) => [row.id, row.bytes])));
    if (times.length > MOST) { times.shift(); readings.shift(); }
    ledger.rows.filter((row) => row.bytes > 0 && !labels.has(row.id)).forEach((row) => labels.set(row.id, row.label));
    section.hidden = false;
    draw();
    describe();
  };

  const read = async () => {
    if (document.hidden) return;
    try {
      take(await (await get(section.dataset.source, "application/json")).json());
    } catch (error) {
      text.textContent = "Stopped at " + clock(Date.now() / 1000) + ": " + error.message + ".";
      section.hidden = false;
      clearInterval(timer);
    }
  };

  const timer = setInterval(read, EVERY_MS);
  new ResizeObserver(() => { if (chart) chart.setSize({ width: plot.clientWidth, height: 260 }); }).observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (chart) draw(); });
  document.addEventListener("visibilitychange", read);
  read();
})();
