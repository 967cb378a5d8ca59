// Make the site usable with a keyboard and a screen reader.
function makeScrollable() {
  // Code and tables that are wider than the page scroll with the arrow keys only if they can have the focus.
  for (const box of document.querySelectorAll("pre, .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
  makeScrollable();
});
// Fonts and copy buttons can change widths after the document is parsed.
window.addEventListener("load", makeScrollable);
window.addEventListener("resize", makeScrollable);
