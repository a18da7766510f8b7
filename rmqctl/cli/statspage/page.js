"use strict";
// Draws the charts over time with uPlot: axes, what stands under the pointer, a part of the time by
// dragging. The numbers come from the page; without this script its own picture of them stays.
(() => {
  const HOUR = 3600;
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const count = (value) => value.toLocaleString("en");
  const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  const size = (bytes) => {
    let unit = "B";
    for (unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
      if (bytes < 1024 || unit === "TiB") break;
      bytes /= 1024;
    }
    return `${bytes.toLocaleString("en", { maximumFractionDigits: 1 })} ${unit}`;
  };
  // Steps of an axis that counts messages: 1, 2, 5, 10, …
  const steps = [];
  for (let power = 1; power < 1e15; power *= 10) steps.push(power, 2 * power, 5 * power);
  const days = [1, 2, 3, 7, 14, 30, 61, 91, 182, 365, 730, 1825, 3650, 18250, 36500, 365000];
  const times = [1, 2, 3, 6, 12, ...days.map((day) => day * 24)].map((hours) => hours * HOUR);
  const labels = [
    [365 * 24 * HOUR, "{YYYY}", null, null, null, null, null, null, 1],
    [28 * 24 * HOUR, "{YYYY}-{MM}", null, null, null, null, null, null, 1],
    [24 * HOUR, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
    [1, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  ];

  function draw(figure) {
    const [hours, messages, bytes] = JSON.parse(figure.querySelector("script").textContent);
    const still = figure.querySelector(".still");
    const tip = figure.appendChild(document.createElement("div"));
    tip.className = "tip";
    tip.hidden = true;
    const whole = figure.appendChild(document.createElement("button"));
    whole.textContent = "all of it";
    whole.hidden = true;
    const ends = { min: hours[0], max: hours[hours.length - 1] + HOUR };
    const axis = {
      stroke: () => color("--dim"),
      grid: { stroke: () => color("--line"), width: 1 },
      ticks: { stroke: () => color("--line"), width: 1 },
      font: "12px system-ui, sans-serif",
    };
    const place = () => ({ width: figure.clientWidth, height: 220 });

    const point = (chart) => {
      const { left } = chart.cursor;
      const hour = Math.floor(chart.posToVal(left, "x") / HOUR) * HOUR;
      const at = left < 0 ? -1 : hours.indexOf(hour);
      tip.hidden = at < 0;
      if (at < 0) return;
      tip.textContent =
        `${moment(hour)}: ${count(messages[at])} messages, ${size(bytes[at])}`;
      const room = figure.clientWidth - tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(left + 70, room))}px`;
    };
    const scaled = (chart, name) => {
      const { min, max } = chart.scales.x;
      if (name === "x") whole.hidden = min <= ends.min && max >= ends.max;
    };
    const options = {
      ...place(),
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, dist: 5 } },
      // Nothing is closer than an hour, so no less is shown.
      scales: {
        x: { range: (chart, min, max) => (max - min < HOUR ? [min, min + HOUR] : [min, max]) },
        y: { range: (chart, min, max) => [0, Math.max(max, 1) * 1.05] },
      },
      axes: [
        { ...axis, incrs: times, values: labels },
        { ...axis, incrs: steps, size: 64, values: (chart, ticks) => ticks.map(count) },
      ],
      series: [
        {},
        {
          paths: uPlot.paths.bars({ size: [0.9, Infinity], align: 1 }),
          points: { show: false },
          fill: () => color("--bar"),
          width: 0,
        },
      ],
      hooks: { setCursor: [point], setScale: [scaled] },
    };
    still.hidden = true;
    const chart = new uPlot(options, [hours, messages], figure);
    chart.setScale("x", ends);
    figure.parentNode.classList.add("drawn");
    whole.addEventListener("click", () => chart.setScale("x", ends));
    chart.over.addEventListener("dblclick", () => chart.setScale("x", ends));
    new ResizeObserver(() => chart.setSize(place())).observe(figure);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => chart.redraw(false, true));
  }

  for (const figure of document.querySelectorAll("figure")) draw(figure);
})();
