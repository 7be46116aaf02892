// Sortable tables. The order that a reader has chosen stays when the rows are replaced.

import { make } from "./dom.js";

const orders = new Map(); // column and direction by the table's label

// columns: { name, cell(row): Node or text, value(row): what to sort by, number: whether it is one }.
export function table(label, columns, rows, empty = "nothing") {
  const element = make("table", { "aria-label": label });
  const body = make("tbody");
  const head = make("tr");
  const place = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, element);

  const show = () => {
    const order = orders.get(label);
    const shown = order ? sorted(rows, columns[order.column], order.descending) : rows;
    body.replaceChildren(...shown.map((row) => make("tr", {}, columns.map((column) => cell(column, row)))));
    [...head.children].forEach((header, index) => {
      if (order && order.column === index) header.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
      else header.removeAttribute("aria-sort");
    });
  };
  columns.forEach((column, index) => head.append(header(column, () => {
    const order = orders.get(label);
    const descending = order && order.column === index ? !order.descending : Boolean(column.number);
    orders.set(label, { column: index, descending });
    show();
  })));
  element.append(make("thead", {}, head), body);
  show();
  if (!rows.length) place.append(make("p", { class: "faint" }, empty));
  return place;
}

// A note on a list that has not all items; null if it has.
export const cutNote = ({ items, total }, words = "the search finds the others") => (total > items.length ? make("p", { class: "warn" }, `${items.length.toLocaleString()} of ${total.toLocaleString()}: ${words}`) : null);

function header(column, sort) {
  const kind = column.number ? "number" : "text";
  if (!column.value) return make("th", { scope: "col", class: kind }, column.name || make("span", { class: "hidden" }, "action"));
  return make("th", { scope: "col", class: kind }, make("button", { type: "button", class: "sort", onclick: sort }, column.name));
}

function cell(column, row) {
  const found = column.cell ? column.cell(row) : column.value(row);
  const shown = column.number && typeof found === "number" ? found.toLocaleString() : found;
  const kind = column.kind ? column.kind(row) : "";
  return make("td", { class: `${column.number ? "number" : "text"} ${kind}` }, shown instanceof Node ? shown : shown === null || shown === undefined ? "–" : String(shown));
}

function sorted(rows, column, descending) {
  const found = rows.map((row) => [column.value(row), row]);
  found.sort(([one], [other]) => compare(one, other));
  if (descending) found.reverse();
  return found.map(([, row]) => row);
}

// Unknown values come first.
function compare(one, other) {
  if (one === null || one === undefined) return other === null || other === undefined ? 0 : -1;
  if (other === null || other === undefined) return 1;
  return typeof one === "number" ? one - other : String(one).localeCompare(String(other));
}
