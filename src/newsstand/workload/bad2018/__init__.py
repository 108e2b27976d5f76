"""The broker workload of bad2018."""
