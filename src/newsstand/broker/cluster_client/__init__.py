"""The broker's side of the data cluster: HTTP client and webhook."""
