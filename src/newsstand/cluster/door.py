"""The door: what is let into a dataset, judged record by record, and the lines that go to the log.

A record is a flat JSON object with the dataset's fields. It may also have `_page`, the page that the publication
carries (`{"text": …}` or `{"base64": …}`) or points to (`{"url": …, "size": n}`), each with an optional `type`.
Nothing else begins with an underscore. A null is the same as a field that is missing.

A timestamp is RFC 3339 with a zone; one without is refused, since a wrong guess of its zone would go unnoticed.
It is kept in UTC, to the microsecond. A string has no NUL character, which PostgreSQL could not store.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from types import UnionType
from typing import Annotated, Literal, cast

import msgspec

from newsstand.cluster.pages import MAX_PAGE_BYTES, GivenPage, carried, elsewhere
from newsstand.errors import BadInput
from newsstand.model import Dataset

Form = Literal["json", "ndjson"]
"""How a body holds records: as one JSON object or an array of them, or as one object a line."""


def item_type(type: str) -> str | None:
    """What an array has, None for the type of a single value."""
    return type.removeprefix("array<").removesuffix(">") if type.startswith("array<") else None


@dataclass(frozen=True)
class Refusal:
    """A record that was not let in: the how-manieth of its body, from 0, and why."""

    index: int
    reason: str


@dataclass(frozen=True)
class Admitted:
    """What a body holds: lines for the log, in order; who was refused; the pages to store before the lines."""

    lines: list[bytes]
    refused: list[Refusal]
    pages: list[GivenPage]


class _PageForm(msgspec.Struct, forbid_unknown_fields=True):
    """`_page` as a publisher gives it."""

    text: str | None = None
    base64: bytes | None = None
    url: str | None = None
    size: int | None = None
    type: str | None = None


class _PageLine(msgspec.Struct, omit_defaults=True):
    """`_page` as the log has it."""

    id: str
    size: int
    type: str
    url: str | None = None


_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Timestamp = Annotated[datetime.datetime, msgspec.Meta(tz=True)]
_PYTHON = {
    "string": str,
    "integer": _Integer,
    "double": float,
    "boolean": bool,
    "timestamp": _Timestamp,
    "array<string>": list[str],
    "array<integer>": list[_Integer],
    "array<double>": list[float],
    "array<boolean>": list[bool],
    "array<timestamp>": list[_Timestamp],
}
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_RAW = msgspec.json.Decoder(msgspec.Raw)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])


class Door:
    """Lets a dataset's records in, each judged by itself, and writes the lines that go to the log."""

    def __init__(self, dataset: Dataset, max_page_bytes: int = MAX_PAGE_BYTES) -> None:
        self.dataset = dataset
        self.max_page_bytes = max_page_bytes
        required = [(field.name, _PYTHON[field.type]) for field in dataset.fields if not field.optional]
        optional = [(field.name, _or_null(field.type), None) for field in dataset.fields if field.optional]
        record = msgspec.defstruct(
            dataset.name,
            [*required, *optional, ("_page", _PageForm | None, None)],
            forbid_unknown_fields=True,
            omit_defaults=True,
            gc=False,
        )
        self._decode = msgspec.json.Decoder(record).decode
        self._encode = msgspec.json.Encoder().encode
        self._strings = [field.name for field in dataset.fields if "string" in field.type]
        self._timestamps = [field.name for field in dataset.fields if "timestamp" in field.type]

    def admit(self, body: bytes, form: Form = "json") -> Admitted:
        """Judge the records of a body. Raise `BadInput` if it is not JSON as a whole; of NDJSON, blank lines are
        skipped and a malformed line is a record that is refused."""
        lines: list[bytes] = []
        refused: list[Refusal] = []
        pages: dict[str, GivenPage] = {}
        decode, encode, page_of, timestamps = self._decode, self._encode, attrgetter("_page"), self._timestamps
        nul = b"\\u0000" in body
        for index, item in enumerate(_items(body, form)):
            try:
                record = decode(item)
                if nul:
                    self._refuse_nul(record)
                if timestamps:
                    self._to_utc(record)
                page = page_of(record)
                if page is not None:
                    given = self._page(page)
                    pages[given.page.id] = given
                    setattr(record, "_page", _PageLine(**asdict(given.page)))  # noqa: B010  made at run time
            except (*_MALFORMED, BadInput) as error:
                refused.append(Refusal(index, self._reason(error)))
            else:
                lines.append(encode(record))
        return Admitted(lines, refused, list(pages.values()))

    def _refuse_nul(self, record: msgspec.Struct) -> None:
        for name in self._strings:
            value = getattr(record, name) or ""
            if any("\0" in text for text in ([value] if isinstance(value, str) else value)):
                raise BadInput(f"field '{name}': a string cannot have the character NUL")

    def _to_utc(self, record: msgspec.Struct) -> None:
        for name in self._timestamps:
            value = getattr(record, name)
            if value is not None:
                try:
                    setattr(record, name, [_utc(one) for one in value] if isinstance(value, list) else _utc(value))
                except OverflowError:
                    raise BadInput(f"field '{name}': not within the years 1 to 9999 in UTC") from None

    def _page(self, form: _PageForm) -> GivenPage:
        try:
            return _given_page(form, self.max_page_bytes)
        except BadInput as error:
            raise BadInput(f"field '_page': {error}") from None

    def _reason(self, error: Exception) -> str:
        """What msgspec says, with the field in front."""
        message = str(error)
        if isinstance(error, UnicodeDecodeError):
            return f"a string is not valid UTF-8: {error.reason}, byte 0x{error.object[error.start]:02x}"
        if isinstance(error, RecursionError):
            return "JSON is nested too deeply"
        if known := re.fullmatch(r"(?s)(.*) - at `\$\.(.*)`", message):
            return f"field '{known[2]}': {known[1]}"
        if known := re.fullmatch(r"(?s)Object missing required field `(.*)`", message):
            return f"field '{known[1]}': is missing"
        if known := re.fullmatch(r"(?s)Object contains unknown field `(.*)`", message):
            return f"field '{known[1]}': not in dataset '{self.dataset.name}'"
        return message


def _or_null(type: str) -> UnionType:
    known = _PYTHON[type]
    return cast("UnionType", known | None)


def _utc(time: datetime.datetime) -> datetime.datetime:
    return time.astimezone(datetime.UTC)


def _given_page(form: _PageForm, max_bytes: int) -> GivenPage:
    if [form.text, form.base64, form.url].count(None) != 2:
        raise BadInput("give one of text, base64 and url")
    if (form.url is None) != (form.size is None):
        raise BadInput("size goes with url, and url with size")
    if form.url is not None and form.size is not None:
        return GivenPage(elsewhere(form.url, form.size, form.type or "application/octet-stream"))
    if form.text is not None:
        content, type = form.text.encode(), form.type or "text/plain; charset=utf-8"
    else:
        content, type = form.base64 or b"", form.type or "application/octet-stream"
    if len(content) > max_bytes:
        raise BadInput(f"{len(content)} bytes; at most {max_bytes} are allowed")
    return GivenPage(carried(content, type), content)


def _items(body: bytes, form: Form) -> Sequence[bytes | msgspec.Raw]:
    body = body.removeprefix(b"\xef\xbb\xbf")
    if form == "ndjson":
        return [line for line in body.split(b"\n") if not line.isspace() and line]
    begin = body.lstrip(b" \t\r\n")[:1]
    if not begin:
        raise BadInput("body: empty; give one JSON object or an array of them")
    try:
        return _RAWS.decode(body) if begin == b"[" else [_RAW.decode(body)]
    except RecursionError:
        raise BadInput("body: JSON is nested too deeply") from None
    except msgspec.DecodeError as error:
        return _items_slowly(body, begin == b"[", str(error))


def _items_slowly(body: bytes, array: bool, fault: str) -> list[bytes]:
    """The items of JSON that msgspec cannot take apart: a lone surrogate in one must not stop the others."""
    try:
        text = body.decode("utf-8", "surrogateescape")
        values = json.loads(text)
        items = [json.dumps(value, ensure_ascii=True) for value in (values if array else [values])]
    except (ValueError, RecursionError):
        place = "" if "(byte " in fault else f" (byte {len(body)})"
        raise BadInput(f"body: {fault}{place}") from None
    return [item.encode() for item in items]
