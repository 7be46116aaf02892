// The crane: its speed is that of messages, the colour of its load that of the protocol.

import { $, draw, fill } from "./dom.js";

const trolley = { at: 0, speed: 0, failed: false, share: 0, boxes: [] };

export function load(last, ready) {
  const both = (name) => last.remoting[name] + last.grpc[name];
  const messages = both("sent") + both("delivered");
  trolley.speed = messages ? Math.min(0.12 + Math.log10(1 + messages) / 4, 1.6) : 0;
  trolley.share = both("requests") ? last.grpc.requests / both("requests") : 0;
  trolley.failed = both("failed") > 0 || !ready;
}

export function step() {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (!still && trolley.speed) {
    const before = trolley.at;
    trolley.at = (trolley.at + trolley.speed / 60) % 2;
    if (before < 1 && trolley.at >= 1) drop();
  }
  const forth = trolley.at < 1;
  const place = forth ? trolley.at : 2 - trolley.at;
  $("trolley").setAttribute("transform", `translate(${36 + 74 * place} 0)`);
  const box = $("trolley").querySelector(".load");
  box.style.visibility = forth ? "visible" : "hidden";
  box.setAttribute("class", trolley.failed ? "load bad" : "load");
  requestAnimationFrame(step);
}

function drop() {
  trolley.boxes.push(Math.random() < trolley.share ? "grpc" : "remoting");
  if (trolley.boxes.length > 14) trolley.boxes = []; // the ship sails
  fill($("stack"), trolley.boxes.map((kind, index) => draw("rect", { class: kind, x: 78 + (index % 5) * 13, y: 37 - Math.floor(index / 5) * 7, width: 12, height: 6 })));
}
