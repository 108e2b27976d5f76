"""The live dashboard: a page in the browser that shows a running platform and switches its policy."""
