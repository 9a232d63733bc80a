"""A cluster driven by hand: actions in, facts out. Pure; the page ``play`` runs it in a browser (docs/play.md)."""
