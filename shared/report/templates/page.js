"use strict";
// Search and filters. Everything else on the page works without this script.
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
      const text = [row.textContent, row.dataset.id || "", about, node.querySelector("h3").textContent];
      return { row, verdict: row.dataset.verdict, text: text.join(" ").toLowerCase() };
    }),
    boxes: [...node.querySelectorAll(".group, .measured, .tables, h4")],
  }));
  const opened = new Map(); // which groups were open before the search opened others

  function apply() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(buttons.filter((b) => b.getAttribute("aria-pressed") === "true").map((b) => b.dataset.filter));
    const active = words.length > 0 || wanted.size > 0;
    experiments ??= read();
    let shown = 0;
    let all = 0;
    for (const { node, rows, boxes } of experiments) {
      const filled = new Set();
      for (const { row, verdict, text } of rows) {
        const fits = (wanted.size === 0 || wanted.has(verdict)) && words.every((word) => text.includes(word));
        row.hidden = active && !fits;
        all += 1;
        if (fits) {
          shown += 1;
          for (let box = row.parentElement; box !== node; box = box.parentElement) filled.add(box);
          if (verdict) filled.add(node.querySelector("h4"));
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
  window.addEventListener("hashchange", reveal);
  if (location.hash) reveal();
})();
