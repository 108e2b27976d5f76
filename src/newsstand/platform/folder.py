"""The data folder of a platform: one lock, one secret, a credential for each broker.

DATA/                   the cluster's own data folder
DATA/platform.lock      held by the `newsstand up` that runs over the folder
DATA/platform.secret    the platform's one secret, which cluster and coordinator read
DATA/address            where the cluster will listen, until the cluster itself writes it
DATA/platform.path      in an app's usual folder: the one of --data, while a platform runs over that
DATA/logs/              what all parts log, unless `--log` says otherwise (see `log_file`)
DATA/coordinator/       the coordinator's data folder, and its settings
DATA/brokers/NAME/      a broker's data folder, its settings, and its credential, broker.token
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from newsstand.cluster.app_folder import ADDRESS
from newsstand.cluster.tokens import secret_path
from newsstand.errors import BadOption
from newsstand.serving.credentials import broker_credential, operator_token
from newsstand.serving.process import make_private_folder

ELSEWHERE = "platform.path"
LOCK_TRIES, LOCK_PAUSE_S = 10, 0.05


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
        """A broker's own folder."""
        return self.path / "brokers" / name

    def token_file(self, broker: str) -> Path:
        """Where a broker's credential is."""
        return self.broker(broker) / "broker.token"

    @property
    def secret(self) -> str:
        """The platform's secret; the folder has been prepared."""
        return self.secret_file.read_text(encoding="utf-8").strip()

    def operator_token(self, name: str, broker: str | None = None) -> str:
        """Make a token for what a command does with a platform that it runs."""
        return operator_token(self.secret, name, ["operator"], now_s=time.time(), days=365, broker=broker)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; one that another holds is refused."""
        try:
            make_private_folder(self.path)
            descriptor = os.open(self.path / "platform.lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise BadOption(f"data folder {self.path}: cannot be used ({error.strerror})") from error
        with os.fdopen(descriptor, "r+") as lock:
            for _ in range(LOCK_TRIES):
                if _locks(lock, fcntl.LOCK_EX):
                    break
                time.sleep(LOCK_PAUSE_S)  # `is_running` holds it for a moment
            else:
                holder = lock.read().strip()
                who = f", process {holder}," if holder else ""
                raise BadOption(
                    f"data folder {self.path}: is in use: another platform{who} runs over it; "
                    "stop it, or take another folder with --data"
                )
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

    @contextmanager
    def remembered(self, usual: Path) -> Iterator[None]:
        """Tell commands, in the usual data folder of an app, that its platform runs over this one."""
        file, text = usual / ELSEWHERE, f"{self.path}\n"
        if usual.absolute() == self.path:
            yield
            return
        try:
            usual.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(file, text)
        except OSError as error:
            raise BadOption(f"{file}: cannot be written ({error.strerror})") from error
        try:
            yield
        finally:
            with suppress(OSError):
                if file.read_text(encoding="utf-8") == text:
                    file.unlink()

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
        """Make what is missing: the secret, and the credential of each broker."""
        try:
            kept(self.secret_file, secrets.token_urlsafe(32))
            make_private_folder(self.coordinator)
            make_private_folder(self.path / "brokers")
            for name in brokers:
                make_private_folder(self.broker(name))
                write_private(self.token_file(name), f"{broker_credential(self.secret, name)}\n")
        except OSError as error:
            raise BadOption(f"{error.filename or self.path}: cannot be written ({error.strerror})") from error


def folder_in_use(usual: Path) -> Path:
    """The data folder that an app's platform runs over, perhaps one of `--data`; the usual one if none runs."""
    if PlatformFolder(usual).is_running:
        return usual
    try:
        other = PlatformFolder(Path((usual / ELSEWHERE).read_text(encoding="utf-8").strip()))
    except (OSError, UnicodeDecodeError):
        return usual
    return other.path if other.is_running else usual


def _locks(file: TextIO, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def kept(file: Path, text: str) -> str:
    """What a file holds; the given text if there was no file, which is made then."""
    if not file.exists():
        make_private_folder(file.parent)
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
