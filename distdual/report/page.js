"use strict";
// Tooltips of charts; positions and texts are in the charts' attributes.
const tip = document.body.appendChild(document.createElement("div"));
tip.className = "tip";
tip.hidden = true;
let pointer = null;

function look() {
  document.querySelectorAll(".hair.on").forEach(hair => hair.classList.remove("on"));
  const svg = pointer && document.elementFromPoint(pointer.x, pointer.y)?.closest("svg[data-at]");
  tip.hidden = !svg;
  if (!svg) return;
  const points = JSON.parse(svg.dataset.at), box = svg.getBoundingClientRect();
  const x = (pointer.x - box.left) * svg.viewBox.baseVal.width / box.width;
  const nearest = points.reduce((best, point, at) => Math.abs(point - x) < Math.abs(points[best] - x) ? at : best, 0);
  const hair = svg.querySelector(".hair");
  hair.setAttribute("x1", points[nearest]);
  hair.setAttribute("x2", points[nearest]);
  hair.classList.add("on");
  tip.textContent = JSON.parse(svg.dataset.tips)[nearest];
  const left = pointer.x + 16 + tip.offsetWidth > innerWidth ? pointer.x - 12 - tip.offsetWidth : pointer.x + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, pointer.y - tip.offsetHeight - 10)}px`;
}

for (const kind of ["pointermove", "pointerdown"])
  addEventListener(kind, event => { pointer = { x: event.clientX, y: event.clientY }; look(); });
document.addEventListener("pointerleave", () => { pointer = null; look(); });
addEventListener("scroll", look, { passive: true });
