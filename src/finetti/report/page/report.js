"use strict";
(() => {
  const results = JSON.parse(document.getElementById("data").textContent).results;
  const form = document.querySelector(".filters");
  const names = ["q", "paper", "kind", "check", "verdict", "expected", "changed"].filter((name) => form.elements[name]);
  const choices = names.filter((name) => name !== "q");
  const claims = [...document.querySelectorAll(".claim")];
  const texts = new Map(results.map((each) => [each.id, [
    each.id, each.title, each.statement, each.citation, each.measured, each.erratum, each.note, ...each.controls,
  ].join(" ").toLowerCase()]));
  // What the address says: the view, the filters, and a claim that is shown whatever the filters.
  const state = { view: "claims", claim: "" };

  const chosen = (name) => form.elements[name].value.trim();
  const words = () => chosen("q").toLowerCase().split(/\s+/).filter(Boolean);
  const has = (claim, name, value) => !value || claim.dataset[name].split(" ").includes(value);
  const found = (claim, sought) => sought.every((word) => texts.get(claim.id).includes(word));

  function count(sought) {
    // Beside each choice: how many claims it would leave, with the other filters as they are.
    for (const name of choices) {
      const others = choices.filter((each) => each !== name);
      const left = claims.filter((each) => found(each, sought) && others.every((o) => has(each, o, chosen(o))));
      for (const option of form.elements[name].options) {
        const label = option.dataset.label || "all";
        option.textContent = `${label} (${left.filter((each) => has(each, name, option.value)).length})`;
      }
    }
  }

  function apply() {
    const sought = words();
    let inside = 0;
    let outside = false;
    for (const claim of claims) {
      const fits = found(claim, sought) && choices.every((name) => has(claim, name, chosen(name)));
      const linked = claim.id === state.claim;
      inside += fits;
      outside ||= linked && !fits;
      claim.hidden = !fits && !linked;
      claim.classList.toggle("linked", linked);
    }
    document.querySelectorAll(".paper").forEach((paper) => {
      paper.hidden = !paper.querySelector(".claim:not([hidden])");
    });
    document.querySelectorAll(".view").forEach((view) => { view.hidden = view.dataset.is !== state.view; });
    document.querySelectorAll(".views a").forEach((link) => {
      link.toggleAttribute("aria-current", link.dataset.view === state.view);
    });
    count(sought);
    const all = inside === claims.length ? `${inside} claims` : `${inside} of ${claims.length} claims`;
    form.querySelector("output").value = outside ? `${all}, and ${state.claim}, which the link asks for` : all;
    form.elements.reset.disabled = inside === claims.length && names.every((name) => !chosen(name));
  }

  function writeAddress() {
    const given = new URLSearchParams();
    if (state.view !== "claims") given.set("view", state.view);
    names.forEach((name) => { if (chosen(name)) given.set(name, chosen(name)); });
    const filtered = [...given].length > 0;
    if (state.claim && filtered) given.set("claim", state.claim);
    const hash = filtered ? given.toString() : state.claim;
    // Where the browser forbids it, filtering still works.
    try { history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search); } catch { /* so be it */ }
  }

  function reveal() {
    const claim = state.claim && document.getElementById(state.claim);
    if (!claim) return;
    claim.open = true;
    claim.scrollIntoView({ behavior: "instant" });
    claim.querySelector("summary").focus({ preventScroll: true });
  }

  function readAddress() {
    const hash = location.hash.slice(1);
    if (hash.includes("=")) {
      const given = new URLSearchParams(hash);
      names.forEach((name) => { form.elements[name].value = given.get(name) || ""; });
      state.view = given.get("view") === "errata" ? "errata" : "claims";
      state.claim = texts.has(given.get("claim")) ? given.get("claim") : "";
    } else if (texts.has(decodeURIComponent(hash))) {
      state.view = "claims";
      state.claim = decodeURIComponent(hash);
    } else if (hash === "errata") {
      state.view = "errata";
    } else if (hash) {
      return; // another place of the page
    }
    apply();
    writeAddress();
    if (state.claim) reveal();
    else if (hash.includes("=")) document.querySelector(".views").scrollIntoView({ behavior: "instant" });
  }

  function change() {
    state.claim = "";
    apply();
    writeAddress();
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", change);
  form.elements.reset.addEventListener("click", () => {
    names.forEach((name) => { form.elements[name].value = ""; });
    change();
    form.elements.q.focus();
  });
  form.elements.open.addEventListener("click", () => {
    const shown = claims.filter((claim) => !claim.hidden);
    const open = shown.some((claim) => !claim.open);
    shown.forEach((claim) => { claim.open = open; });
    form.elements.open.textContent = open ? "Close all" : "Open all";
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    form.elements.q.focus();
  });
  addEventListener("hashchange", readAddress);
  // A second click on the same link changes no address, and must still show the claim.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && texts.has(link.hash.slice(1))) {
      state.claim = link.hash.slice(1);
      state.view = "claims";
      apply();
      reveal();
    }
  });

  // Links as others need them, and the data of a claim when it is asked for.
  const here = location.href.split("#")[0];
  document.querySelectorAll(".link pre").forEach((each) => { each.textContent = here + each.textContent; });
  document.querySelectorAll(".json").forEach((each) => {
    each.hidden = false;
    each.addEventListener("toggle", () => {
      const own = results.find((result) => result.id === each.dataset.of);
      each.querySelector("pre").textContent = JSON.stringify(own, null, 1);
    }, { once: true });
  });
  form.hidden = false;
  apply();
  readAddress();
})();
