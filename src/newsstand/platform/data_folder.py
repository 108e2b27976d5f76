"""The data folder of a platform: one lock, one secret, a credential for each broker.

DATA/                   the cluster's own data folder
DATA/platform.lock      held by the `newsstand up` that runs over the folder
DATA/platform.secret    the platform's one secret, which cluster and coordinator read
DATA/address            where the cluster will listen, until the cluster itself writes it
DATA/platform.path      in the app's default folder: the path given by --data, while a platform runs over it
DATA/logs/              the joined log of all processes, unless `--log` names another file (see `log_file`)
DATA/coordinator/       the coordinator's data folder, and its settings
DATA/brokers/NAME/      a broker's data folder, its settings, and its credential, broker.token
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from newsstand.auth.api_tokens import secret_path
from newsstand.auth.credentials import broker_credential, operator_token
from newsstand.cluster.app_folder import ADDRESS
from newsstand.config.files import write_atomically
from newsstand.errors import BadOption
from newsstand.http.server import make_private_folder

ELSEWHERE = "platform.path"


@dataclass(frozen=True)
class PlatformFolder:
    """A platform's data folder."""

    path: Path

    @property
    def secret_file(self) -> Path:
        return secret_path(self.path)

    @property
    def coordinator(self) -> Path:
        return self.path / "coordinator"

    @property
    def log(self) -> Path:
        return self.path / "logs" / "platform.log"

    def broker(self, name: str) -> Path:
        """Return the folder of a broker."""
        return self.path / "brokers" / name

    def token_file(self, broker: str) -> Path:
        """Return the file of a broker's credential."""
        return self.broker(broker) / "broker.token"

    @property
    def secret(self) -> str:
        """The platform's secret, once the folder is prepared."""
        return self.secret_file.read_text(encoding="utf-8").strip()

    def operator_token(self, name: str, broker: str | None = None) -> str:
        """Return a token for the requests of a command to the platform that it runs."""
        return operator_token(self.secret, name, ["operator"], now_s=time.time(), days=365, broker=broker)

    @contextmanager
    def locked(self, patience_s: float = 0.5) -> Iterator[None]:
        """Lock the folder; raise BadOption if another platform has locked it for longer than `patience_s`."""
        try:
            make_private_folder(self.path)
            descriptor = os.open(self.path / "platform.lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise BadOption(f"data folder {self.path}: cannot be used ({error.strerror})") from error
        with os.fdopen(descriptor, "r+") as lock:
            until = time.monotonic() + patience_s
            while not _locks(lock, fcntl.LOCK_EX):
                if time.monotonic() > until:
                    holder = lock.read().strip()
                    who = f", process {holder}," if holder else ""
                    raise BadOption(
                        f"data folder {self.path}: is in use: another platform{who} runs over it; "
                        "stop it, or take another folder with --data"
                    )
                time.sleep(0.05)  # `is_running` holds it for a moment
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    @property
    def is_running(self) -> bool:
        """Whether a `newsstand up` holds the folder."""
        try:
            with (self.path / "platform.lock").open() as lock:
                return not _locks(lock, fcntl.LOCK_SH)
        except OSError:
            return False

    def remembered(self, usual: Path) -> AbstractContextManager[None]:
        """Write the path of this folder to the default folder of the app, where commands look for it."""
        return nullcontext() if usual.absolute() == self.path else _written(usual / ELSEWHERE, f"{self.path}\n")

    def announced(self, url: str) -> AbstractContextManager[None]:
        """Write where the cluster will listen, so that commands wait there.

        Restore the previous address afterwards: if the cluster does not start because another one uses the folder,
        commands still find that one.
        """
        return _written(self.path / ADDRESS, f"{url}\n", restores=True)

    def prepare(self, brokers: Iterable[str]) -> None:
        """Create the secret if it is missing, and the credential of each broker."""
        try:
            read_or_create(self.secret_file, secrets.token_urlsafe(32))
            make_private_folder(self.coordinator)
            make_private_folder(self.path / "brokers")
            for name in brokers:
                make_private_folder(self.broker(name))
                write_atomically(self.token_file(name), f"{broker_credential(self.secret, name)}\n".encode())
        except OSError as error:
            raise BadOption(f"{error.filename or self.path}: cannot be written ({error.strerror})") from error


def folder_in_use(usual: Path) -> Path:
    """Return the data folder of the running platform of an app; the default folder if none runs."""
    if PlatformFolder(usual).is_running:
        return usual
    try:
        other = PlatformFolder(Path((usual / ELSEWHERE).read_text(encoding="utf-8").strip()))
    except (OSError, UnicodeDecodeError):
        return usual
    return other.path if other.is_running else usual


@contextmanager
def _written(file: Path, text: str, *, restores: bool = False) -> Iterator[None]:
    """Write a file; remove it afterwards, or restore its previous text, unless another process has changed it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        before = file.read_text(encoding="utf-8") if restores and file.exists() else ""
        write_atomically(file, text.encode())
    except OSError as error:
        raise BadOption(f"{file}: cannot be written ({error.strerror})") from error
    try:
        yield
    finally:
        with suppress(OSError):
            if file.read_text(encoding="utf-8") == text:
                if before:
                    write_atomically(file, before.encode())
                else:
                    file.unlink()


def _locks(file: TextIO, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def read_or_create(file: Path, text: str) -> str:
    """Return the text of a file; create it with the given text if it does not exist."""
    if not file.exists():
        make_private_folder(file.parent)
        write_atomically(file, f"{text}\n".encode())
    return file.read_text(encoding="utf-8").strip()
