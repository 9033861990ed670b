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

const add = (parent, name, attributes, text = "") => {
  const element = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", name));
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  element.textContent = text;
  return element;
};

// The least of 1, 2, 5, 10, 20, .. that is not below a number.
const nice = (least) => {
  const power = 10 ** Math.floor(Math.log10(least));
  return Math.max(1, [1, 2, 5, 10].find((factor) => factor * power >= least) * power);
};

// Between two lines of the grid, of which there are five at most.
const stepTo = (most) => {
  const step = nice(most / 4);
  return Math.ceil(most / step) > 4 ? nice((Math.ceil(most / step) * step) / 4) : step;
};

// In pixels: what is above and below the bars, a tick of the grid, what is around its labels, and how far away a tip is.
const ABOVE = 9, BELOW = 49, TICK = 8, PADDING = 3, CARET = 7;

function draw(box) {
  const { labels, counts, unit } = data[box.dataset.chart];
  const width = box.clientWidth, bottom = box.clientHeight - BELOW;
  box.querySelector("svg")?.remove();
  const svg = add(box, "svg", { width, height: box.clientHeight, "aria-hidden": "true" });
  const step = stepTo(Math.max(...counts));
  const lines = Math.ceil(Math.max(...counts) / step);
  const sizeOf = (text) => {
    const element = add(svg, "text", {}, text);
    const size = element.getComputedTextLength();
    element.remove();
    return size;
  };
  const left = Math.ceil(sizeOf(number.format(lines * step))) + 2 * PADDING + TICK;
  for (let i = 0; i <= lines; i++) {
    const y = Math.round(bottom - (i / lines) * (bottom - ABOVE)) + 0.5;
    add(svg, "line", { x1: left - TICK, x2: width, y1: y, y2: y });
    add(svg, "text", { x: left - TICK - PADDING, y, class: "y" }, number.format(i * step));
  }
  const slot = (width - left) / counts.length, thick = Math.min(0.9 * slot, 64);
  const bars = counts.map((count, i) => {
    const high = Math.max((count / (lines * step)) * (bottom - ABOVE), 2), round = Math.min(2, thick / 2);
    const x = left + (i + 0.5) * slot - thick / 2;
    const outline = `M${x} ${bottom}v${round - high}q0 ${-round} ${round} ${-round}h${thick - 2 * round}q${round} 0 ${round} ${round}v${high - round}z`;
    return add(svg, "path", { d: outline, "data-count": count, "data-label": labels[i] });
  });
  // As many labels as there is space for, at even distances.
  const firsts = labels.map((label) => label.split("–")[0]);
  const most = Math.max(1, Math.floor((width - left) / (Math.max(...firsts.map(sizeOf)) + 14)));
  for (let i = 0; i < counts.length; i += Math.ceil(counts.length / most)) {
    add(svg, "text", { x: left + (i + 0.5) * slot, y: bottom + 17 }, firsts[i]);
  }
  add(svg, "text", { x: (left + width) / 2, y: bottom + 37 }, unit);
  box.onpointermove = (event) => {
    const at = Math.floor((event.clientX - box.getBoundingClientRect().left - left) / slot);
    point(box, bars, at, left + (at + 0.5) * slot);
  };
  box.onpointerleave = () => point(box, bars, -1);
}

// Show what a bar is of, next to it; nothing if there is none under the pointer.
function point(box, bars, at, x) {
  const { counts, labels, counted, unit } = data[box.dataset.chart];
  const tip = box.querySelector(".tip");
  bars.forEach((bar, i) => bar.classList.toggle("pointed", i === at));
  tip.hidden = !bars[at];
  if (tip.hidden) return;
  const all = counts.reduce((sum, count) => sum + count, 0);
  tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: `${labels[at]} ${unit}` }));
  tip.append(`${number.format(counts[at])} ${counted} (${((100 * counts[at]) / all).toFixed(2)}%)`);
  const { y, height } = bars[at].getBBox();
  const isLeft = x + CARET + tip.offsetWidth > box.clientWidth && x - CARET > tip.offsetWidth;
  tip.classList.toggle("left", isLeft);
  tip.style.left = `${isLeft ? x - CARET - tip.offsetWidth : x + CARET}px`;
  tip.style.top = `${y + height / 2}px`;
}

const resized = new ResizeObserver((entries) => entries.forEach((entry) => draw(entry.target)));
document.querySelectorAll("[data-chart]").forEach((box) => resized.observe(box));
