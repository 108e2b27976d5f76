"""Small traces for the lab, and commands that share one Spark."""
