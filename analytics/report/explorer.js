// Drill-down of the report: series of one value, or all values of a dimension stacked, in a range of time.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const COLOURS = ["#2f7ebc", "#e8743b", "#1a9c6e", "#b05bb0", "#c9a227", "#56b4e9", "#8a6d5a", "#7a8794"];
  const times = Array.from({ length: data.points }, (_, place) => data.begin + place * data.step);
  const end = data.begin + data.points * data.step;
  const state = { dimension: "topic", value: "", from: data.begin, to: end };
  const find = (id) => document.getElementById(id);
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const element = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const short = (value) => {
    for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(value) >= size) return +(value / size).toPrecision(3) + " " + letter;
    return String(+value.toPrecision(3));
  };
  const percent = (part, whole) => (whole ? (100 * part / whole).toPrecision(2) * 1 + " %" : "–");
  const series = (values, measure) => values[measure] || new Array(data.points).fill(0);
  const clock = new Intl.DateTimeFormat("en-GB", { timeZone: data.zone, weekday: "short", day: "numeric",
    month: "short", hour: "2-digit", minute: "2-digit" });
  const when = (seconds) => clock.format(new Date(seconds * 1000));
  const sum = (values, measure) => {
    let total = 0;
    const numbers = values[measure];
    if (numbers) for (let place = 0; place < data.points; place++)
      if (times[place] + data.step > state.from && times[place] < state.to) total += numbers[place];
    return total;
  };

  let plots = [];
  const plot = (title, unit, lines, filled) => {
    const figure = element("figure", "");
    figure.append(element("figcaption", `${title} (${unit})`));
    find("plots").append(figure);
    return () => fill(figure, lines, filled);
  };
  const day = new Intl.DateTimeFormat("en-GB", { timeZone: data.zone, day: "numeric", month: "short" });
  const minute = new Intl.DateTimeFormat("en-GB", { timeZone: data.zone, hour: "2-digit", minute: "2-digit" });
  const tick = (seconds, place) => {
    const date = new Date(seconds * 1000), text = minute.format(date);
    return text === "00:00" ? day.format(date) : place ? text : `${text}\n${day.format(date)}`;
  };
  const fill = (figure, lines, filled) => {
    const axis = { stroke: style("--faint"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false } };
    const colour = (place) => COLOURS[place % COLOURS.length];
    let numbers = lines.map(([, values]) => values);
    let bands;
    if (filled && lines.length > 1) {
      // The first value lies on top of the others.
      const sums = new Array(data.points).fill(0);
      numbers = numbers.reverse().map((values) => values.map((value, place) => (sums[place] += value || 0))).reverse();
      bands = numbers.slice(1).map((_, place) => ({ series: [place + 1, place + 2] }));
    }
    const options = {
      width: Math.max(figure.clientWidth, 260), height: 200, bands,
      cursor: { sync: { key: "gantry" }, drag: { x: true, y: false } },
      legend: { show: true, live: !bands },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), data.zone),
      scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(low || 0, 0), high > 0 ? high * 1.05 : 1] } },
      axes: [{ ...axis, space: 70, values: (_, ticks) => ticks.map(tick) }, { ...axis, size: 64, values: (_, ticks) => ticks.map(short) }],
      series: [{ label: "time", value: (_, seconds) => (seconds == null ? "–" : when(seconds)) }, ...lines.map(([label], place) => ({
        label, stroke: colour(place), width: bands ? 0.5 : 1.5, fill: filled ? colour(place) + (bands ? "cc" : "33") : undefined,
        value: (_, value) => (value == null ? "–" : short(value)), points: { show: false },
      }))],
      hooks: { setSelect: [(self) => {
        if (self.select.width < 4) return;
        state.from = self.posToVal(self.select.left, "x");
        state.to = self.posToVal(self.select.left + self.select.width, "x");
        draw();
      }] },
    };
    const from = times.findIndex((time) => time + data.step > state.from);
    const last = times.findLastIndex((time) => time < state.to);
    const cut = (values) => values.slice(from, Math.max(last, from + 1) + 1);
    const made = new uPlot(options, [cut(times), ...numbers.map(cut)], figure);
    made.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    plots.push(made);
  };

  const share = (values, part, whole) => {
    const parts = series(values, part), wholes = series(values, whole);
    return parts.map((value, place) => (wholes[place] ? 100 * value / wholes[place] : null));
  };
  const perSecond = (numbers) => numbers.map((value) => value / data.step);
  const backlog = (values) => {
    let waiting = 0;
    const taken = series(values, "taken");
    return series(values, "due").map((due, place) => (waiting = Math.max(waiting + due - taken[place], 0)));
  };

  const drawPlots = () => {
    plots.forEach((each) => each.destroy());
    plots = [];
    find("plots").replaceChildren();
    const every = data.dimensions[state.dimension];
    const chosen = every[state.value];
    if (!chosen) {
      const names = Object.keys(every).filter((name) => name !== "others");
      names.sort((one, other) => sum(every[other], "requests") - sum(every[one], "requests"));
      const stacked = (measure) => {
        const lines = names.slice(0, 7).map((name) => [name, perSecond(series(every[name], measure))]);
        const rest = [...names.slice(7), ...("others" in every ? ["others"] : [])];
        if (rest.length) {
          const others = new Array(data.points).fill(0);
          for (const name of rest) series(every[name], measure).forEach((value, place) => (others[place] += value));
          lines.push(["others", perSecond(others)]);
        }
        return lines;
      };
      finish([plot("Requests", "per second", stacked("requests"), true),
        plot("Failed requests", "per second", stacked("failed"), true)]);
      return;
    }
    const made = [plot("Requests", "per second", [["requests", perSecond(series(chosen, "requests"))]], true),
      plot("Failed and slow", "% of requests", [["failed", share(chosen, "failed", "requests")],
        ["slow", share(chosen, "slow", "requests")]], false)];
    const messages = [["sent", "sent"], ["due", "due"], ["taken", "taken"], ["received", "received"],
      ["redelivered", "redelivered"], ["dead letters", "buried"]].filter(([, name]) => chosen[name])
      .filter(([, name]) => name !== "received" || !chosen.taken);
    if (messages.length)
      made.push(plot("Messages", "per second", messages.map(([label, name]) => [label, perSecond(chosen[name])]), false));
    if (chosen.due) made.push(plot("Backlog, estimated", "messages", [["waiting", backlog(chosen)]], true));
    finish(made);
  };
  // Charts get their width once all of them are in the grid.
  const finish = (made) => made.forEach((each) => each());

  const drawValues = () => {
    const every = data.dimensions[state.dimension];
    const rows = Object.entries(every).map(([name, values]) => ({ name, requests: sum(values, "requests"),
      failed: sum(values, "failed"), slow: sum(values, "slow"), received: sum(values, "received") }));
    rows.sort((one, other) => (other.name === state.value) - (one.name === state.value) || other.requests - one.requests);
    const body = find("values").tBodies[0];
    body.replaceChildren(...rows.slice(0, 15).map((row) => {
      const line = element("tr", "");
      const name = element("td", "");
      const button = element("button", row.name, { type: "button", "aria-pressed": row.name === state.value });
      button.addEventListener("click", () => choose({ value: state.value === row.name ? "" : row.name }));
      name.append(button);
      line.append(name, ...[short(row.requests), percent(row.failed, row.requests), percent(row.slow, row.requests),
        short(row.received)].map((text) => element("td", text, { class: "number" })));
      return line;
    }));
    find("value").replaceChildren(element("option", `all ${rows.length}`, { value: "" }),
      ...rows.map((row) => element("option", row.name, { value: row.name })));
    find("value").value = state.value in every ? state.value : "";
    find("values").tHead.rows[0].cells[0].textContent = state.dimension;
  };

  const drawLineage = () => {
    const all = data.lineage.topics;
    const own = (topic) => ({ topic: topic.name, tenant: topic.name.split("%")[0] })[state.dimension] === state.value
      || (state.dimension === "group" && topic.groups.some((group) => group.name === state.value))
      || (state.dimension === "client" && (topic.producers.busiest.some((each) => each.name === state.value)
        || topic.groups.some((group) => group.consumers.busiest.some((each) => each.name === state.value))));
    const some = state.value ? all.filter(own) : [];
    const topics = (some.length ? some : all).slice(0, some.length ? 6 : 14);
    const detailed = topics.length <= 2 && some.length > 0;
    const width = 1000, row = 26, parts = [];
    let y = 10;
    const scale = (rate) => 1 + 11 * Math.sqrt(rate / Math.max(...topics.map((topic) => topic.rate), 1e-9));
    const clip = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
    const svg = (name, attributes, text = "") => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      made.textContent = text;
      parts.push(made);
    };
    const edge = (x1, y1, x2, y2, rate, lost = false) => svg("path", { d: `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`,
      "stroke-width": scale(rate), class: lost ? "lost" : "" });
    const change = (each) => {
      const ratio = each.before > 0 ? each.after / each.before : Infinity;
      return ratio > 1.5 ? " ↑" : ratio < 0.67 ? " ↓" : "";
    };
    for (const topic of topics) {
      const left = detailed ? topic.producers.busiest.map((each) => [each.name, each.rate]) :
        [[`${topic.producers.count} producer${topic.producers.count === 1 ? "" : "s"}`, topic.rate]];
      const right = topic.groups.length ? topic.groups.map((group) => [`${clip(group.name, 30)}, ${group.consumers.count} consumer${group.consumers.count === 1 ? "" : "s"}`, group]) : [];
      const height = Math.max(left.length, right.length, 1) * row;
      const middle = y + height / 2;
      left.forEach(([name, rate], place) => {
        const at = y + (place + 0.5) * height / left.length;
        svg("text", { x: 250, y: at + 4, "text-anchor": "end" }, clip(name, 34));
        edge(258, at, 350, middle, rate);
      });
      svg("text", { x: 355, y: middle + 4 }, `${clip(topic.name, 30)}  ${short(topic.rate)}/h${change(topic)}`);
      right.forEach(([name, group], place) => {
        const at = y + (place + 0.5) * height / right.length;
        edge(600, middle, 690, at, group.rate, group.rate < 0.5 * topic.rate);
        svg("text", { x: 696, y: at + 4 }, `${name}  ${short(group.rate)}/h${change(group)}`);
      });
      if (!right.length) svg("text", { x: 610, y: middle + 4, class: "faint" }, "nobody takes these messages");
      y += height + 4;
    }
    const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    picture.setAttribute("viewBox", `0 0 ${width} ${y + 10}`);
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", "Producers, topics and groups");
    picture.append(...parts);
    find("graph").replaceChildren(picture);
    const rest = all.length - topics.length;
    find("graph-note").textContent = (some.length ? `Of ${state.dimension} ${state.value}. ` : "The busiest topics. ")
      + (rest && !some.length ? `${rest} more: choose one above. ` : "")
      + "Messages per hour; ↑ and ↓: the second half of the time had half as many more, or a third less.";
  };

  const draw = () => {
    find("dimension").value = state.dimension;
    const whole = state.from <= data.begin && state.to >= end;
    find("range").textContent = `${when(Math.max(state.from, data.begin))} – ${when(Math.min(state.to, end))} (${data.zone})`;
    find("whole").disabled = whole;
    if (whole) find("last").value = "0";
    else if (Number(find("last").value) !== end - state.from) find("last").value = "";
    drawValues();
    drawPlots();
    drawLineage();
  };
  const choose = (changes) => {
    Object.assign(state, changes);
    draw();
  };
  find("dimension").addEventListener("change", (event) => choose({ dimension: event.target.value, value: "" }));
  find("value").addEventListener("change", (event) => choose({ value: event.target.value }));
  find("whole").addEventListener("click", () => choose({ from: data.begin, to: end }));
  find("last").addEventListener("change", (event) => {
    const seconds = Number(event.target.value);
    choose({ from: seconds ? end - seconds : data.begin, to: end });
  });
  document.querySelectorAll("[data-incident]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => {
      const incident = data.incidents[Number(button.dataset.incident)];
      const around = Math.max(incident.end - incident.start, 6 * data.step);
      choose({ dimension: incident.dimension || "topic", value: incident.value || "",
        from: Math.max(incident.start - around, data.begin), to: Math.min(incident.end + around / 2, end) });
      find("explore").scrollIntoView({ behavior: "smooth" });
    });
  });
  find("explore").hidden = false;
  find("lineage").hidden = false;
  draw();
  let waiting;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(draw, 200); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
