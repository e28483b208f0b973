// What a deck does: formulas, and another slide by the keys of a presenter.
addEventListener("DOMContentLoaded", () => {
  renderMathInElement(document.body, {delimiters: [
    {left: "\\(", right: "\\)", display: false}, {left: "\\[", right: "\\]", display: true}]});
  const slides = [...document.querySelectorAll("section")];
  // The one in the middle of the window.
  const shown = () => Math.max(0, slides.findIndex((slide) => slide.getBoundingClientRect().bottom > innerHeight / 2));
  const steps = {ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1,
                 Home: -slides.length, End: slides.length};
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("a, summary")) return;
    if (event.key === "n") {
      const notes = slides[shown()].querySelector("details");
      if (notes) notes.open = !notes.open;
    } else if (event.key in steps) {
      event.preventDefault();
      const next = Math.min(slides.length - 1, Math.max(0, shown() + steps[event.key]));
      slides[next].scrollIntoView();
      history.replaceState(null, "", `#${next + 1}`);
    }
  });
});
