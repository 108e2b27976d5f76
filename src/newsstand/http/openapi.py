"""Operations of an HTTP API: each declares its parameters, body and answers once, to be parsed and described."""

from __future__ import annotations

import inspect
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from types import UnionType
from typing import Annotated, Any, Literal, TypedDict, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from newsstand.config.types import describe
from newsstand.errors import NewsstandError
from newsstand.http.errors import BODY, STATUS_TEXTS, ErrorBody, HttpError, RetentionErrorBody, to_http_error

Handler = Callable[..., Awaitable[Response]]
Schema = dict[str, Any]
Content = Mapping[str, Any]
"""Types of a body by media type: what msgspec describes, or a JSON schema as a dict."""
T = TypeVar("T")
K = TypeVar("K", str, int)

Place = Literal["path", "query", "header"]
REQUIRED = inspect.Parameter.empty
JSON = "application/json"
NDJSON = "application/x-ndjson"
BINARY: Schema = {"type": "string", "format": "binary"}
INTEGER = re.compile(r"-?[0-9]{1,30}", re.ASCII)

MOST_LISTED = 10_000
"""Entries of one page of a list."""
USUAL = 1_000
"""Entries of a page if the request does not say."""
After = Annotated[str, msgspec.Meta(max_length=256, description="`next` of the page before")]
Limit = Annotated[int, msgspec.Meta(ge=1, le=MOST_LISTED, description="entries of the page at most")]


def page_of(entries: Iterable[T], name: Callable[[T], K], after: K, limit: int) -> tuple[list[T], K | None]:
    """Return the entries after that name, and the name after which the next page begins; None at the end.

    >>> page_of(["c", "a", "b"], str, after="a", limit=1)
    (['b'], 'b')
    """
    ordered = sorted(entries, key=name)
    start = bisect_right(ordered, after, key=name) if after else 0
    page = ordered[start : start + limit]
    return page, name(page[-1]) if start + limit < len(ordered) else None


@dataclass(frozen=True)
class Header:
    """Marks a parameter of a handler as a header of that name: `Annotated[str | None, Header("If-Range")]`."""

    name: str


@dataclass(frozen=True)
class FromHeaders:
    """Marks a parameter of a handler as read from several headers, each with its description."""

    read: Callable[[Mapping[str, str]], Any]
    described: Mapping[str, str]


@dataclass(frozen=True)
class DeclaredResponse:
    """A response of an operation: what it means, and the types of its body."""

    description: str
    content: Content = field(default_factory=dict)


PROBLEMS: Mapping[int, DeclaredResponse] = {
    status: DeclaredResponse(text, {JSON: ErrorBody}) for status, text in STATUS_TEXTS.items()
}

REMOVED = {410: DeclaredResponse(STATUS_TEXTS[410], {JSON: RetentionErrorBody})}


class Declaration(TypedDict, total=False):
    """What a route declares beside its method, path and handler."""

    response: Any
    """The type of the answer; without it the answer has no body."""
    status: int
    body: Any
    """The type of a JSON body, or types by media type."""
    errors: Iterable[int]
    """The statuses of errors, besides those of a token (401) and of a body (BODY)."""
    answers: Mapping[int, DeclaredResponse]
    """Further answers."""
    head: bool
    """Whether the handler also answers HEAD."""
    fast: bool
    """Whether the call is so frequent that it bypasses the router."""


class RequestParameter:
    """A parameter of a handler that one part of a request gives."""

    def __init__(self, argument: str, name: str, place: Place, kind: Any, default: Any = REQUIRED) -> None:
        self.argument, self.name, self.place, self.default = argument, name, place, default
        self.type = _without_none(kind)
        plain = get_args(self.type)[0] if get_origin(self.type) is Annotated else self.type
        self._is_integer = plain is int

    def read(self, request: Request) -> object:
        """Return its value in a request; raise HttpError if it is not of the type or out of its bounds."""
        source: Mapping[str, str] = request.path_params
        if self.place == "query":
            if not request.scope["query_string"]:
                return self.default
            source = request.query_params
        elif self.place == "header":
            source = request.headers
        text = source.get(self.name)
        if text is None:
            return self.default
        if self.type is str:
            return text
        if self._is_integer and INTEGER.fullmatch(text) is None:  # msgspec also takes 1e3 and 5.0
            raise HttpError(422, f"{self.place} {self.name}: must be a whole number")
        try:
            return msgspec.convert(text, self.type, strict=False)
        except msgspec.ValidationError:
            raise HttpError(422, f"{self.place} {self.name}: must be {describe(self.type)}") from None

    def describe(self, schemas: Schemas) -> dict[str, object]:
        """Return the description of the parameter."""
        schema = schemas.of(self.type)
        if self.default not in (None, REQUIRED):
            schema["default"] = self.default
        return {"name": self.name, "in": self.place, "required": self.default is REQUIRED, "schema": schema}


class Operation:
    """One method of one path: an ASGI app that parses parameters, calls a handler and answers errors."""

    def __init__(
        self, method: str, template: str, handler: Handler, tag: str, secured: bool, declared: Declaration
    ) -> None:
        self.method, self.template, self._handler = method, template, handler
        self.path = template.replace(":path}", "}")
        self.methods = {method, "HEAD"} if declared.get("head") else {method}
        self.is_fast = declared.get("fast", False)
        self._tag, self._secured = tag, secured
        self._groups: dict[str, FromHeaders] = {}
        self._parameters = list(self._declared())
        self._body = _content(declared.get("body"))
        statuses = {*declared.get("errors", ()), *((401,) if secured else ()), *(BODY if self._body else ())}
        if any(one.type is not str for one in self._parameters):
            statuses.add(422)
        self._answers = {status: PROBLEMS[status] for status in statuses}
        self._answers.update(declared.get("answers", {}))
        response = declared.get("response")
        if response is not None or not any(status < 300 for status in self._answers):
            status = declared.get("status", 204 if response is None else 200)
            self._answers[status] = DeclaredResponse(STATUS_TEXTS[status], _content(response))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        scope["route"] = self
        request = Request(scope, receive)
        try:
            arguments = {one.argument: one.read(request) for one in self._parameters}
            for name, group in self._groups.items():
                arguments[name] = group.read(request.headers)
            response = await self._handler(request, **arguments)
        except HttpError as error:
            response = error.response()
        except NewsstandError as error:
            response = to_http_error(error).response()
        await response(scope, receive, send)

    def _declared(self) -> Iterable[RequestParameter]:
        hints = get_type_hints(self._handler, include_extras=True)
        for name, parameter in list(inspect.signature(self._handler).parameters.items())[1:]:
            kind = hints[name]
            marks = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
            group = next((one for one in marks if isinstance(one, FromHeaders)), None)
            if group is not None:
                self._groups[name] = group
                continue
            header = next((one for one in marks if isinstance(one, Header)), None)
            if header is not None:
                yield RequestParameter(name, header.name, "header", kind, parameter.default)
            elif f"{{{name}}}" in self.path:
                yield RequestParameter(name, name, "path", kind)
            else:
                yield RequestParameter(name, name, "query", kind, parameter.default)

    def describe(self, schemas: Schemas) -> dict[str, Any]:
        """Return the description of the operation."""
        text = inspect.getdoc(self._handler) or ""
        summary, _, more = text.partition("\n\n")
        described: dict[str, Any] = {
            "tags": [self._tag],
            "summary": summary.replace("\n", " "),
            "operationId": re.sub(r"\W+", "_", f"{self.method.lower()}{self.path}").strip("_"),
        }
        if more:
            described["description"] = more
        parameters = [one.describe(schemas) for one in self._parameters]
        for group in self._groups.values():
            for name, meaning in group.described.items():
                schema = {"type": "string", "description": meaning}
                parameters.append({"name": name, "in": "header", "required": False, "schema": schema})
        if parameters:
            described["parameters"] = parameters
        if self._body:
            described["requestBody"] = {"required": True, "content": schemas.content(self._body)}
        described["responses"] = {
            str(status): {"description": one.description}
            | ({"content": schemas.content(one.content)} if one.content else {})
            for status, one in sorted(self._answers.items())
        }
        if self._secured:
            described["security"] = [{"bearer": []}]
        return described


class Schemas:
    """Schemas of types, filled in when all types are known, so that references lead to one set of components."""

    def __init__(self) -> None:
        self._types: list[Any] = []
        self._open: list[Schema] = []

    def of(self, kind: Any) -> Schema:
        """Return the schema of a type, which is empty until `components`."""
        made: Schema = {}
        self._types.append(kind)
        self._open.append(made)
        return made

    def content(self, content: Content) -> dict[str, Any]:
        """Return the description of a body."""
        return {
            media: {"schema": kind if isinstance(kind, dict) else self.of(kind)} for media, kind in content.items()
        }

    def components(self) -> Schema:
        """Fill in all schemas; return those that references name."""
        template = "#/components/schemas/{name}"
        found, components = msgspec.json.schema_components(
            self._types, schema_hook=_anything, ref_template=template
        )
        for made, schema in zip(self._open, found, strict=True):
            made.update(schema)
        return components


def document(title: str, summary: str, operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the OpenAPI description of an API."""
    schemas = Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = one.describe(schemas)
    components = {
        "schemas": schemas.components(),
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
    }
    info = {"title": title, "summary": summary, "version": metadata.version("newsstand")}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def _anything(kind: type) -> Schema:
    if kind is object:
        return {"title": "anything"}  # msgspec takes an empty schema for none
    raise NotImplementedError


def _content(kind: Any) -> Content:
    """Return the types of a body by media type; a type alone is of JSON."""
    if kind is None:
        return {}
    return kind if isinstance(kind, dict) else {JSON: kind}


def _without_none(kind: Any) -> Any:
    """Return the type of a text that is given: a parameter that may be None is left out, it has no text `null`."""
    if get_origin(kind) is Annotated:
        inner, *marks = get_args(kind)
        kept = [one for one in marks if isinstance(one, msgspec.Meta)]
        inner = _without_none(inner)
        return Annotated[(inner, *kept)] if kept else inner
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(one for one in get_args(kind) if one is not type(None))]  # noqa: UP007
    return kind
