// Numbers as people read them. What is not known is a dash.

const UNKNOWN = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

const known = (value) => typeof value === "number" && Number.isFinite(value);
const short = (value) => (Math.abs(value) < 10 ? tenths : whole).format(value);

export const count = (value) => (known(value) ? whole.format(value) : UNKNOWN);
export const percent = (ratio) => (known(ratio) ? `${tenths.format(100 * ratio)} %` : UNKNOWN);
export const rate = (value) => (known(value) ? `${short(value)} a second` : "");

export function milliseconds(value) {
  if (!known(value)) return UNKNOWN;
  return value < 1000 ? `${short(value)} ms` : `${short(value / 1000)} s`;
}

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${(unit === 0 || value >= 100 ? whole : tenths).format(value)} ${units[unit]}`;
}

export function clock(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const all = Math.max(0, Math.floor(seconds));
  const minutes = Math.floor(all / 60);
  const padded = String(all % 60).padStart(2, "0");
  return minutes < 60
    ? `${minutes}:${padded}`
    : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${padded}`;
}

export const age = (seconds) => (seconds < 90 ? `${count(seconds)} s` : `${count(seconds / 60)} min`);
export const words = (name) => String(name).replaceAll("_", " ");

const WINDS = ["north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west"];

/** Where a place lies, seen from the centre: both in kilometres. */
export function direction(east, north) {
  const far = Math.hypot(east, north);
  if (far < 0.5) return "in the centre";
  const wind = Math.round(Math.atan2(east, north) / (Math.PI / 4) + 8) % 8;
  return `${short(far)} km ${WINDS[wind]}`;
}
