"use strict";
(() => {
  // Copy buttons. Where the clipboard is refused, the text is selected: one key copies it.
  function select(element) {
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    element.focus();
  }

  async function copy(button) {
    const shown = button.previousElementSibling;
    const text = button.dataset.copy || shown.textContent;
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      if (shown) {
        shown.hidden = false;
        if (button.dataset.copy) shown.textContent = text;
        select(shown);
      }
      said = "Selected";
    }
    const label = button.firstChild;
    const before = button.dataset.label || label.textContent;
    button.dataset.label = before;
    label.textContent = said;
    clearTimeout(Number(button.dataset.timer));
    button.dataset.timer = setTimeout(() => { label.textContent = before; }, 2000);
  }

  document.querySelectorAll("button[data-copy]").forEach((button) => { button.hidden = false; });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copy]");
    if (button) copy(button);
  });

  // On paper everything is open. (The style sheet does it where a browser prints without scripts.)
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((each) => { each.open = false; }));
})();
