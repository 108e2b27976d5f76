// One line over the last two minutes. A vertical mark shows where the policy was switched.

import { html, say, svg, whenSized } from "./drawing.js";

const WINDOW_S = 120;
const LEFT = 58;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 18;

export class Chart {
  #name;
  #valueOf;
  #format;
  #least;
  #top;
  #value = html("span", "value");
  #svg = svg("svg", { class: "chart", role: "img" });
  #size = { width: 0, height: 0 };
  #points = [];
  #switches = [];
  #now = 0;
  #pointed = null;

  /** `least` is the smallest height of the axis; `top`, if given, is its only one. */
  constructor(figure, { name, valueOf, format, least, top = null }) {
    this.#name = name;
    this.#valueOf = valueOf;
    this.#format = format;
    this.#least = least;
    this.#top = top;
    figure.append(html("figcaption", "", html("span", "", name), this.#value), this.#svg);
    whenSized(this.#svg, (width, height) => {
      this.#size = { width, height };
      this.#svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.#draw();
    });
    this.#svg.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.#svg.addEventListener("pointerleave", () => this.#point(null));
  }

  show(history, now, switches) {
    this.#now = now;
    this.#switches = switches.filter(({ t }) => t >= now - WINDOW_S);
    this.#points = history
      .filter(({ t }) => t >= now - WINDOW_S && t <= now)
      .map((entry) => ({ t: entry.t, value: this.#valueOf(entry) ?? null }));
    this.#draw();
  }

  #point(x) {
    this.#pointed = x;
    this.#draw();
  }

  #draw() {
    const { width, height } = this.#size;
    if (!width) return;
    const known = this.#points.filter(({ value }) => value !== null);
    const values = known.map(({ value }) => value);
    const top = this.#top ?? niceTop(Math.max(this.#least, ...values));
    const x = (t) => LEFT + ((t - this.#now + WINDOW_S) / WINDOW_S) * (width - LEFT - RIGHT);
    const y = (value) => height - BOTTOM - (Math.min(value, top) / top) * (height - TOP - BOTTOM);

    const parts = [0, top / 2, top].flatMap((tick) => [
      svg("path", { class: "line", d: `M${LEFT} ${y(tick)}H${width - RIGHT}` }),
      svg("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, this.#format(tick).replace(".0 ", " ")),
    ]);
    parts.push(
      svg("text", { x: LEFT, y: height - 3 }, "2 min ago"),
      svg("text", { x: width - RIGHT, y: height - 3, "text-anchor": "end" }, "now"),
    );
    for (const run of runs(this.#points)) {
      const line = run.map(({ t, value }) => `${x(t).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
      const [from, to] = [run[0], run.at(-1)].map(({ t }) => x(t).toFixed(1));
      parts.push(svg("path", { class: "area", d: `M${from} ${y(0)}L${line}L${to} ${y(0)}Z` }));
      parts.push(svg("path", { class: "curve", d: `M${line}` }));
    }
    for (const { t, policy } of this.#switches) {
      const side = x(t) > width - 60 ? "end" : "start";
      parts.push(svg("path", { class: "switched", d: `M${x(t)} ${TOP}V${height - BOTTOM}` }));
      parts.push(
        svg("text", { class: "switched", x: x(t) + (side === "end" ? -4 : 4), y: TOP + 10, "text-anchor": side }, policy),
      );
    }
    const last = known.at(-1);
    const pointed = this.#pointed === null ? null : nearest(known, (point) => Math.abs(x(point.t) - this.#pointed));
    const marked = pointed ?? last;
    if (marked) parts.push(svg("circle", { class: "dot", cx: x(marked.t), cy: y(marked.value), r: 3.5 }));
    this.#svg.replaceChildren(...parts);

    const ago = pointed ? `, ${Math.round(this.#now - pointed.t)} s ago` : "";
    say(this.#value, this.#format(marked?.value) + ago);
    const lowest = this.#format(Math.min(...values));
    const highest = this.#format(Math.max(...values));
    const summary = last ? `now ${this.#format(last.value)}, lowest ${lowest}, highest ${highest}` : "not known yet";
    this.#svg.setAttribute("aria-label", `${this.#name} over the last two minutes: ${summary}`);
  }
}

/** The next round number, one whose half is round, too. */
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 1.2, 1.6, 2, 3, 4, 5, 6, 8].find((step) => step * power >= value) ?? 10);
}

/** Stretches without a gap. */
function runs(points) {
  const found = [[]];
  for (const point of points) {
    if (point.value === null) found.push([]);
    else found.at(-1).push(point);
  }
  return found.filter((run) => run.length);
}

function nearest(points, distance) {
  return points.reduce((best, point) => (best && distance(best) <= distance(point) ? best : point), null);
}
