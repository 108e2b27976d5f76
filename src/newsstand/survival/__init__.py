"""How long a published message survives in opportunistic caches: Markov models (Sourlas et al. 2011)."""
