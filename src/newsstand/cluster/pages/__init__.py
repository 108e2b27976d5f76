"""Pages at their origin: storage, named pages, redirects and pushes."""
