(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const byId = (id) => document.getElementById(id);
  const DASHES = [[9, 4], [2, 3], []];
  const charts = [];
  const hidden = new Set();

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const swatch = (style) => {
    const made = element("span", "swatch");
    made.dataset.run = style;
    return made;
  };

  // -- numbers and times

  const short = (value) => {
    const size = Math.abs(value);
    return value.toLocaleString("en-US", { maximumFractionDigits: size < 0.1 ? 4 : size < 10 ? 2 : size < 100 ? 1 : 0 });
  };
  const scaled = (value, base, units) => {
    let step = 0;
    while (Math.abs(value) >= base && step < units.length - 1) {
      value /= base;
      step += 1;
    }
    return short(value) + units[step];
  };
  const load = (value) => {
    if (data.unit === "m") return Math.abs(value) >= 10000 ? short(value / 1000) : `${short(value).replaceAll(",", "")}m`;
    if (data.unit === "%") return `${short(value)} %`;
    if (data.unit === "B") return scaled(value, 1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]);
    return scaled(value, 1000, ["", "k", "M", "G", "T", "P", "E"]);
  };
  const time = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  const DAY = 86400;
  const TIMES = [
    [DAY * 365, "{YYYY}", null, null, null, null, null, null, 1],
    [DAY * 28, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [DAY, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [3600, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
    [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  ];

  // -- parts of a chart

  const fillable = (colour, alpha) => {
    const channels = colour.slice(1).match(/../g).map((pair) => parseInt(pair, 16));
    return `rgba(${channels.join(",")},${alpha})`;
  };
  const stepped = uPlot.paths.stepped({ align: 1 });
  const MARGIN = 60;
  const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif';
  const axis = (more) => ({
    stroke: css("--soft"), font: FONT, grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid"), width: 1 }, ...more,
  });
  const valueAxis = (format) => axis({
    size: 64,
    values: (u, ticks) => ticks.map((value) => format(value)), space: 36,
  });
  const style = (run) => {
    const colour = css(`--run-${run.style}`);
    return { colour, width: run.style === 2 ? 2.5 : 1.6, dash: DASHES[run.style] };
  };
  const lines = (run) => {
    const { colour, width, dash } = style(run);
    const shared = { paths: stepped, points: { show: false }, show: !hidden.has(run.style), spanGaps: false };
    return {
      main: { ...shared, stroke: colour, width, dash, owner: run.style },
      other: { ...shared, stroke: fillable(colour, 0.35), width: 0.7, owner: run.style },
      fill: fillable(colour, 0.16),
    };
  };

  const timeChart = (id, height, columns, series, bands, yAxis, range, rows, hooks) => {
    const holder = byId(id);
    if (!holder) return;
    const tip = element("div", "tip");
    tip.hidden = true;
    const options = {
      width: holder.clientWidth, height, series: [{}, ...series], bands, legend: { show: false }, padding: [8, MARGIN, 0, 0],
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      axes: [axis({ values: TIMES, space: 64 }), yAxis],
      scales: { x: { time: true }, y: { range } },
      cursor: { sync: { key: "replay", scales: ["x", null] }, points: { size: 6 }, y: false, drag: { x: true, y: false } },
      hooks: {
        ...hooks,
        setCursor: [(u) => showTip(u, holder, tip, rows)],
        setScale: [(u, key) => key === "x" && zoomed(u)],
      },
    };
    const chart = new uPlot(options, [data.times, ...columns], holder);
    chart.over.append(tip);
    register(chart, holder, height);
    holder.onkeydown = (event) => move(event, chart, tip);
    holder.onblur = () => { tip.hidden = true; };
  };
  const register = (chart, holder, height) => {
    const observer = new ResizeObserver(() => {
      if (holder.clientWidth) chart.setSize({ width: holder.clientWidth, height });
    });
    observer.observe(holder);
    charts.push({ chart, observer });
  };

  const showTip = (u, holder, tip, rows) => {
    const at = u.cursor.idx;
    const used = holder.matches(":hover") || document.activeElement === holder;
    tip.hidden = !used || at === null || at === undefined || u.cursor.left < 0;
    if (tip.hidden) return;
    tip.replaceChildren(element("b", "", `${time(data.times[at])} UTC`));
    for (const [mark, name, text] of rows(at)) {
      const row = element("div");
      row.append(mark === null ? element("span", "swatch-none") : swatch(mark), element("span", "", name), element("span", "", text));
      tip.append(row);
    }
    const left = u.cursor.left > u.over.clientWidth / 2;
    tip.style.left = left ? "" : `${u.cursor.left + 14}px`;
    tip.style.right = left ? `${u.over.clientWidth - u.cursor.left + 14}px` : "";
  };
  const move = (event, u, tip) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    if (event.key === "Escape") tip.hidden = true;
    if (!step) return;
    event.preventDefault();
    tip.setAttribute("aria-live", "polite");
    const first = u.valToIdx(u.scales.x.min);
    const last = u.valToIdx(u.scales.x.max);
    const at = u.cursor.idx === null || u.cursor.idx === undefined ? first : Math.min(last, Math.max(first, u.cursor.idx + step));
    u.setCursor({ left: u.valToPos(data.times[at], "x"), top: u.over.clientHeight / 2 });
  };
  const zoomed = (u) => {
    const times = data.times;
    byId("whole").hidden = u.scales.x.min <= times[0] && u.scales.x.max >= times[times.length - 1];
  };
  const shown = () => data.runs.filter((run) => !hidden.has(run.style));
  const upFromZero = (u, least, most) => [0, Math.max(1, most === null ? 1 : most * 1.08)];

  // -- the charts

  const replicas = () => {
    const columns = [], series = [], bands = [];
    if (data.needed.length) {
      columns.push(data.needed);
      series.push({ paths: stepped, points: { show: false }, stroke: css("--need"), width: 1, fill: css("--need") });
    }
    for (const run of data.runs) {
      const { main, other, fill } = lines(run);
      columns.push(run.most, run.least);
      series.push(main, other);
      bands.push({ series: [series.length - 1, series.length], fill });
    }
    const rows = (at) => {
      const found = shown().map((run) => {
        const [least, most] = [run.least[at], run.most[at]];
        return [run.style, run.name, most === null ? "–" : least === most ? `${most}` : `${least}–${most}`];
      });
      if (data.needed.length && data.needed[at] !== null) found.push([null, "Serving pods needed", short(data.needed[at])]);
      return found;
    };
    const whole = (value) => (Number.isInteger(value) ? short(value) : "");
    timeChart("chart-replicas", 300, columns, series, bands, valueAxis(whole), upFromZero, rows, {});
  };

  const loads = () => {
    const columns = [], series = [];
    for (const run of data.runs) {
      columns.push(run.load);
      series.push(lines(run).main);
    }
    const top = data.band.highPlus || 0;
    const range = (u, least, most) => [0, 1.08 * Math.max(top, most || 0) || 1];
    const rows = (at) => shown().map((run) => [
      run.style, run.name, run.load[at] === null ? "–" : load(run.load[at]),
    ]);
    timeChart("chart-load", 300, columns, series, [], valueAxis(load), range, rows, { drawClear: [drawBand], draw: [drawMarks] });
  };
  const drawBand = (u) => {
    const { high, low, highPlus, lowMinus } = data.band;
    const { left, top, width, height } = u.bbox;
    const y = (value) => u.valToPos(value, "y", true);
    const area = (from, until, colour) => {
      u.ctx.fillStyle = colour;
      u.ctx.fillRect(left, y(until), width, y(from) - y(until));
    };
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(left, top, width, height);
    u.ctx.clip();
    if (high !== null) area(high, highPlus, css("--tolerance"));
    if (low !== null) area(lowMinus, low, css("--tolerance"));
    if (high !== null || low !== null) area(low === null ? 0 : low, high === null ? u.scales.y.max : high, css("--band"));
    u.ctx.restore();
  };
  const drawMarks = (u) => {
    const { left, width } = u.bbox;
    const pixels = devicePixelRatio;
    u.ctx.save();
    u.ctx.strokeStyle = u.ctx.fillStyle = css("--edge");
    u.ctx.lineWidth = 1.2 * pixels;
    u.ctx.font = FONT.replace("12px", `600 ${12 * pixels}px`);
    u.ctx.textAlign = "left";
    u.ctx.textBaseline = "middle";
    let above = -Infinity;
    for (const name of ["high", "low"]) {
      const value = data.band[name];
      if (value === null) continue;
      const y = Math.round(u.valToPos(value, "y", true));
      const row = Math.max(y, above + 30 * pixels);
      above = row;
      u.ctx.beginPath();
      u.ctx.moveTo(left, y);
      u.ctx.lineTo(left + width, y);
      u.ctx.stroke();
      u.ctx.fillText(name, left + width + 6 * pixels, row - 7 * pixels);
      u.ctx.fillText(load(value), left + width + 6 * pixels, row + 7 * pixels);
    }
    u.ctx.restore();
  };

  const pulledOut = () => {
    const colour = css("--soft");
    const series = [{ paths: stepped, points: { show: false }, stroke: colour, width: 1.2, fill: fillable(colour, 0.3) }];
    const rows = (at) => [[null, "Pulled out", data.pulledOut[at] === null ? "–" : short(data.pulledOut[at])]];
    const whole = (value) => (Number.isInteger(value) ? short(value) : "");
    timeChart("chart-out", 120, [data.pulledOut], series, [], valueAxis(whole), upFromZero, rows, {});
  };

  // -- the page

  const keys = () => {
    for (const key of document.querySelectorAll("[data-key]")) {
      key.textContent = {
        replicas: data.needed.length ? "grey area: serving pods needed at the high watermark" : "",
        load: data.band.high === null ? "" : "the highest of each part of the time; shaded: the watermark band with its tolerance",
        out: "",
      }[key.dataset.key];
    }
  };
  const render = () => {
    for (const { chart, observer } of charts.splice(0)) {
      observer.disconnect();
      chart.destroy();
    }
    keys();
    if (data.times && data.times.length) {
      replicas();
      loads();
      pulledOut();
    }
  };
  const toggle = (button) => {
    const run = data.runs[Number(button.dataset.toggle)];
    const off = !hidden.has(run.style);
    if (off) hidden.add(run.style);
    else hidden.delete(run.style);
    button.setAttribute("aria-pressed", String(!off));
    for (const { chart } of charts) {
      chart.series.forEach((line, index) => line.owner === run.style && chart.setSeries(index, { show: !off }));
    }
  };
  for (const button of document.querySelectorAll("[data-toggle]")) button.onclick = () => toggle(button);
  if (byId("whole")) byId("whole").onclick = () => {
    for (const { chart } of charts) {
      if (chart.scales.x.time) chart.setScale("x", { min: data.times[0], max: data.times[data.times.length - 1] });
    }
  };
  const print = (on) => {
    document.documentElement.toggleAttribute("data-print", on);
    render();
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  if (data.runs) render();
})();
