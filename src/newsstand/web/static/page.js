// Asks for the state every second while somebody looks, and shows it.

import { CityMap } from "./map.js";
import { Chart } from "./chart.js";
import { html, rows, say } from "./drawing.js";
import { age, bytes, clock, count, milliseconds, percent, rate, words } from "./format.js";
import { PolicySwitch } from "./policy.js";

const EVERY_MS = 1000;
const PATIENCE_MS = 5000;
const NEWEST = 6;

const $ = (id) => document.getElementById(id);
const map = new CityMap();
const charts = [
  new Chart($("chart-hit-ratio"), {
    name: "Hit ratio",
    valueOf: (entry) => entry.hit_ratio,
    format: percent,
    top: 1,
  }),
  new Chart($("chart-latency"), {
    name: "Result latency, median",
    valueOf: (entry) => entry.latency_p50,
    format: milliseconds,
    least: 1,
  }),
  new Chart($("chart-cached"), {
    name: "Bytes in the caches",
    valueOf: (entry) => entry.cached_bytes,
    format: bytes,
    least: 1000,
  }),
];
const policySwitch = new PolicySwitch(look);

let looking = false;
let seenAt = null;

async function look() {
  if (looking || document.hidden) return;
  looking = true;
  const snapshot = await ask();
  looking = false;
  if (snapshot === null) {
    showAway();
  } else {
    seenAt = performance.now();
    show(snapshot);
  }
}

/** The state of this moment, or null if there is no good answer in time. */
async function ask() {
  try {
    const response = await fetch("state.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!response.ok) throw new Error(`state.json: ${response.status}`);
    return await response.json();
  } catch {
    return null;
  }
}

function show(snapshot) {
  const { elapsed_s: elapsed, duration_s: duration } = snapshot;
  const finished = duration !== null && elapsed >= duration;
  showStatus(finished ? "finished" : "live", finished ? "Finished" : "Live");
  $("away").hidden = true;
  say($("elapsed"), duration === null ? clock(elapsed) : `${clock(elapsed)} of ${clock(duration)}`);
  $("progress").hidden = duration === null;
  if (duration) $("progress").firstElementChild.style.width = `${Math.min(100, (100 * elapsed) / duration)}%`;
  showFigures(snapshot);
  map.show(snapshot);
  policySwitch.show(snapshot);
  for (const chart of charts) chart.show(snapshot.history, elapsed, policySwitch.switches);
  showBrokers(snapshot.brokers);
  showReports(snapshot.reports);
}

function showStatus(state, text) {
  $("status").dataset.state = state;
  document.body.dataset.state = state;
  say($("status"), text);
}

function showAway() {
  showStatus("away", "No connection");
  const since = seenAt === null ? "" : ` What you see is ${age((performance.now() - seenAt) / 1000)} old.`;
  say($("away"), `The platform does not answer.${since} This page goes on by itself when it does.`);
  $("away").hidden = false;
}

function showFigures({ totals, latency_ms: latency, history }) {
  const figures = {
    publications: [count(totals.publications), rate(perSecond(history, "publications"))],
    results: [count(totals.results), rate(perSecond(history, "results"))],
    notifications: [count(totals.notifications), `${count(totals.received)} results read`],
    "hit-ratio": [percent(totals.hit_ratio), `${count(totals.hits)} of ${count(totals.hits + totals.misses)}`],
    notification: [milliseconds(latency?.notification?.p50), `p99 ${milliseconds(latency?.notification?.p99)}`],
    result: [milliseconds(latency?.result?.p50), `p99 ${milliseconds(latency?.result?.p99)}`],
    fetched: [bytes(totals.fetched_bytes), `${bytes(totals.cached_bytes)} in the caches`],
  };
  for (const [id, [figure, more]] of Object.entries(figures)) {
    say($(id), figure);
    say($(`${id}-more`), more);
  }
}

/** How fast a total has grown over the last ten seconds. */
function perSecond(history, name) {
  const last = history.at(-1);
  const first = last && history.find(({ t }) => t >= last.t - 10);
  return first && last.t > first.t ? (last[name] - first[name]) / (last.t - first.t) : null;
}

function showBrokers(brokers) {
  const make = () => {
    const bar = html("div", "bar", html("div"));
    const cells = ["name", "number", "number", "cache", "policy"].map((name) => html("td", name));
    const head = html("th", "name");
    head.scope = "row";
    cells[0] = head;
    cells[3].append(bar, html("span"));
    return html("tr", "", ...cells);
  };
  rows($("brokers"), brokers, make, (row, { broker, connections, results, cluster }) => {
    const asked = results.hits + results.misses;
    say(row.cells[0], cluster === "down" ? `${broker} (cut off from the cluster)` : broker);
    say(row.cells[1], count(connections));
    say(row.cells[2], percent(asked ? results.hits / asked : null));
    const [bar, text] = row.cells[3].children;
    bar.firstElementChild.style.width = `${results.budget ? Math.min(100, (100 * results.bytes) / results.budget) : 0}%`;
    say(text, `${bytes(results.bytes)} of ${bytes(results.budget)}`);
    say(row.cells[4], results.policy);
  });
}

function showReports(reports) {
  const newest = [...reports].sort((a, b) => a.age_s - b.age_s).slice(0, NEWEST);
  const make = () => html("tr", "", html("td", "kind"), html("td", "number"), html("td"), html("td", "number"));
  rows($("reports"), newest, make, (row, report) => {
    const [kind, severity, place, old] = row.cells;
    if (kind.dataset.kind !== report.kind) {
      kind.dataset.kind = report.kind;
      kind.replaceChildren(map.symbolOf(report.kind), words(report.kind));
    }
    say(severity, count(report.severity));
    say(place, map.placeOf(report));
    say(old, age(report.age_s));
  });
}

document.addEventListener("visibilitychange", look);
setInterval(look, EVERY_MS);
look();
