"""A user's own policies, from a file outside the package."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from newsstand.caching.policy import POLICIES, USERS
from newsstand.errors import BadPolicyFile, NewsstandError


@dataclass(frozen=True)
class PolicyFile:
    """The text of a policy file, small enough to travel with a job to every worker."""

    path: str
    source: str

    @classmethod
    def read(cls, path: str | Path) -> PolicyFile:
        try:
            return cls(str(path), Path(path).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise BadPolicyFile(f"{path}: cannot read the policy file ({reason})") from error

    def load(self) -> None:
        """Run the file once in this process, so that the policies it registers are known by name."""
        digest = hashlib.sha256(self.source.encode()).hexdigest()[:16]
        name = USERS + digest
        if name in sys.modules:
            return
        module = ModuleType(name)
        module.__file__ = self.path
        known = dict(POLICIES)
        sys.modules[name] = module
        try:
            exec(compile(self.source, self.path, "exec"), module.__dict__)
            self._check(known)
        except BaseException as error:
            del sys.modules[name]
            POLICIES.restore(known)
            if isinstance(error, NewsstandError | KeyboardInterrupt):
                raise
            raise BadPolicyFile(f"{self.path}: {self._describe(error)}") from error

    def _check(self, known: Mapping[str, object]) -> None:
        for name, before in known.items():
            if POLICIES[name] is not before:
                raise BadPolicyFile(f"{self.path}: '{name}' is registered already; choose another name")
        if len(POLICIES) == len(known):
            raise BadPolicyFile(f"{self.path}: registers no policy (decorate a function with @policy(...))")

    def _describe(self, error: BaseException) -> str:
        line = error.lineno if isinstance(error, SyntaxError) else None
        trace = None if line else error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.path:
                line = trace.tb_lineno
            trace = trace.tb_next
        place = f"line {line}: " if line else ""
        return f"{place}{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
