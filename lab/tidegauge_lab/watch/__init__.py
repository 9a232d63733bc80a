"""``tidegauge watch``: the cluster live in a browser. Only its verb imports Starlette and uvicorn."""
