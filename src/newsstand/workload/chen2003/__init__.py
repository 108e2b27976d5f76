"""The news workload of chen2003."""
