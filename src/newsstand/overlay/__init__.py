"""The network of brokers as pure logic: topologies, tables and messages, without sockets and without a clock."""
