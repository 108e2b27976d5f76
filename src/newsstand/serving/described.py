"""An API that describes itself at /openapi.json."""

from __future__ import annotations

from importlib import metadata

from fastapi import FastAPI
from fastapi.params import Depends
from fastapi.security import HTTPBearer

BEARER = Depends(HTTPBearer(auto_error=False))
"""For the description of routes that need a token: they ask for it themselves."""


def new_api(title: str, summary: str) -> FastAPI:
    """An API without routes yet."""
    return FastAPI(
        title=title,
        summary=summary,
        version=metadata.version("newsstand"),
        docs_url=None,  # these pages would load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
    )
