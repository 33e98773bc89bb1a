"use strict";
(() => {
  // Charts: drawn when they come into view, in the colors of the page, and again when these change.
  const data = JSON.parse(document.getElementById("data").textContent);
  const specs = data.charts || (data.results || []).flatMap((result) => result.charts);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const night = {
    axis: { labelColor: "#c3cad3", titleColor: "#e6e9ee", domainColor: "#6c7683", tickColor: "#6c7683" },
    legend: { labelColor: "#c3cad3", titleColor: "#e6e9ee" },
    title: { color: "#e6e9ee" },
    header: { labelColor: "#e6e9ee" },
    mark: { color: "#4da3db" },
    style: { reference: { color: "#a0a8b2", stroke: "#a0a8b2" } },
    range: { category: ["#4da3db", "#f08a4b", "#2fc49b", "#de9cc0", "#9ad6f7", "#f0b93f", "#b0b0b0"] },
  };

  // The newest choice wins at every leaf. (The bundle of Vega leaves its own merge out.)
  function merged(old, given) {
    const inner = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
    if (!inner(old) || !inner(given)) return given;
    const both = { ...old };
    for (const name of Object.keys(given)) both[name] = merged(old[name], given[name]);
    return both;
  }

  function draw(figure) {
    const spec = structuredClone(specs[Number(figure.dataset.chart)]);
    if (spec.mark || spec.layer) {
      spec.width = "container";
      spec.autosize = { type: "fit-x", contains: "padding" };
    }
    spec.description = figure.nextElementSibling.alt;
    const narrow = figure.clientWidth < 520 ? { legend: { orient: "bottom" } } : {};
    spec.config = merged(merged(spec.config || {}, narrow), dark.matches ? night : {});
    const actions = { export: true, source: false, compiled: false, editor: false };
    // `ast`: expressions are interpreted, so that the page needs no right to evaluate text as code.
    return vegaEmbed(figure, spec, { actions, ast: true, renderer: "svg", downloadFileName: "chart" })
      .then(() => figure.parentElement.classList.add("drawn"))
      .catch((error) => { figure.hidden = true; console.error(error); });
  }

  const seen = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      observer.unobserve(entry.target);
      seen.add(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "400px 0px" });
  document.querySelectorAll("[data-chart]").forEach((figure) => observer.observe(figure));
  dark.addEventListener("change", () => seen.forEach(draw));
})();
