"use strict";
(() => {
  // Filters: one list of rules for the table and for the articles below it.
  const form = document.querySelector(".filters");
  const names = ["paper", "verdict", "expected"];
  const count = form.querySelector("output");

  function filter() {
    const wanted = names.map((name) => [name, form.elements[name].value]);
    const show = (element) => {
      element.hidden = wanted.some(([name, value]) => value && element.dataset[name] !== value);
      return !element.hidden;
    };
    const rows = [...document.querySelectorAll(".verdicts tbody tr")];
    const shown = rows.filter(show).length;
    document.querySelectorAll("article").forEach(show);
    document.querySelectorAll("[data-section]").forEach((section) => {
      section.hidden = !section.querySelector("article:not([hidden])");
    });
    count.value = shown === rows.length ? `${shown} claims` : `${shown} of ${rows.length} claims`;
    // Charts that were hidden when the page was drawn had no width until now.
    window.dispatchEvent(new Event("resize"));
  }

  function readAddress() {
    if (!location.hash.includes("=")) return;
    const given = new URLSearchParams(location.hash.slice(1));
    names.forEach((name) => { if (given.has(name)) form.elements[name].value = given.get(name); });
    filter();
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => {
    filter();
    const chosen = names.filter((name) => form.elements[name].value);
    const hash = chosen.map((name) => `${name}=${form.elements[name].value}`).join("&");
    // A filtered page can be linked to; where the browser forbids it, filtering still works.
    try { history.replaceState(null, "", `#${hash}`); } catch { /* nothing to do */ }
  });
  window.addEventListener("hashchange", readAddress);
  form.hidden = false;
  filter();
  readAddress();
})();
