// What scrolls sideways on a narrow screen can be reached and scrolled with the keyboard.
for (const one of document.querySelectorAll(".highlight pre, .table-wrapper, math, .math")) {
  one.tabIndex = 0;
}
