"""Charts as plain Vega-Lite specifications, drawn by Altair."""
