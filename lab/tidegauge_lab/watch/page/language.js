// The page's language: the address's (?lang=zh), else the browser's; a button at the top changes it.
"use strict";

const LANGUAGES = { en: "English", zh: "中文" };
const language = (() => {
  const chosen = new URLSearchParams(window.location.search).get("lang") || navigator.language.slice(0, 2);
  return Object.hasOwn(LANGUAGES, chosen) ? chosen : "en";
})();

document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
document.getElementById("other-language").textContent = LANGUAGES[language === "zh" ? "en" : "zh"];
document.getElementById("other-language").addEventListener("click", () => {
  const other = new URL(window.location.href);
  other.searchParams.set("lang", language === "zh" ? "en" : "zh");
  window.location.assign(other);
});
