"""A whole platform on one machine: cluster, coordinator and brokers as processes that are watched over."""
