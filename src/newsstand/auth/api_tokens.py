"""API tokens of the data cluster: their scopes, digests and files.

A scope is `admin` (everything), `publish:DATASET`, `broker:NAME` (either may end in `*`, for all), `read`
(definitions, explanations, traces) or `metrics`. A token is kept as its SHA-256 only. It holds 256 random bits,
so a plain digest is as good as a slow one.

A cluster that knows the platform's secret also accepts the credentials of brokers and the tokens of operators.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from newsstand.auth.credentials import PlatformCredentials, broker_of, webhook_key
from newsstand.config.files import write_once
from newsstand.config.types import read_secret, read_token
from newsstand.errors import BadApp, BadOption
from newsstand.http.server import make_private_folder

SCOPE = re.compile(r"admin|read|metrics|(?:publish|broker):(?:\*|[a-z][a-z0-9_-]{0,62})")
SCOPES = "admin, read, metrics, publish:DATASET, publish:*, broker:NAME or broker:*"
_PREFIX = "newsstand_"
"""The prefix of tokens, by which people and scanners of repositories recognize one."""


@dataclass(frozen=True)
class ApiToken:
    """A token as it is stored: a name for the logs, the digest, and its scopes."""

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

    def __str__(self) -> str:
        return self.name

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    def may(self, action: str, name: str | None = None) -> bool:
        """Return whether the holder may do this: `read`, or `publish` or act as `broker` with a name."""
        wanted = {"admin", action} if name is None else {"admin", f"{action}:*", f"{action}:{name}"}
        return not wanted.isdisjoint(self.scopes)

    def has_any(self, action: str) -> bool:
        """Return whether the holder may do this for at least one name."""
        return any(scope == action or scope.startswith(f"{action}:") for scope in self.scopes)


class ApiTokens:
    """The tokens that a cluster accepts."""

    def __init__(
        self, tokens: Iterable[ApiToken], secret: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """`secret` is the platform's, if the cluster knows it; `clock` gives Unix seconds."""
        self._tokens = tuple(tokens)
        self._secret = secret
        self._platform = None if secret is None else PlatformCredentials(secret, clock)

    def holder(self, presented: str) -> ApiToken | None:
        """Return the token that was presented, in a time that does not depend on how much of a guess is right.

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

    def _of_platform(self, presented: str, digest: str) -> ApiToken | None:
        caller = None if self._platform is None else self._platform.caller(presented)
        if caller is None:
            return None
        scope = {"broker": f"broker:{caller.name}", "operator": "admin", "metrics": "metrics"}[caller.role]
        return ApiToken(str(caller)[:63], digest, frozenset([scope]))


def digest_of(token: str) -> str:
    """Return the digest of a token, which is all that is stored of it."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_token(name: str, scopes: Sequence[str], randomness: bytes) -> tuple[str, ApiToken]:
    """Return a new token, to be shown once, and what is stored of it; `randomness` is 32 bytes."""
    text = _PREFIX + randomness.hex()
    return text, ApiToken(name, digest_of(text), frozenset(scopes))


def token_lines(token: ApiToken) -> str:
    """Return the lines of newsstand.toml that make a cluster accept a token."""
    scopes = ", ".join(f'"{scope}"' for scope in sorted(token.scopes))
    return f'[[tokens]]\nname = "{token.name}"\nsha256 = "{token.sha256}"\nscopes = [{scopes}]\n'


def admin_token(data: Path, randomness: bytes) -> tuple[ApiToken, bool]:
    """Return the token in DATA/admin.token, for a cluster without configured tokens, and whether it is new."""
    path = admin_token_path(data)
    text, token = new_token("admin", ["admin"], randomness)
    try:
        make_private_folder(data)
        if write_once(path, f"{text}\n".encode()):
            return token, True
    except OSError as error:
        raise BadApp(f"{path}: cannot be written ({error.strerror})") from error
    return ApiToken("admin", digest_of(read_token(path)), frozenset(["admin"])), False


def load_tokens(
    configured: Sequence[ApiToken], secret: str | None, data: Path, say: Callable[[str], None]
) -> ApiTokens:
    """Return the tokens that an app configures; if there is none, the cluster's own, and say where it is."""
    if configured:
        return ApiTokens(configured, secret)
    token, is_new = admin_token(data, secrets.token_bytes(32))
    if is_new:
        say(f"newsstand: no tokens are configured; a token for everything is in {admin_token_path(data)}")
    return ApiTokens([token], secret)


def platform_secret(folder: Path, file: Path | None, data: Path) -> str | None:
    """Return the platform's secret, if it is known: that of `secret_file`, or what `newsstand up` made."""
    if file is not None:
        return read_secret(None, folder / file)
    made = secret_path(data)
    return read_secret(None, made) if made.is_file() else None


def secret_path(data: Path) -> Path:
    """Return the file in which `newsstand up` stores a platform's secret."""
    return data / "platform.secret"


def admin_token_path(data: Path) -> Path:
    """Return the file in which a cluster stores the token that it made for itself."""
    return data / "admin.token"


def find_token(data: Path | None, token_file: Path | None, environment: str | None) -> str:
    """Return a command's token: of `--token-file`, of NEWSSTAND_TOKEN, or the cluster's own on this machine."""
    if token_file is not None:
        return read_token(token_file, "--token-file ")
    if environment:
        return environment.strip()
    if data is not None and admin_token_path(data).exists():
        return read_token(admin_token_path(data))
    where = f", and there is no {admin_token_path(data)}" if data is not None else ""
    raise BadOption(f"no token: pass --token-file FILE or set NEWSSTAND_TOKEN{where}")
