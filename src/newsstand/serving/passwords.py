"""How passwords are hashed, at brokers and at the coordinator."""

from __future__ import annotations

from argon2 import PasswordHasher

from newsstand.errors import BadInput

SHORTEST, LONGEST = 8, 1024
"""Characters of a password."""


def check_password(password: str) -> None:
    """Raise BadInput for what cannot be a password."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise BadInput(f"password: {SHORTEST} to {LONGEST} characters")


def password_hasher() -> PasswordHasher:
    """Return the hasher of all parts: Argon2id, which is slow on purpose."""
    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
