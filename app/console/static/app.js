// The shell: navigation, colours, sign-in, and one page at a time, loaded when it is opened.

import { Component, h, render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { forget, get, key, passing, post, whenSignedOut } from "./api.js";
import { startLive, stopLive, useLive, useLiveState } from "./live.js";
import { followed, href, useRoute, where } from "./route.js";
import { Announcer, Button, Failure, Fragment, announce, html, plain } from "./ui.js";

const NAV = [
  ["gate", "Gate"],
  ["tools", "Tools"],
  ["chat", "Chat"],
  null,
  ["servers", "Servers", "read"],
  ["calls", "Calls"],
  ["approvals", "Approvals"],
  null,
  ["spending", "Spending", "read"],
  ["keys", "Keys", "read"],
  ["connect", "Connect"],
  ["configuration", "Configuration", "read"],
];

const THEME = "wicketgate.theme";
const AGAIN_MS = 1500;
const ENDED = "The gate does not accept the key of this tab any more. Sign in with another one to go on here.";
const loading = {}, loaded = {}, styles = {};

function Mark() {
  return html`<svg viewBox="0 0 20 20" aria-hidden="true" width="20" height="20">
    <path d="M2 1h3v18H2zM15 1h3v18h-3zM5 4h10v2.4H5z" fill="var(--ink)" />
    <path d="M8 19v-8h4v8z" fill="var(--accent)" />
  </svg>`;
}

function useTheme() {
  const [theme, setTheme] = useState(() => localStorage.getItem(THEME) || "");
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    theme ? localStorage.setItem(THEME, theme) : localStorage.removeItem(THEME);
  }, [theme]);
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return [dark, () => setTheme(dark ? "light" : "dark")];
}

class Boundary extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }
  render({ children }, { error }) {
    if (!error) return children;
    return html`<div class="fail" role="alert">
      <p>This page has failed. Reload it; if it fails again, that is a fault of the console.</p>
      <${Button} onClick=${() => location.reload()}>Reload<//>
    </div>`;
  }
}

// The styles of a page come with it: a page is shown when both are there.
function styled(page) {
  return new Promise((done) => {
    styles[page]?.remove();
    const link = (styles[page] = document.createElement("link"));
    link.rel = "stylesheet";
    link.href = new URL(`pages/${page}.css`, import.meta.url).href;
    link.onload = link.onerror = done;
    document.head.append(link);
  });
}

function load(page) {
  return (loading[page] ??= Promise.all([import(`./pages/${page}.js`), styled(page)]).then(
    ([module]) => (loaded[page] = { view: module.default }),
    () => (loaded[page] = { error: new Error("This page could not be loaded. It is tried again when the gate answers; if it stays so, reload the console.") }),
  ));
}

function Page({ page, shown, ...given }) {
  const [, redraw] = useState(0);
  const found = loaded[page];
  const [tries, setTries] = useState(0);
  // What could not be loaded while the gate was away is loaded when it is there again.
  useLive((event) => {
    if (event !== "begun" || !loaded[page]?.error) return;
    delete loaded[page];
    delete loading[page];
    setTries(tries + 1);
  });
  // The styles of other pages would hold here too.
  useLayoutEffect(() => {
    if (found) for (const [name, link] of Object.entries(styles)) link.media = name === page ? "all" : "not all";
  }, [page, found]);
  useEffect(() => {
    if (found) shown();
  }, [page, found]);
  useEffect(() => {
    if (!loaded[page]) load(page).then(() => redraw((count) => count + 1));
  }, [page, tries]);
  if (!found) return html`<p class="foot" role="status">Loading …</p>`;
  if (found.error) return html`<${Failure} error=${found.error} />`;
  return html`<${Boundary} key=${page}><${found.view} ...${given} /><//>`;
}

function Nav({ page, me, waiting }) {
  const list = useRef();
  // On a narrow screen the pages are a row that is wider than it.
  useEffect(() => {
    const here = list.current?.querySelector("[aria-current]");
    if (here) list.current.scrollLeft = here.parentElement.offsetLeft - (list.current.clientWidth - here.offsetWidth) / 2;
  }, [page, waiting]);
  return html`<nav class="nav" aria-label="Pages"><ul ref=${list}>
    ${NAV.map((entry, place) => {
      if (!entry) return html`<li class="gap" aria-hidden="true" key=${place}></li>`;
      const [name, label, needs] = entry;
      if (needs && !me.may[needs]) return null;
      const count = name === "approvals" && waiting;
      return html`<li key=${name}><a href=${href(name)} aria-current=${page === name ? "page" : null} onClick=${followed(name)}>
        ${label}${!!count && html`<span class="n"><span aria-hidden="true">${count}</span><span class="vh">, ${count} waiting</span></span>`}
      </a></li>`;
    })}
  </ul></nav>`;
}

function useWaiting(me) {
  const [waiting, setWaiting] = useState(0);
  const look = () => get("approvals").then((found) => setWaiting(found.waiting.length), () => {});
  useEffect(() => void look(), [me]);
  useLive((event, data) => {
    if (["approval", "begun", "gap"].includes(event)) look();
    if (event === "approval" && data.change === "new") announce("A call waits for approval.");
  });
  return waiting;
}

function Signed({ me, signOut }) {
  const route = useRoute();
  const [dark, turn] = useTheme();
  const waiting = useWaiting(me);
  const live = useLiveState();
  // Before the title of each page, so that a tab in the background tells of it.
  useEffect(() => {
    const mark = () => {
      const plainTitle = document.title.replace(/^\(\d+\) /, "");
      const wanted = waiting ? `(${waiting}) ${plainTitle}` : plainTitle;
      if (document.title !== wanted) document.title = wanted;
    };
    mark();
    const watch = new MutationObserver(mark);
    watch.observe(document.querySelector("title"), { childList: true });
    return () => watch.disconnect();
  }, [waiting]);
  const main = useRef(null);
  const last = useRef("");
  useEffect(() => {
    startLive();
    return stopLive;
  }, []);
  useEffect(() => scrollTo(0, 0), [route.page]);
  // The reader of a screen is taken to the heading of the new page, as soon as it is there.
  const shown = () => {
    if (last.current && last.current !== route.page) (main.current.querySelector("h1") || main.current).focus({ preventScroll: true });
    last.current = route.page;
  };
  return html`<${Fragment}>
    <a class="skip" href="#main">To the content</a>
    <div class="app">
      <header class="side">
        <a class="mark" href=${href("gate")} onClick=${followed("gate")}><${Mark} />Wicketgate</a>
        <${Nav} page=${route.page} me=${me} waiting=${waiting} />
        <div class="who">
          <b>${plain(me.actor, 100)}</b>${plain(me.permissions.join(", "), 200)}
          <div class="acts">
            <button class="lnk" type="button" onClick=${turn}>${dark ? "Light" : "Dark"} colours</button>
            <button class="lnk" type="button" onClick=${signOut}>Sign out</button>
          </div>
        </div>
      </header>
      <main id="main" tabindex="-1" ref=${main}>
        ${live === "many" && html`<p class="away" role="status">Too many of your tabs follow this gate: this one is not live. Close another.</p>`}
        ${live === "away" && html`<p class="away" role="status">The gate does not answer; what is shown may be old. It is tried again.</p>`}
        <${Page} page=${route.page} shown=${shown} query=${route.query} me=${me} />
      </main>
    </div>
    <${Announcer} />
  <//>`;
}

function SignIn({ told, signIn }) {
  const [text, setText] = useState("");
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) signIn(text.trim());
  };
  useEffect(() => {
    document.title = "Sign in · Wicketgate";
  }, []);
  return html`<main class="signin" id="main">
    <p class="mark"><${Mark} />Wicketgate</p>
    <h1>Sign in</h1>
    <form onSubmit=${submit}>
      <div class="f">
        <label for="key">Key</label>
        <input id="key" type="password" autocomplete="off" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)} autofocus />
        <p>One of the keys of this gate. It is kept in this tab alone, and sent nowhere else.</p>
      </div>
      <div role="alert">${told && html`<p class="told">${told}</p>`}</div>
      <div class="btns"><button class="btn p" type="submit">Sign in</button></div>
    </form>
    <h2>No key yet?</h2>
    <ul class="how">
      <li>A gate without configured keys, such as that of <code>make run</code>, prints a link when it starts: <code>Console: http://…/console/#code=…</code> It signs in once, within ten minutes.</li>
      <li>Who runs the gate makes keys: <code>wicketgate key new --actor ann</code> prints one, and its entry for <code>auth.keys</code>; with <code>--permission 'tools:*'</code> and <code>--permission 'ops:*'</code> it may do all.</li>
    </ul>
  </main>`;
}

// Shown instead of the sign-in while the gate cannot say whose key it is.
const Away = ({ error, signOut }) => html`<main class="signin" id="main">
  <p class="mark"><${Mark} />Wicketgate</p>
  <h1>${error.status ? "The gate is starting or stopping" : "The gate does not answer"}</h1>
  <p class="lede" role="status">This page goes on by itself as soon as it answers. Your key is kept in this tab.</p>
  <p class="foot">If it stays so, the terminal or the log of the gate says why, and <code>/readyz</code> which servers it waits for.</p>
  <div class="btns"><${Button} onClick=${signOut}>Sign out<//></div>
</main>`;

// A link of the form #code=… signs in once; the code is exchanged for the key and leaves the address.
async function exchanged(patiently) {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return "";
  history.replaceState(null, "", location.pathname + location.search);
  try {
    key.set((await patiently(() => post("sign-in", { code }))).key);
    return "";
  } catch (error) {
    return error.status === 401 ? "This link was used, or is too old. Sign in with a key, or start the gate again." : error.message;
  }
}

function App() {
  const [me, setMe] = useState(null);
  const [told, setTold] = useState("");
  const [ready, setReady] = useState(false);
  const [away, setAway] = useState(null);
  const signed = useRef(false);
  signed.current = !!me;
  const leave = (text) => {
    stopLive();
    forget();
    setMe(null);
    setTold(signed.current ? ENDED : text);
  };
  // Tries until the gate is there.
  const patiently = async (act) => {
    for (;;) {
      try {
        return await act();
      } catch (error) {
        if (!passing(error)) throw error;
        setAway(error);
        await new Promise((again) => setTimeout(again, AGAIN_MS));
      }
    }
  };
  const enter = async () => {
    try {
      if (key.get()) setMe(await patiently(() => get("me")));
    } catch (error) {
      if (error.status !== 401) setTold(error.message);
    }
    setAway(null);
    setReady(true);
  };
  useEffect(() => {
    whenSignedOut(leave);
    exchanged(patiently).then((text) => {
      if (text) setTold(text);
      return enter();
    });
  }, []);
  const signIn = (secret) => {
    setTold("");
    key.set(secret);
    enter();
  };
  // Nothing of this caller stays: neither in the tab's storage nor in the memory of the page.
  const signOut = () => {
    sessionStorage.clear();
    location.reload();
  };
  if (away) return html`<${Away} error=${away} signOut=${signOut} />`;
  if (!ready) return html`<div class="app"><header class="side"><p class="mark"><${Mark} />Wicketgate</p></header><main id="main"></main></div>`;
  if (!me) return html`<${SignIn} told=${told} signIn=${signIn} />`;
  return html`<${Signed} me=${me} signOut=${signOut} />`;
}

// While the gate is asked who is there; the shell names the same files.
load(where().page);
render(h(App), document.getElementById("root"));
