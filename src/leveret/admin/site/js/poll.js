// Asking again and again: one question in flight, none while the tab is hidden or the reader has paused, and never so often
// that the broker is busy with the answers.

import { ApiError } from "./api.js";

export const INTERVALS_S = [1, 2, 5, 10, 30];
const SHARE_MAX = 10; // an answer that took 1 s is not asked for again before 10 s have passed
const RETRY_MS = [250, 500, 1000, 2000];

/** What the reader chose; dispatches "change", and "now" when he will not wait. */
export const pace = Object.assign(new EventTarget(), {
  intervalS: Number(localStorage.getItem("leveret.interval")) || 5,
  isPaused: false,
  set(intervalS) {
    this.intervalS = intervalS;
    localStorage.setItem("leveret.interval", intervalS);
    this.dispatchEvent(new Event("change"));
  },
  pause(isPaused) {
    this.isPaused = isPaused;
    this.dispatchEvent(new Event("change"));
  },
});

/** Calls ask(signal) at once and then at the reader's pace, until signal aborts. told(error): of failures, null when it is well again. */
export class Poll {
  constructor(ask, { signal, told = () => {}, everyS = null }) {
    this.ask = ask;
    this.signal = signal;
    this.told = told;
    this.everyS = everyS;
    this.failures = 0;
    this.asking = null; // the AbortController of the question on its way
    this.isHeld = false;
    this.isWanted = false;
    this.timer = null;
    this.dueMs = 0;
    document.addEventListener("visibilitychange", () => this.plan(), { signal });
    pace.addEventListener(
      "change",
      () => {
        this.dueMs = Math.min(this.dueMs, performance.now() + this.intervalMs());
        this.plan();
      },
      { signal },
    );
    pace.addEventListener("now", () => this.now(), { signal });
    signal.addEventListener("abort", () => this.hold());
    this.now();
  }

  /** Ask now, or as soon as the question on its way is answered. */
  async now() {
    if (this.isHeld) return;
    if (this.asking) {
      this.isWanted = true;
      return;
    }
    clearTimeout(this.timer);
    const { signal } = (this.asking = new AbortController());
    this.isWanted = false;
    const began = performance.now();
    try {
      await this.ask(signal);
      this.failures = 0;
      if (!signal.aborted) this.told(null);
    } catch (error) {
      if (!signal.aborted && error.name !== "AbortError") {
        if (!(error instanceof ApiError)) console.error(error);
        this.failures += 1;
        this.told(error);
      }
    } finally {
      this.asking = null;
      this.dueMs = performance.now() + this.pauseMs(performance.now() - began);
    }
    if (this.isWanted) this.now();
    else this.plan();
  }

  /** Ask nothing until resume(); the question on its way needs no answer. */
  hold() {
    this.isHeld = true;
    clearTimeout(this.timer);
    this.asking?.abort();
  }

  resume() {
    this.isHeld = this.signal.aborted;
    this.now();
  }

  intervalMs() {
    return (this.everyS ?? pace.intervalS) * 1000;
  }

  pauseMs(tookMs) {
    if (this.failures) return RETRY_MS[Math.min(this.failures, RETRY_MS.length) - 1];
    return Math.max(this.intervalMs(), tookMs * SHARE_MAX);
  }

  plan() {
    clearTimeout(this.timer);
    if (this.asking || this.isHeld || document.hidden || (pace.isPaused && !this.failures)) return;
    this.timer = setTimeout(() => this.now(), Math.max(0, this.dueMs - performance.now()));
  }
}
