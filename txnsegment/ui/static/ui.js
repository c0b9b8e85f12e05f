"use strict";
// Replaces the content of the page by the server's newest one, every two seconds while the page is visible. Text that is being
// selected or typed stays.

const EVERY = 2000;
const lost = document.getElementById("lost");

function isBusy() {
  const chosen = document.getSelection();
  const typing = document.activeElement instanceof HTMLInputElement;
  return document.hidden || typing || (chosen !== null && !chosen.isCollapsed);
}

function replaceMain(text) {
  const next = new DOMParser().parseFromString(text, "text/html").querySelector("main");
  const main = document.querySelector("main");
  const links = [...main.querySelectorAll("a, button")];
  const focused = links.indexOf(document.activeElement);
  main.replaceChildren(...next.childNodes);
  if (focused >= 0) {
    main.querySelectorAll("a, button")[focused]?.focus({ preventScroll: true });
  }
}

async function refresh() {
  if (!isBusy()) {
    try {
      const answer = await fetch(location.href, { cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(10000) });
      if (answer.type === "opaqueredirect") {
        location.reload(); // the server was started again, and asks for its token
        return;
      }
      if (!answer.ok) {
        throw new Error(`status ${answer.status}`);
      }
      replaceMain(await answer.text());
      lost.hidden = true;
    } catch {
      lost.hidden = false;
    }
  }
  setTimeout(refresh, EVERY);
}

setTimeout(refresh, EVERY);
