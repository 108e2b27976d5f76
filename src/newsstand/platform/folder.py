"""The data folder of a platform: one lock, one secret, a token for each broker.

DATA/                   the cluster's own data folder
DATA/platform.lock      held by the `newsstand up` that runs over the folder
DATA/platform.secret    the platform's one secret
DATA/address            where the cluster will listen, until the cluster itself writes it
DATA/tokens.toml        digests of the tokens below, for the cluster
DATA/coordinator/       the coordinator's data folder, and its settings
DATA/brokers/NAME/      a broker's data folder, its settings, and cluster.token, which makes it broker:NAME
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from newsstand.cluster.app_folder import ADDRESS
from newsstand.cluster.tokens import Token, digest_of, made_tokens_path, new_token, token_lines
from newsstand.errors import BadOption


@dataclass(frozen=True)
class PlatformFolder:
    """A platform's data folder."""

    path: Path

    @property
    def secret_file(self) -> Path:
        return self.path / "platform.secret"

    @property
    def coordinator(self) -> Path:
        return self.path / "coordinator"

    def broker(self, name: str) -> Path:
        """A broker's own folder."""
        return self.path / "brokers" / name

    def token_file(self, broker: str) -> Path:
        """A broker's token of the cluster."""
        return self.broker(broker) / "cluster.token"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; one that another holds is refused."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / "platform.lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise BadOption(f"data folder {self.path}: cannot be used ({error.strerror})") from error
        with os.fdopen(descriptor, "r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = lock.read().strip()
                who = f", process {holder}," if holder else ""
                raise BadOption(
                    f"data folder {self.path}: is in use: another platform{who} runs over it; "
                    "stop it, or take another folder with --data"
                ) from None
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    @contextmanager
    def announced(self, url: str) -> Iterator[None]:
        """Write where the cluster will listen, so that commands wait there.

        What stands there afterwards is what stood there before: if the cluster does not start, because another one
        uses the folder, commands find that one still.
        """
        file, text = self.path / ADDRESS, f"{url}\n"
        try:
            before = file.read_text(encoding="utf-8") if file.exists() else ""
            write_private(file, text)
        except OSError as error:
            raise BadOption(f"{file}: cannot be written ({error.strerror})") from error
        try:
            yield
        finally:
            with suppress(OSError):
                if file.read_text(encoding="utf-8") == text:
                    if before:
                        write_private(file, before)
                    else:
                        file.unlink()

    def prepare(self, brokers: Iterable[str]) -> None:
        """Make what is missing: the secret, the brokers' tokens; tell the cluster their digests."""
        try:
            kept(self.secret_file, secrets.token_urlsafe(32))
            self.coordinator.mkdir(exist_ok=True)
            lines = []
            for name in brokers:
                text, _ = new_token(f"broker {name}", [f"broker:{name}"], secrets.token_bytes(32))
                text = kept(self.token_file(name), text)
                lines.append(token_lines(Token(f"broker {name}", digest_of(text), frozenset([f"broker:{name}"]))))
            write_private(made_tokens_path(self.path), "\n".join(lines))
        except OSError as error:
            raise BadOption(f"{error.filename or self.path}: cannot be written ({error.strerror})") from error


def kept(file: Path, text: str) -> str:
    """What a file holds; the given text if there was no file, which is made then."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_private(file, f"{text}\n")
    return file.read_text(encoding="utf-8").strip()


def write_private(file: Path, text: str) -> None:
    """Write a whole file, which only its owner can read."""
    unfinished = file.with_name(f".{file.name}.new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    unfinished.replace(file)
