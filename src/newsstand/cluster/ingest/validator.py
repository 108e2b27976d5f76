"""Validation: each record is accepted or rejected individually, and accepted ones become lines of the log.

A record is a flat JSON object with the dataset's fields. It may also have `_page`, the page that the publication
carries (`{"text": …}` or `{"base64": …}`) or points to (`{"url": …, "size": n}`), each with an optional `type`.
No other field begins with an underscore. A null is equivalent to a missing field.

A timestamp is RFC 3339 with a zone; without a zone it is rejected, since a wrong guess would go unnoticed. It is
stored in UTC, to the microsecond. A string has no NUL character, which PostgreSQL cannot store.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec

from newsstand.cluster.pages.store import MAX_PAGE_BYTES, GivenPage, content_page, linked_page
from newsstand.errors import BadBody, BadInput
from newsstand.model import Dataset
from newsstand.wire.cluster import Rejection

RecordFormat = Literal["json", "ndjson"]
"""The format of a body: one JSON object or an array of them, or one object a line."""


def item_type(type: str) -> str | None:
    """Return the type of an array's items, None for the type of a single value."""
    return type.removeprefix("array<").removesuffix(">") if type.startswith("array<") else None


@dataclass(frozen=True)
class ValidatedRecords:
    """The outcome of a body: lines for the log, in order; rejected records; pages to store before the lines."""

    lines: list[bytes]
    rejected: list[Rejection]
    pages: list[GivenPage]


class _PageField(msgspec.Struct, forbid_unknown_fields=True):
    """`_page` in a request."""

    text: str | None = None
    base64: bytes | None = None
    url: str | None = None
    size: int | None = None
    type: str | None = None


class _PageLine(msgspec.Struct, omit_defaults=True):
    """`_page` in the log."""

    id: str
    size: int
    type: str
    url: str | None = None


_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Timestamp = Annotated[datetime.datetime, msgspec.Meta(tz=True)]
_SCALARS = {"string": str, "integer": _Integer, "double": float, "boolean": bool, "timestamp": _Timestamp}
_PYTHON: dict[str, Any] = _SCALARS | {
    f"array<{name}>": GenericAlias(list, (kind,)) for name, kind in _SCALARS.items()
}
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_RAW = msgspec.json.Decoder(msgspec.Raw)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])


class RecordValidator:
    """The validator of a dataset's records, which also encodes the lines that go to the log."""

    def __init__(self, dataset: Dataset, max_page_bytes: int = MAX_PAGE_BYTES) -> None:
        self.dataset = dataset
        self.max_page_bytes = max_page_bytes
        required = [(field.name, _PYTHON[field.type]) for field in dataset.fields if not field.optional]
        optional = [(field.name, _PYTHON[field.type] | None, None) for field in dataset.fields if field.optional]
        record = msgspec.defstruct(
            dataset.name,
            [*required, *optional, ("_page", _PageField | None, None)],
            forbid_unknown_fields=True,
            omit_defaults=True,
            gc=False,
        )
        self._decode = msgspec.json.Decoder(record).decode
        self._encode = msgspec.json.Encoder().encode
        self._strings = [field.name for field in dataset.fields if "string" in field.type]
        self._timestamps = [field.name for field in dataset.fields if "timestamp" in field.type]

    def validate(self, body: bytes, format: RecordFormat = "json") -> ValidatedRecords:
        """Validate the records of a body; raise `BadInput` if it is not JSON as a whole.

        In NDJSON, blank lines are skipped and a malformed line is a rejected record.
        """
        lines: list[bytes] = []
        rejected: list[Rejection] = []
        pages: dict[str, GivenPage] = {}
        decode, encode, page_of, timestamps = self._decode, self._encode, attrgetter("_page"), self._timestamps
        nul = b"\\u0000" in body
        for index, item in enumerate(_items(body, format)):
            try:
                record = decode(item)
                if nul:
                    self._reject_nul(record)
                if timestamps:
                    self._to_utc(record)
                page = page_of(record)
                if page is not None:
                    given = self._page(page)
                    pages[given.page.id] = given
                    setattr(record, "_page", _PageLine(**asdict(given.page)))  # noqa: B010  made at run time
            except (*_MALFORMED, BadInput) as error:
                rejected.append(Rejection(index, self._reason(error)))
            else:
                lines.append(encode(record))
        return ValidatedRecords(lines, rejected, list(pages.values()))

    def _reject_nul(self, record: msgspec.Struct) -> None:
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

    def _page(self, form: _PageField) -> GivenPage:
        try:
            return _given_page(form, self.max_page_bytes)
        except BadInput as error:
            raise BadInput(f"field '_page': {error}") from None

    def _reason(self, error: Exception) -> str:
        """Return msgspec's message, with the field in front."""
        message = str(error)
        if isinstance(error, UnicodeDecodeError):
            return f"a string is not valid UTF-8: {error.reason}, byte 0x{error.object[error.start]:02x}"
        if isinstance(error, RecursionError):
            return "JSON is nested too deeply"
        if match := re.fullmatch(r"(?s)(.*) - at `\$\.(.*)`", message):
            return f"field '{match[2]}': {match[1]}"
        if match := re.fullmatch(r"(?s)Object missing required field `(.*)`", message):
            return f"field '{match[1]}': is missing"
        if match := re.fullmatch(r"(?s)Object contains unknown field `(.*)`", message):
            return f"field '{match[1]}': not in dataset '{self.dataset.name}'"
        return message


def _utc(time: datetime.datetime) -> datetime.datetime:
    return time.astimezone(datetime.UTC)


def _given_page(form: _PageField, max_bytes: int) -> GivenPage:
    if [form.text, form.base64, form.url].count(None) != 2:
        raise BadInput("give one of text, base64 and url")
    if (form.url is None) != (form.size is None):
        raise BadInput("size goes with url, and url with size")
    if form.url is not None and form.size is not None:
        return GivenPage(linked_page(form.url, form.size, form.type or "application/octet-stream"))
    if form.text is not None:
        content, type = form.text.encode(), form.type or "text/plain; charset=utf-8"
    else:
        content, type = form.base64 or b"", form.type or "application/octet-stream"
    if len(content) > max_bytes:
        raise BadInput(f"{len(content)} bytes; at most {max_bytes} are allowed")
    return GivenPage(content_page(content, type), content)


def _items(body: bytes, format: RecordFormat) -> Sequence[bytes | msgspec.Raw]:
    body = body.removeprefix(b"\xef\xbb\xbf")
    if format == "ndjson":
        return [line for line in body.split(b"\n") if not line.isspace() and line]
    begin = body.lstrip(b" \t\r\n")[:1]
    if not begin:
        raise BadBody("body: empty; give one JSON object or an array of them")
    try:
        return _RAWS.decode(body) if begin == b"[" else [_RAW.decode(body)]
    except RecursionError:
        raise BadBody("body: JSON is nested too deeply") from None
    except msgspec.DecodeError as error:
        return _items_slowly(body, begin == b"[", str(error))


def _items_slowly(body: bytes, array: bool, fault: str) -> list[bytes]:
    """Split JSON that msgspec cannot split: a lone surrogate in one record must not affect the others."""
    try:
        text = body.decode("utf-8", "surrogateescape")
        values = json.loads(text)
        return [json.dumps(value).encode() for value in (values if array else [values])]
    except (ValueError, RecursionError):
        place = "" if "(byte " in fault else f" (byte {len(body)})"
        raise BadBody(f"body: {fault}{place}") from None
