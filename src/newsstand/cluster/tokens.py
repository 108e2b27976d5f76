"""Bearer tokens: who may do what.

A scope is `admin` (everything), `publish:DATASET`, `broker:NAME` (either may end in `*`, for all), `read`
(definitions, explanations, traces) or `metrics`. A token is kept as its SHA-256 only. It holds 256 random bits,
so a plain digest is as good as a slow one.

A cluster that knows the platform's secret also accepts the credentials of brokers and the tokens of operators.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from newsstand.errors import BadApp, BadOption
from newsstand.serving.credentials import Operators, broker_of, webhook_key
from newsstand.serving.process import make_private_folder
from newsstand.serving.settings import secret_of, token_in

if TYPE_CHECKING:
    from newsstand.cluster.app_folder import App

SCOPE = re.compile(r"admin|read|metrics|(?:publish|broker):(?:\*|[a-z][a-z0-9_-]{0,62})")
SCOPES = "admin, read, metrics, publish:DATASET, publish:*, broker:NAME or broker:*"
_PREFIX = "newsstand_"
"""What tokens begin with, so that people and scanners of repositories recognize one."""


@dataclass(frozen=True)
class Token:
    """A token as it is kept: a name for the logs, the digest, and what its holder may do."""

    name: str
    sha256: str = field(repr=False)
    scopes: frozenset[str]

    def __post_init__(self) -> None:
        for scope in sorted(self.scopes):
            if SCOPE.fullmatch(scope) is None:
                raise BadApp(f"scope '{scope}' is none of {SCOPES}")
        if not self.scopes:
            raise BadApp(f"scopes: a token needs at least one of {SCOPES}")
        if re.fullmatch(r"[0-9a-f]{64}", self.sha256) is None:
            raise BadApp("sha256: must be 64 hexadecimal digits; `newsstand token` prints them")
        if re.fullmatch(r"[\w.@ -]{1,63}", self.name) is None:
            raise BadApp("name: must be 1 to 63 letters, digits, spaces or any of . @ _ -")

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    def may(self, action: str, name: str | None = None) -> bool:
        """Whether the holder may `read`, or `publish` to a dataset, or act as a `broker`, of that name."""
        wanted = {"admin", action} if name is None else {"admin", f"{action}:*", f"{action}:{name}"}
        return not wanted.isdisjoint(self.scopes)

    def has_any(self, action: str) -> bool:
        """Whether the holder may do this for at least one name."""
        return any(scope == action or scope.startswith(f"{action}:") for scope in self.scopes)


class Tokens:
    """The tokens that a cluster accepts."""

    def __init__(
        self, tokens: Iterable[Token], secret: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """`secret` is the platform's, if the cluster knows it; `clock` gives Unix seconds."""
        self._tokens = tuple(tokens)
        self._secret = secret
        self._operators = None if secret is None else Operators.of_platform(secret)
        self._clock = clock

    def holder(self, presented: str) -> Token | None:
        """Whose token this is. The time that it takes does not depend on how much of a guess is right.

        Raise BadOperatorToken for the token of an operator that has expired.
        """
        digest = digest_of(presented)
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.sha256, digest):
                found = token
        return found or self._of_platform(presented, digest)

    def webhook_key(self, presented: str) -> str | None:
        """Return the key that signs webhooks to a broker, if it has presented its credential."""
        if self._secret is None or broker_of(self._secret, presented) is None:
            return None
        return webhook_key(presented)

    def _of_platform(self, presented: str, digest: str) -> Token | None:
        if self._secret is None or self._operators is None:
            return None
        if (broker := broker_of(self._secret, presented)) is not None:
            return Token(f"broker {broker}"[:63], digest, frozenset([f"broker:{broker}"]))
        operator = self._operators.holder(presented, self._clock())
        if operator is None:
            return None
        scope = "admin" if operator.may("operator") else "metrics"
        return Token(f"operator {operator.name}"[:63], digest, frozenset([scope]))


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_token(name: str, scopes: Sequence[str], randomness: bytes) -> tuple[str, Token]:
    """A new token, to be shown once, and what is kept of it; `randomness` is 32 bytes."""
    text = _PREFIX + randomness.hex()
    return text, Token(name, digest_of(text), frozenset(scopes))


def token_lines(token: Token) -> str:
    """The lines of newsstand.toml that make a cluster accept a token."""
    scopes = ", ".join(f'"{scope}"' for scope in sorted(token.scopes))
    return f'[[tokens]]\nname = "{token.name}"\nsha256 = "{token.sha256}"\nscopes = [{scopes}]\n'


def admin_token(data: Path, randomness: bytes) -> tuple[Token, bool]:
    """The token of a cluster that has none configured, kept in DATA/admin.token; and whether it was made now."""
    path = admin_token_path(data)
    text, token = new_token("admin", ["admin"], randomness)
    try:
        make_private_folder(data)
        unfinished = path.with_suffix(".new")
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(unfinished, path)  # unlike a rename it never replaces a token that is in use
            return token, True
        except FileExistsError:
            return Token("admin", digest_of(token_in(path)), frozenset(["admin"])), False
        finally:
            unfinished.unlink()
    except OSError as error:
        raise BadApp(f"{path}: cannot be written ({error.strerror})") from error


def load_tokens(app: App, data: Path, say: Callable[[str], None]) -> Tokens:
    """The tokens that an app configures; if there is none, the cluster's own, and where it is."""
    secret = platform_secret(app.folder, app.cluster.secret_file, data)
    if app.tokens:
        return Tokens(app.tokens, secret)
    token, is_new = admin_token(data, secrets.token_bytes(32))
    if is_new:
        say(f"newsstand: no tokens are configured; a token for everything is in {admin_token_path(data)}")
    return Tokens([token], secret)


def platform_secret(folder: Path, file: Path | None, data: Path) -> str | None:
    """Return the platform's secret, if it is known: that of `secret_file`, or what `newsstand up` made."""
    if file is not None:
        return secret_of(None, folder / file)
    made = secret_path(data)
    return secret_of(None, made) if made.is_file() else None


def secret_path(data: Path) -> Path:
    """Where `newsstand up` keeps a platform's secret."""
    return data / "platform.secret"


def admin_token_path(data: Path) -> Path:
    """Where a cluster keeps the token that it made for itself."""
    return data / "admin.token"


def find_token(data: Path | None, token_file: Path | None, environment: str | None) -> str:
    """A command's token: of `--token-file`, of NEWSSTAND_TOKEN, or the cluster's own on this machine."""
    if token_file is not None:
        return token_in(token_file, "--token-file ")
    if environment:
        return environment.strip()
    if data is not None and admin_token_path(data).exists():
        return token_in(admin_token_path(data))
    where = f", and there is no {admin_token_path(data)}" if data is not None else ""
    raise BadOption(f"no token: pass --token-file FILE or set NEWSSTAND_TOKEN{where}")
