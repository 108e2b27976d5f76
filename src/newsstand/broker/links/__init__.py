"""Links between neighbouring brokers of the overlay."""
