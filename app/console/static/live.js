// What happens at the gate while the page is open: one stream for all pages, opened again when it ends.

import { useEffect, useRef, useState } from "preact/hooks";
import { readEvents, send } from "./api.js";

const listeners = new Set();
const AGAIN_MS = [500, 1000, 2000, 5000, 10000];

let state = "off"; // "on"; "away", "many" (tabs of this caller): it is tried again
let ending = null;

function tell(event, data) {
  for (const listener of listeners) listener(event, data);
}

function become(next) {
  if (state === next) return;
  state = next;
  tell("state", next);
}

export const liveState = () => state;

export function startLive() {
  if (ending) return;
  ending = new AbortController();
  run(ending.signal);
}

export function stopLive() {
  ending?.abort();
  ending = null;
  become("off");
}

async function run(signal) {
  let failed = 0;
  while (!signal.aborted) {
    try {
      const response = await send("GET", "events", undefined, { signal });
      if (response.status === 401 || response.status === 403 || response.status === 404) return become("off");
      if (response.status === 429) {
        // Its other tabs follow the gate; one of them may be closed.
        become("many");
        await new Promise((resume) => setTimeout(resume, AGAIN_MS.at(-1)));
        continue;
      }
      if (response.ok) {
        become("on");
        // What happened before, or between two streams, is not in this one.
        tell("begun", {});
        failed = 0;
      }
      await readEvents(response, (event, data) => tell(event, JSON.parse(data)));
    } catch {
      if (signal.aborted) return;
    }
    become("away");
    await new Promise((resume) => setTimeout(resume, AGAIN_MS[Math.min(failed++, AGAIN_MS.length - 1)]));
  }
}

// Calls *take*(event, data) for each event while the component is there.
export function useLive(take) {
  // The newest one from its drawing on: effects come later.
  const newest = useRef(take);
  newest.current = take;
  useEffect(() => {
    const hear = (event, data) => newest.current(event, data);
    listeners.add(hear);
    return () => listeners.delete(hear);
  }, []);
}

export function useLiveState() {
  const [shown, setShown] = useState(state);
  useLive((event, data) => event === "state" && setShown(data));
  return shown;
}
