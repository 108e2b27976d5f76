"""What `newsstand up` refuses about an app before it starts a process; `newsstand check` refuses the same."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

from newsstand.cluster.app_folder import FILE, App, BadAppFile, read_app
from newsstand.errors import BadOption
from newsstand.platform.declared import Declared, Table, read_declared
from newsstand.platform.parts import absolute
from newsstand.serving.process import Tls


def read_checked(folder: Path, environment: Mapping[str, str]) -> tuple[App, Declared]:
    """Read the app and what it declares for `newsstand up`; raise BadAppFile with the mistakes of all tables."""
    mistakes: list[str] = []
    try:
        app = read_app(folder, environment)
    except BadAppFile as error:
        mistakes += error.mistakes
    try:
        declared = read_declared(folder)
    except BadAppFile as error:
        mistakes += error.mistakes
    if not mistakes:
        mistakes += [f"{folder / FILE}: {one}" for one in _certificate_mistakes(app, declared)]
    if mistakes:
        raise BadAppFile(list(dict.fromkeys(mistakes)))
    return app, declared


def _certificate_mistakes(app: App, declared: Declared) -> Iterator[str]:
    """Certificates, keys and authorities that no part could start with."""
    cluster = {
        key: str(value) for key in ("certificate", "key", "authority") if (value := getattr(app.cluster, key))
    }
    tables: list[tuple[str, Table]] = [("cluster", dict(cluster)), ("coordinator", declared.coordinator)]
    tables += [(f"brokers, number {number}", one) for number, one in enumerate(declared.brokers, start=1)]
    for place, table in tables:
        found = absolute(table, app.folder)
        try:
            if "certificate" in found:
                Tls(Path(str(found["certificate"])), Path(str(found["key"]))).check()
        except BadOption as error:
            yield f"{place}: certificate and key: {error}"
        if "authority" in found:
            try:
                ssl.create_default_context(cafile=str(found["authority"]))
            except OSError as error:
                yield f"{place}.authority: {found['authority']}: no certificates can be read ({error.strerror})"
