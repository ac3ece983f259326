"use strict";
// Search, filters, sorting and the mark in the contents. Everything else on the page works without this script.
(() => {
  const form = document.querySelector(".tools");
  const input = form.querySelector("input");
  const buttons = [...form.querySelectorAll("[data-filter]")];
  const hits = form.querySelector(".hits");
  let experiments = null; // read from the page at the first search, so that a long page opens quickly
  const read = () => [...document.querySelectorAll(".experiment")].map((node) => ({
    node,
    rows: [...node.querySelectorAll("tr[data-verdict], tr[data-row]")].map((row) => {
      const box = row.closest(".group, .measured");
      const about = box.querySelector(".title").textContent;
      const origin = box.querySelector(".origin")?.textContent || "";
      const text = [row.textContent, row.dataset.id || "", about, origin, node.querySelector("h3").textContent];
      return { row, verdict: row.dataset.verdict, text: text.join(" | ").replace(/\s+/g, " ").toLowerCase() };
    }),
    boxes: [...node.querySelectorAll(".group, .groups, .measured, .tables"), node.closest(".variant") || []].flat(),
  }));
  const opened = new Map(); // which groups were open before the search opened others

  // The words as one phrase, else each of them whole, else as parts of words: the first that finds anything.
  function finder(query, rows) {
    const asked = query.toLowerCase().replace(/\s+/g, " ").trim();
    if (!asked) return () => true;
    const words = asked.split(" ");
    const whole = (text) => new RegExp(`(?<![\\w.])${text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}(?!\\w|[.,]\\d)`);
    const each = words.map(whole);
    const ways = [
      (text) => whole(asked).test(text),
      (text) => each.every((word) => word.test(text)),
      (text) => words.every((word) => text.includes(word)),
    ];
    return ways.find((way) => rows.some((row) => way(row.text))) || (() => false);
  }

  function apply() {
    const wanted = new Set(buttons.filter((b) => b.getAttribute("aria-pressed") === "true").map((b) => b.dataset.filter));
    const active = input.value.trim() !== "" || wanted.size > 0;
    experiments ??= read();
    const fitting = experiments.flatMap((e) => e.rows).filter((row) => wanted.size === 0 || wanted.has(row.verdict));
    const find = finder(input.value, fitting);
    let shown = 0;
    let all = 0;
    for (const { node, rows, boxes } of experiments) {
      const filled = new Set();
      for (const { row, verdict, text } of rows) {
        const fits = (wanted.size === 0 || wanted.has(verdict)) && find(text);
        row.hidden = active && !fits;
        all += 1;
        if (fits) {
          shown += 1;
          for (let box = row.parentElement; !box.matches(".paper, #experiments"); box = box.parentElement) filled.add(box);
        }
      }
      for (const box of boxes) {
        box.hidden = active && !filled.has(box);
        if (!box.matches("details")) continue;
        if (active && !opened.has(box)) opened.set(box, box.open);
        if (active) box.open = filled.has(box);
        else if (opened.has(box)) box.open = opened.get(box);
      }
      node.hidden = active && filled.size === 0;
    }
    if (!active) opened.clear();
    for (const paper of document.querySelectorAll(".paper")) {
      paper.hidden = active && !paper.querySelector(".experiment:not([hidden])");
    }
    document.body.classList.toggle("filtering", active);
    hits.textContent = active ? `${shown} of ${all} rows` + (shown ? "" : ". Nothing fits; Escape shows all again.") : "";
    remember(wanted);
  }

  // The search stands in the address: a link to it shows the same rows.
  function remember(wanted) {
    const address = new URL(location.href);
    const set = (name, value) => (value ? address.searchParams.set(name, value) : address.searchParams.delete(name));
    set("q", input.value.trim());
    set("show", [...wanted].join(","));
    if (address.href !== location.href) history.replaceState(null, "", address.href);
  }

  function recall() {
    const asked = new URL(location.href).searchParams;
    input.value = asked.get("q") || "";
    const wanted = (asked.get("show") || "").split(",");
    for (const button of buttons) button.setAttribute("aria-pressed", String(wanted.includes(button.dataset.filter)));
    if (input.value || buttons.some((b) => b.getAttribute("aria-pressed") === "true")) apply();
  }

  function clear() {
    input.value = "";
    for (const button of buttons) button.setAttribute("aria-pressed", "false");
    apply();
  }

  // a link into a folded group opens it
  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (document.body.classList.contains("filtering") && target.closest("[hidden]")) clear();
    for (let box = target; box; box = box.parentElement) if (box.matches("details")) box.open = true;
    target.scrollIntoView();
  }

  // Sorting: by number where a cell has one, else by text; empty cells stay last, a third click restores the order.
  function value(row, column) {
    const cell = row.cells[column];
    const text = (cell.querySelector("data")?.value ?? cell.textContent).trim();
    const number = parseFloat(text.replace(/,(?=\d{3})/g, "").replace("−", "-").replace(/^[^\d.+-]+(?=\d)/, ""));
    return { text: text === "–" ? "" : text, number };
  }

  function sort(head) {
    const table = head.closest("table");
    const body = table.tBodies[0];
    table.order ??= [...body.rows];
    const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort") || "none"];
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    if (next === "none") return body.append(...table.order);
    head.setAttribute("aria-sort", next);
    const keyed = table.order.map((row) => [row, value(row, head.cellIndex)]);
    const numbers = keyed.every(([, key]) => key.text === "" || !Number.isNaN(key.number));
    const compare = ([, a], [, b]) => (numbers ? a.number - b.number : a.text.localeCompare(b.text, "en", { numeric: true }));
    const filled = keyed.filter(([, key]) => key.text !== "").sort(compare);
    if (next === "descending") filled.reverse();
    body.append(...filled.map(([row]) => row), ...keyed.filter(([, key]) => key.text === "").map(([row]) => row));
  }

  for (const head of document.querySelectorAll(".verdicts thead th, .measured thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(head));
    head.append(button);
  }

  // the contents mark where one is
  const places = [...document.querySelectorAll(".contents a")].map((link) => [link, document.getElementById(link.hash.slice(1))]);
  let waiting = false;
  function mark() {
    waiting = false;
    let here = places[0];
    for (const place of places) {
      const box = place[1]?.getBoundingClientRect();
      if (box?.height && box.top <= innerHeight / 3) here = place;
    }
    for (const [link] of places) {
      if (link !== here[0]) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "location");
        link.closest(".contents").scrollTop = link.offsetTop - innerHeight / 2;
      }
    }
  }
  addEventListener("scroll", () => {
    if (!waiting) requestAnimationFrame(mark);
    waiting = true;
  }, { passive: true });

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", apply);
  for (const button of buttons) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      apply();
    });
  }
  // a count at the top of the page leads to its rows
  for (const link of document.querySelectorAll("[data-show]")) {
    link.addEventListener("click", () => {
      input.value = "";
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.filter === link.dataset.show));
      apply();
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && document.body.classList.contains("filtering")) clear();
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && document.activeElement !== input) {
      event.preventDefault();
      input.focus();
    }
  });
  addEventListener("hashchange", reveal);
  addEventListener("popstate", recall);
  recall();
  if (location.hash) reveal();
  mark();
})();
