"""The edge broker: notifies subscribers, and caches results, pages and messages for them."""
