"""Commands that start or administer servers."""
