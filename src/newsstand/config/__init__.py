"""Configuration: TOML tables, environment and options, read with units and checked."""
