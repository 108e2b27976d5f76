"""The command `newsstand`: one thin module per group of commands."""
