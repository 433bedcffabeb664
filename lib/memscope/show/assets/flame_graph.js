"use strict";
(() => {
  const { files, frames, stacks, difference, errors } = JSON.parse(document.getElementById("profile").textContent);
  const element = (id) => document.getElementById(id);
  const area = element("chart");

  // Formats bytes as the text reports do.
  const size = (bytes) => {
    const grouped = (number, digits) => number.toLocaleString("en-US",
      { minimumFractionDigits: digits, maximumFractionDigits: digits });
    if (Math.abs(bytes) >= 104857) return grouped(bytes / 1048576, 1) + " MiB";
    return Math.abs(bytes) >= 1024 ? grouped(bytes / 1024, 0) + " KiB" : bytes + " B";
  };

  // Folds a run of more than two framework frames, with frames of the standard library between them, into one node.
  // What the application's innermost line calls is not folded.
  const FOLDED = -2;
  const folded = (path) => {
    const end = path.findLastIndex((frame) => frames[frame][1] === 0);
    const kept = [];
    let run = [];
    let between = [];
    path.forEach((frame, index) => {
      if (index < end && frames[frame][4]) {
        run.push(...between, frame);
        between = [];
      } else if (index < end && run.length && frames[frame][1] === 2) {
        between.push(frame);
      } else {
        kept.push(...(run.length > 2 ? [FOLDED] : run), ...between, frame);
        run = [];
        between = [];
      }
    });
    return kept;
  };

  // In a difference, the width is the size of the change in either direction.
  const node = (frame) => ({ frame, name: frame === FOLDED ? "Rack, Puma, Rails, Sidekiq" : frame < 0 ? "all" : frames[frame][0], value: 0, bytes: 0, samples: 0,
    variance: 0, below: new Map() });
  const count = (into, bytes, samples, error) => {
    into.value += Math.abs(bytes);
    into.bytes += bytes;
    into.samples += samples;
    into.variance += error * error;
  };
  const finish = (one) => {
    one.children = [...one.below.values()].sort((a, b) => b.value - a.value);
    delete one.below;
    one.children.forEach(finish);
    return one;
  };
  const tree = (inverted, fold) => {
    const root = node(-1);
    stacks.forEach(([path, bytes, samples, error]) => {
      let one = root;
      count(one, bytes, samples, error);
      const rooted = fold ? folded([...path].reverse()) : [...path].reverse();
      (inverted ? rooted.reverse() : rooted).forEach((frame) => {
        if (!one.below.has(frame)) one.below.set(frame, node(frame));
        one = one.below.get(frame);
        count(one, bytes, samples, error);
      });
    });
    return finish(root);
  };

  const mixed = (from, to, share) =>
    "rgb(" + from.map((value, index) => Math.round(value + (to[index] - value) * share)).join(",") + ")";
  const KINDS = ["#f6b3bd", "#f3cf8e", "#f1e6a2", "#b4cdf3", "#d9d7d0"];
  const colour = (d) => {
    if (d.highlight) return "#c3a1ff";
    if (difference) {
      const share = d.data.value ? d.data.bytes / d.data.value : 0;
      return mixed([244, 242, 236], share > 0 ? [244, 112, 91] : [111, 168, 240], Math.abs(share));
    }
    return d.data.frame < 0 ? "#ecebe4" : KINDS[frames[d.data.frame][1]];
  };

  let whole;
  const place = (data) => {
    const [, , file, line] = frames[data.frame] ?? [];
    return [files[file], line].filter((part) => part != null).join(":");
  };
  const label = ({ data }) => {
    const bytes = (difference && data.bytes > 0 ? "+" : "") + size(data.bytes);
    const share = difference || !whole ? "" : ", " + (100 * data.value / whole).toFixed(1) + " %";
    const error = errors ? " ± " + size(Math.round(Math.sqrt(data.variance))) : "";
    return [data.name, place(data)].filter(Boolean).join(", ") + ": " + bytes + error + share +
      ", " + data.samples.toLocaleString("en-US") + " samples";
  };

  let chart;
  const details = element("details");
  const hint = details.textContent;
  const found = element("found");
  const matches = (d, term) =>
    (d.data.name + " " + place(d.data)).toLowerCase().includes(term.toLowerCase());
  // Replaces the library's own search, which passes all matches as arguments of one call and fails for too many.
  const search = () => {
    const term = element("search").value.trim();
    let number = 0;
    let bytes = 0;
    d3.select(area).datum().each((d) => {
      d.highlight = term !== "" && matches(d, term);
      d.within = d.parent !== null && (d.parent.highlight || d.parent.within);
      if (d.highlight) number += 1;
      if (d.highlight && !d.within) bytes += d.data.bytes;
    });
    chart.update();
    const frames = number.toLocaleString("en-US") + (number === 1 ? " frame" : " frames");
    found.textContent = term === "" ? "" : frames + (number ? ", " + size(bytes) : "");
  };

  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const draw = () => {
    chart?.destroy();
    const data = tree(element("invert").checked, element("fold")?.checked);
    whole = data.value;
    chart = d3.flamegraph().width(area.clientWidth).cellHeight(20).inverted(true).minFrameSize(1)
      .transitionDuration(still ? 0 : 200).setColorMapper(colour).setLabelHandler(label)
      .setDetailsHandler((text) => { details.textContent = text || hint; });
    d3.select(area).datum(data).call(chart);
    d3.select(area).select("svg").attr("role", "img").attr("aria-label", "Flame graph; the table below lists its lines");
    search();
  };

  element("search").addEventListener("input", search);
  element("invert").addEventListener("change", draw);
  element("fold")?.addEventListener("change", draw);
  element("reset").addEventListener("click", () => {
    element("search").value = "";
    search();
    chart.resetZoom();
  });
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => chart.width(area.clientWidth).update(), 100);
  });
  element("controls").hidden = false;
  draw();
})();
