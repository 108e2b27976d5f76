"""Settings of survival models, and a plain model."""
