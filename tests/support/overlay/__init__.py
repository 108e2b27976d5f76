"""Networks of brokers without sockets."""
