// The city: people below, shelters above them, emergencies on top. One pixel of the drawing is one of the screen.

import { age, count, direction, words } from "./format.js";
import { html, say, svg, whenSized } from "./drawing.js";

const KM = 111.195;
const MARGIN = 14;
const YOUNG_S = 30;
const FADED_S = 150;

// A kind has a shape and a colour of its own: nobody has to tell colours apart.
const SHAPES = [
  "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0Z",
  "M0-1.2L1.1.8H-1.1Z",
  "M0-1.25L1.25 0L0 1.25L-1.25 0Z",
  "M-.9-.9H.9V.9H-.9Z",
  "M-.42-1.15H.42V-.42H1.15V.42H.42V1.15H-.42V.42H-1.15V-.42H-.42Z",
  "M0 1.2L1.1-.8H-1.1Z",
  "M-1.15 0L-.58-1H.58L1.15 0L.58 1H-.58Z",
  "M0-1.3L.38-.46L1.24-.4L.58.18L.78 1.05L0 .58L-.78 1.05L-.58.18L-1.24-.4L-.38-.46Z",
];
const SHELTER = "M0-1.2L1.15-.15V1H.35V.2H-.35V1H-1.15V-.15Z";

export class CityMap {
  #svg = document.getElementById("map");
  #legend = document.getElementById("legend");
  #summary = document.getElementById("map-summary");
  #grid = svg("g", { class: "grid" });
  #offline = svg("path", { class: "user offline" });
  #online = svg("path", { class: "user online" });
  #shelters = svg("path", { class: "shelter" });
  #reports = svg("g", { class: "reports" });
  #ruler = svg("g", { class: "ruler" });
  #marks = new Map();
  #kinds = [];
  #legendShown = "";
  #size = { width: 0, height: 0 };
  #shown = null;

  constructor() {
    this.#svg.append(this.#grid, this.#offline, this.#online, this.#shelters, this.#reports, this.#ruler);
    whenSized(this.#svg, (width, height) => {
      this.#size = { width, height };
      this.#svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      if (this.#shown) this.#draw();
    });
  }

  show(snapshot) {
    this.#shown = snapshot;
    const kinds = new Set(snapshot.reports.map((report) => report.kind));
    for (const kind of [...kinds].sort()) if (!this.#kinds.includes(kind)) this.#kinds.push(kind);
    this.#draw();
    this.#explain(snapshot);
  }

  /** Where a place lies from the centre, in words. */
  placeOf(report) {
    const { north, south, east, west } = this.#shown.city;
    const narrowing = Math.cos((((north + south) / 2) * Math.PI) / 180);
    const eastward = (report.lon - (east + west) / 2) * KM * narrowing;
    return direction(eastward, (report.lat - (north + south) / 2) * KM);
  }

  symbolOf(kind) {
    const shape = this.#kinds.indexOf(kind) % SHAPES.length;
    return symbol(SHAPES[shape], `kind-${shape}`);
  }

  #draw() {
    const at = this.#projection();
    if (!at) return;
    const { users, shelters, reports } = this.#shown;
    this.#drawGrid(at);
    const people = (online, dot) =>
      users.filter((user) => user.online === online).map((user) => dot(...at.pixel(user))).join("");
    this.#online.setAttribute("d", people(true, (x, y) => `M${x} ${y}h0`));
    this.#offline.setAttribute("d", people(false, (x, y) => `M${x - 2} ${y}a2 2 0 1 0 4 0a2 2 0 1 0-4 0`));
    this.#shelters.setAttribute("d", shelters.map((place) => houseAt(...at.pixel(place))).join(""));

    const gone = new Set(this.#marks.keys());
    for (const report of [...reports].sort((a, b) => b.age_s - a.age_s)) {
      gone.delete(report.id);
      this.#drawReport(report, at);
    }
    for (const id of gone) {
      this.#marks.get(id).remove();
      this.#marks.delete(id);
    }
  }

  #drawReport(report, at) {
    let mark = this.#marks.get(report.id);
    if (!mark) {
      const shape = this.#kinds.indexOf(report.kind) % SHAPES.length;
      mark = svg(
        "g",
        { class: `report kind-${shape}`, "data-kind": report.kind },
        svg("path", { class: "pulse", d: SHAPES[shape] }),
        svg("path", { class: "mark", d: SHAPES[shape] }),
        svg("title"),
      );
      this.#marks.set(report.id, mark);
      this.#reports.append(mark);
    }
    const [x, y] = at.pixel(report);
    const severity = Math.min(5, Math.max(1, report.severity));
    mark.setAttribute("transform", `translate(${x} ${y}) scale(${(4 + 1.7 * severity) * at.zoom})`);
    mark.classList.toggle("young", report.age_s < YOUNG_S);
    const faded = Math.min(1, report.age_s / FADED_S);
    mark.children[1].setAttribute("fill-opacity", (0.9 - 0.8 * faded).toFixed(2));
    say(mark.children[2], `${words(report.kind)}, severity ${report.severity}, ${age(report.age_s)} ago`);
  }

  #drawGrid(at) {
    const step = [1, 2, 5, 10, 20, 50].find((km) => km * at.perKm >= 56) ?? 100;
    const { width, height } = this.#size;
    let lines = "";
    for (let x = at.centre[0] % (step * at.perKm); x < width; x += step * at.perKm) lines += `M${x} 0V${height}`;
    for (let y = at.centre[1] % (step * at.perKm); y < height; y += step * at.perKm) lines += `M0 ${y}H${width}`;
    const long = step * at.perKm;
    this.#grid.replaceChildren(
      svg("path", { class: "line", d: lines }),
      svg("rect", { class: "bounds", rx: 6, ...at.bounds }),
    );
    this.#ruler.replaceChildren(
      svg("path", { d: `M10 ${height - 14}v4h${long}v-4` }),
      svg("text", { x: 10 + long / 2, y: height - 16, "text-anchor": "middle" }, `${step} km`),
    );
  }

  /** From degrees to pixels: the whole city fits, and a kilometre is as long in both directions. */
  #projection() {
    const { width, height } = this.#size;
    if (!width || !height) return null;
    const { north, south, east, west } = this.#shown.city;
    const narrowing = Math.cos((((north + south) / 2) * Math.PI) / 180);
    const [wide, high] = [(east - west) * narrowing * KM, (north - south) * KM];
    const perKm = Math.min((width - 2 * MARGIN) / wide, (height - 2 * MARGIN) / high);
    const round = (value) => Math.round(10 * value) / 10;
    const pixel = ({ lat, lon }) => [
      round(width / 2 + (lon - (east + west) / 2) * narrowing * KM * perKm),
      round(height / 2 - (lat - (north + south) / 2) * KM * perKm),
    ];
    const bounds = { width: wide * perKm, height: high * perKm };
    bounds.x = (width - bounds.width) / 2;
    bounds.y = (height - bounds.height) / 2;
    return { pixel, perKm, bounds, centre: [width / 2, height / 2], zoom: width < 480 ? 0.8 : 1 };
  }

  #explain({ reports, shelters, users }) {
    const online = users.filter((user) => user.online).length;
    const places = shelters.reduce((sum, shelter) => sum + shelter.places, 0);
    say(
      this.#summary,
      `${count(reports.length)} emergencies, ${count(shelters.length)} shelters with ${count(places)} places, ` +
        `${count(online)} of ${count(users.length)} users online. Larger is more severe, paler is older.`,
    );
    const legend = this.#kinds.join();
    if (legend === this.#legendShown) return;
    this.#legendShown = legend;
    this.#legend.replaceChildren(
      ...this.#kinds.map((kind) => html("li", "", this.symbolOf(kind), words(kind))),
      html("li", "", symbol(SHELTER, "shelter"), "shelter"),
      html("li", "", symbol("M0 0h0", "user online"), "user online"),
      html("li", "", symbol("M-.33 0a.33.33 0 1 0 .66 0a.33.33 0 1 0-.66 0", "user offline"), "user offline"),
    );
  }
}

function houseAt(x, y) {
  return `M${x} ${y - 6}l5.8 5.2v5.8h-4v-4h-3.6v4h-4v-5.8Z`;
}

function symbol(shape, className) {
  return svg(
    "svg",
    { class: `symbol ${className}`, viewBox: "-1.5 -1.5 3 3", "aria-hidden": "true" },
    svg("path", { class: `mark ${className}`, d: shape }),
  );
}
