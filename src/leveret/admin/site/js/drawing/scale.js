// An axis of time that shows the next seconds and years at once: its unit grows with the distance from now. Far away and
// zoomed in it is as even as any other. Pure figures.

const S = 1000, MIN = 60 * S, H = 60 * MIN, D = 24 * H, Y = 365 * D;
const NICE = [S, 2 * S, 5 * S, 10 * S, 20 * S, 30 * S, MIN, 2 * MIN, 5 * MIN, 10 * MIN, 20 * MIN, 30 * MIN, H, 2 * H, 4 * H, 8 * H, 12 * H, D, 2 * D, 4 * D, 7 * D,
  14 * D, 30 * D, 60 * D, 120 * D, 240 * D, Y, 2 * Y, 4 * Y];
/** The longest delay there is: 2^28 - 1 seconds, more than 8.5 years; a delayed exchange has up to ten. */
export const LONGEST_MS = 10 * Y;
const EVEN_MS = 10 * S; // up to here a second is as wide as the next one
const LONG = [[Y, "y"], [30 * D, "mo"], [7 * D, "w"], [D, "d"], [H, "h"], [MIN, "min"], [S, "s"]];

/** Milliseconds in one unit, as ticks have it: 30 min, 2 y, 7.9 y. */
export function rough(ms) {
  for (const [unit, word] of LONG) if (ms >= unit && ms % unit === 0 && ms / unit < 100) return `${ms / unit} ${word}`;
  for (const [unit, word] of LONG) if (ms >= unit) return `${(ms / unit).toFixed(1).replace(/\.0$/, "")} ${word}`;
  return `${Math.round(ms)} ms`;
}

/** The least nice span that holds this one. */
export function niceSpan(ms) {
  return [MIN, 10 * MIN, H, 4 * H, D, 7 * D, 30 * D, 120 * D, Y, 4 * Y, LONGEST_MS].find((span) => span >= ms * 1.02) ?? LONGEST_MS;
}

/** From fromMs to untilMs as seen from nowMs (all since 1970); at(ms) and ms(at) with 0 ≤ at ≤ 1. */
export class Scale {
  constructor(nowMs, fromMs, untilMs) {
    Object.assign(this, { nowMs, fromMs, untilMs });
    this.evenMs = Math.min(EVEN_MS, Math.max(1, (untilMs - fromMs) / 6));
    this.low = this.warp(fromMs);
    this.high = this.warp(untilMs);
  }

  warp(ms) {
    return Math.log1p(Math.max(0, ms - this.nowMs) / this.evenMs);
  }

  at(ms) {
    return (this.warp(ms) - this.low) / (this.high - this.low);
  }

  ms(at) {
    return this.nowMs + Math.expm1(this.low + at * (this.high - this.low)) * this.evenMs;
  }

  /** Where so many bars of one width begin and end: whole milliseconds, ascending. Fewer if there are not as many. */
  edges(bars) {
    const found = [Math.round(this.fromMs)];
    for (let bar = 1; bar <= bars; bar += 1) {
      const edge = bar === bars ? Math.round(this.untilMs) : Math.round(this.ms(bar / bars));
      if (edge > found.at(-1)) found.push(edge);
    }
    return found.length > 1 ? found : [found[0], found[0] + 1];
  }

  /** Times with a mark, not closer together than gap (of the whole width): [{at, text}]. */
  ticks(gap) {
    return this.isFar() ? this.dates(gap) : this.distances(gap);
  }

  /** Whether the distance from now says less than the date. */
  isFar() {
    return this.untilMs - this.fromMs < (this.fromMs - this.nowMs) / 2;
  }

  distances(gap) {
    const found = [];
    if (this.fromMs <= this.nowMs) found.push({ at: 0, text: "now" });
    for (const ms of [...NICE, 8 * Y]) {
      const at = this.at(this.nowMs + ms);
      if (this.nowMs + ms < this.fromMs || at > 1 || (found.length && at - found.at(-1).at < gap)) continue;
      found.push({ at, text: rough(ms) });
    }
    return found;
  }

  dates(gap) {
    const span = this.untilMs - this.fromMs, step = [1, 10, 100, ...NICE].find((each) => each / span >= gap) ?? 8 * Y, found = [];
    const shift = new Date(this.fromMs).getTimezoneOffset() * MIN;
    for (let ms = Math.ceil((this.fromMs - shift) / step) * step + shift; ms <= this.untilMs; ms += step) {
      const at = this.at(ms);
      if (!found.length || at - found.at(-1).at >= gap * 0.8) found.push({ at, text: dateText(ms, step) });
    }
    return found;
  }
}

function dateText(ms, step) {
  const at = new Date(ms), two = (each) => String(each).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`, clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (step >= D) return day;
  if (step >= MIN) return `${day.slice(5)} ${clock}`;
  if (step >= S) return `${clock}:${two(at.getSeconds())}`;
  return `${clock}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}
