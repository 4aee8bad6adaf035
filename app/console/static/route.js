// The page and its query, in the address: every view can be linked to, and the browser's back works.

import { useEffect, useState } from "preact/hooks";

const BASE = new URL(".", location.href);
const listeners = new Set();

export const PAGES = ["gate", "tools", "chat", "servers", "calls", "approvals", "spending", "keys", "connect", "configuration"];

export function where() {
  const name = location.pathname.slice(location.pathname.lastIndexOf("/") + 1);
  return { page: PAGES.includes(name) ? name : "gate", query: Object.fromEntries(new URLSearchParams(location.search)) };
}

export function href(page, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const search = new URLSearchParams(given).toString();
  return new URL(page === "gate" ? "./" : page, BASE).pathname + (search ? `?${search}` : "");
}

// *replace*: the same place, seen a little otherwise, such as another letter in a search.
export function go(page, query, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", href(page, query));
  listeners.forEach((listener) => listener());
}

addEventListener("popstate", () => listeners.forEach((listener) => listener()));

export function useRoute() {
  const [route, setRoute] = useState(where);
  useEffect(() => {
    const listener = () => setRoute(where());
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return route;
}

// For links: what the browser does with a plain click, done here; with a modifier it does it itself.
export const followed = (page, query) => (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(page, query);
};
