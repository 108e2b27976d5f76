"""Emergencies in a city: the scenario of Uddin and Venkatasubramanian (2018), section VI."""
