"""Commands for publications, channels, pages and the log."""
