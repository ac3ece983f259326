"use strict";
const form = document.getElementById("form"), state = document.getElementById("state");
const error = document.getElementById("error"), answer = document.getElementById("answer");
const shown = document.getElementById("shown"), button = form.querySelector("button");
const ENDINGS = {html: "html", markdown: "md", csv: "csv", json: "json"};
let asked = null;

fetch("/api/v1/models").then(r => r.json()).then(models => {
  for (const name of [...models.builtin, ...models.graphs]) {
    document.getElementById("names").append(new Option(name, name));
  }
}).catch(() => {});

for (const side of ["left", "right"]) {
  const graph = form.elements[`${side}-graph`], name = form.elements[`${side}-name`];
  form.elements[`${side}-file`].addEventListener("change", async event => {
    const file = event.target.files[0];
    if (file) { graph.value = await file.text(); name.value = ""; }
  });
  // the one that was written last counts
  graph.addEventListener("input", () => { if (graph.value.trim()) name.value = ""; });
  name.addEventListener("input", () => { if (name.value.trim()) graph.value = ""; });
}

function model(side) {
  const text = form.elements[`${side}-graph`].value.trim(), name = form.elements[`${side}-name`].value.trim();
  const which = side === "left" ? "first" : "second";
  if (!text && !name) throw new Error(`Name the ${which} model, or paste its graph.`);
  if (!text) return name;
  try { return JSON.parse(text); } catch (problem) {
    throw new Error(`The ${which} graph is not JSON: ${problem.message}`);
  }
}

async function ask(format) {
  const response = await fetch(`/api/v1/compare?format=${format}`, {
    method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(asked),
  });
  const text = await response.text();
  if (response.ok) return text;
  let said = `The service answered ${response.status}.`;
  try { said = JSON.parse(text).error || said; } catch { /* not an answer of the service */ }
  throw new Error(said);
}

function say(problem) {
  const lost = problem instanceof TypeError;
  error.textContent = lost ? "The service cannot be reached; is it still running?" : problem.message;
  error.hidden = false;
}

async function working(words, work) {
  error.hidden = true;
  state.textContent = words;
  button.disabled = true;
  try { await work(); } catch (problem) { say(problem); }
  state.textContent = "";
  button.disabled = false;
}

form.addEventListener("submit", event => {
  event.preventDefault();
  working("Working …", async () => {
    answer.hidden = true;
    const batch = Number(form.elements.batch.value);
    asked = {left: model("left"), right: model("right"), assumptions: {batch}};
    shown.srcdoc = await ask("html");
    answer.hidden = false;
    answer.scrollIntoView();
  });
});

shown.addEventListener("load", () => {
  const page = shown.contentDocument && shown.contentDocument.documentElement;
  if (page) shown.style.height = `${page.scrollHeight + 16}px`;
});
addEventListener("resize", () => shown.dispatchEvent(new Event("load")));

for (const one of document.querySelectorAll("[data-format]")) {
  one.addEventListener("click", () => working("Fetching …", async () => {
    const text = await ask(one.dataset.format), link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text]));
    link.download = `comparison.${ENDINGS[one.dataset.format]}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }));
}
