"""The data cluster: what comes in, what it matches, what comes out (bad2018, section III)."""
