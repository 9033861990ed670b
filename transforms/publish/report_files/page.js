"use strict";
// Paging through the rows, and the charts. Without it, all rows are shown, and the figures of the charts are in tables.

for (const pager of document.querySelectorAll("[data-pager]")) {
  const pages = [...pager.querySelectorAll("[data-page]")];
  const buttons = [...pager.querySelectorAll("[data-step]")];
  const output = pager.querySelector("output");
  let current = 0;
  const show = (number) => {
    current = Math.min(Math.max(number, 0), pages.length - 1);
    pages.forEach((page, i) => { page.hidden = i !== current; });
    output.textContent = `Row ${current + 1} of ${pages.length}`;
    buttons[0].disabled = current === 0;
    buttons[1].disabled = current === pages.length - 1;
  };
  buttons.forEach((button) => button.addEventListener("click", () => show(current + Number(button.dataset.step))));
  pager.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step && !event.altKey && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      show(current + step);
    }
  });
  pager.classList.add("ready");
  show(0);
}

const data = JSON.parse(document.getElementById("charts").textContent);
const number = new Intl.NumberFormat("en-US");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let charts = [];

function draw() {
  charts.forEach((chart) => chart.destroy());
  charts = [...document.querySelectorAll("canvas[data-chart]")].map((canvas) => {
    const { labels, counts, counted, unit } = data[canvas.dataset.chart];
    const all = counts.reduce((sum, count) => sum + count, 0);
    const ticks = { color: colour("--quiet"), font: { size: 11, family: "system-ui, sans-serif" } };
    return new Chart(canvas, {
      type: "bar",
      data: {
        labels,
        datasets: [{ data: counts, backgroundColor: colour("--accent"), categoryPercentage: 1, barPercentage: 0.9, maxBarThickness: 64, minBarLength: 2, borderRadius: 2 }],
      },
      options: {
        animation: false,
        responsive: true,
        maintainAspectRatio: false,
        interaction: { mode: "index", intersect: false },
        plugins: {
          legend: { display: false },
          tooltip: {
            displayColors: false,
            callbacks: {
              title: (items) => `${items[0].label} ${unit}`,
              label: (item) => `${number.format(item.raw)} ${counted} (${((100 * item.raw) / all).toFixed(2)}%)`,
            },
          },
        },
        scales: {
          x: {
            title: { display: true, text: unit, color: ticks.color, font: ticks.font },
            grid: { display: false },
            border: { color: colour("--line") },
            ticks: { ...ticks, maxRotation: 0, autoSkipPadding: 14, callback(value) { return this.getLabelForValue(value).split("–")[0]; } },
          },
          y: {
            beginAtZero: true,
            grid: { color: colour("--line") },
            border: { display: false },
            ticks: { ...ticks, precision: 0, maxTicksLimit: 5, callback: (value) => number.format(value) },
          },
        },
      },
    });
  });
}

draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
