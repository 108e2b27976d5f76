"""An API that describes itself at /openapi.json."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.params import Depends
from fastapi.security import HTTPBearer
from pydantic import BaseModel

BEARER = Depends(HTTPBearer(auto_error=False))
"""For the description of routes that need a token: they ask for it themselves."""


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Describe the API, with all shapes of bodies among the components, which references can name."""
        if self.openapi_schema is None:
            document = super().openapi()
            shapes = document.setdefault("components", {}).setdefault("schemas", {})
            _move_definitions(document, shapes)
        return super().openapi()


def new_api(title: str, summary: str) -> FastAPI:
    """An API without routes yet."""
    return _Api(
        title=title,
        summary=summary,
        version=metadata.version("newsstand"),
        docs_url=None,  # these pages would load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
    )


def schema_of(shape: type[BaseModel] | type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of a body that FastAPI does not parse; its definitions go where references find them."""
    if issubclass(shape, BaseModel):
        return shape.model_json_schema()
    return msgspec.json.schema(shape)


_LOCAL = "#/$defs/"


def _move_definitions(node: object, shapes: dict[str, Any]) -> None:
    """Move definitions within schemas to the shapes of the whole document, to which references are relative."""
    if isinstance(node, list):
        for one in node:
            _move_definitions(one, shapes)
    if not isinstance(node, dict):
        return
    for name, schema in node.pop("$defs", {}).items():
        _move_definitions(schema, shapes)
        if shapes.setdefault(name, schema) != schema:
            raise ValueError(f"openapi: two shapes are called {name}")
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith(_LOCAL):
        node["$ref"] = f"#/components/schemas/{reference.removeprefix(_LOCAL)}"
    for one in list(node.values()):
        _move_definitions(one, shapes)
