"""The broker coordination service: who the brokers are, and who belongs to which (bad2018, III.B and VI)."""
