"""Finds English prose that shows on a page in Chinese: texts, titles and labels."""

from __future__ import annotations

import json

from tests.integration.chromium import Page

_ENGLISH = """
(() => {
  const found = [], few = /[a-z]{2} [a-z]{2}/, several = /[a-z]{2} [a-z]{2,} [a-z]{2}/; // beside Chinese
  const isEnglish = text => (/[\\u4e00-\\u9fff]/.test(text) ? several : few).test(text);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const noProse = "script, pre, code, .copy, #sequence, #flight .text, .flies";
  const isProse = node => !node.closest(noProse) && node.checkVisibility();
  while (walker.nextNode()) {
    const text = walker.currentNode.nodeValue;
    if (isEnglish(text) && isProse(walker.currentNode.parentElement)) found.push(text);
  }
  for (const name of ["title", "aria-label", "placeholder"])
    for (const node of document.querySelectorAll(`[${name}]`))
      if (isEnglish(node.getAttribute(name)) && isProse(node)) found.push(node.getAttribute(name));
  return JSON.stringify(found);
})()
"""
_NOTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => 0)"


def english_in(page: Page) -> list[str]:
    """Return the English texts of the drawn page; commands are no prose."""
    page.run(_NOTED)
    found: list[str] = json.loads(page.run(_ENGLISH))
    return found
