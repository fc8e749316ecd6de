"use strict";
// The server sends the page anew whenever there is news; after the last of it, this page stays as it is.
const events = new EventSource("events");
const content = document.getElementById("content");
let heard = performance.now(), ended = false;

function show(news) {
  const told = JSON.parse(news.data);
  content.innerHTML = told.content;
  document.title = told.title;
  heard = performance.now();
  look();
}

function note() {
  const place = document.getElementById("news");
  if (!place || ended) return;
  const seconds = Math.round((performance.now() - heard) / 1000);
  const lost = events.readyState !== EventSource.OPEN;
  place.textContent = lost ? `no connection; this is the state ${seconds} s ago` :
    seconds < 5 ? "" : place.dataset.quiet.replace("#", seconds);
}

events.addEventListener("state", show);
events.addEventListener("end", news => { ended = true; events.close(); show(news); });
setInterval(note, 1000);
