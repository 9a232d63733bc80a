"""The brokers' own code in a browser: a static page whose worker runs Python as WebAssembly (docs/play.md)."""
