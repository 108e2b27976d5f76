"""The compiled twins of the page caches, for replay."""
