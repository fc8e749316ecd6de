"use strict";
// Replaces the content with each update from the server; after the last one, the page stays as it is.
const events = new EventSource("events");
const content = document.getElementById("content");
let heard = performance.now(), ended = false;

function show(update) {
  const state = JSON.parse(update.data);
  content.innerHTML = state.content;
  document.title = state.title;
  heard = performance.now();
  look();
}

function note() {
  const line = document.getElementById("news");
  if (!line || ended) return;
  const seconds = Math.round((performance.now() - heard) / 1000);
  const lost = events.readyState !== EventSource.OPEN;
  line.textContent = lost ? `no connection; last update ${seconds} s ago` :
    seconds < 5 ? "" : line.dataset.quiet.replace("#", seconds);
}

events.addEventListener("state", show);
events.addEventListener("end", update => { ended = true; events.close(); show(update); });
setInterval(note, 1000);
