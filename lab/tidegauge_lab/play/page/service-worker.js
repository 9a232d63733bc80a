// Keeps the page's files, so that it works offline after the first visit. A new version of any file is a new cache.
"use strict";

const VERSION = "{{version}}";
const FILES = {{files}};
const NAME = `tidegauge-play-${VERSION}`;

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(NAME).then((cache) => cache.addAll(FILES)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    for (const name of await caches.keys()) {
      if (name.startsWith("tidegauge-play-") && name !== NAME) await caches.delete(name);
    }
    await self.clients.claim();
  })());
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || new URL(request.url).origin !== self.location.origin) return;
  event.respondWith((async () => {
    const cache = await caches.open(NAME);
    const kept = await cache.match(request, { ignoreSearch: request.mode === "navigate" });
    return kept || fetch(request);
  })());
});
