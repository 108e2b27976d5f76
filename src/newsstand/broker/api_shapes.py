"""The shapes of requests and answers, as they are read and as /openapi.json tells them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from newsstand.serving.refusals import Problem

Value = StrictStr | StrictBool | StrictInt | StrictFloat
Position = Annotated[StrictInt, Field(ge=0, le=2**63 - 1)]
Bytes = Position


class Body(BaseModel):
    """A body that has these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class Registration(Body):
    """A subscriber that is to be."""

    name: StrictStr = Field(description="1 to 64 letters, digits or any of _ . @ -")
    password: StrictStr = Field(description="8 to 1024 characters")


class AllowedShape(Body):
    """Channels whose name fits a pattern, with values that fit; `*` and `?` stand for any text or character."""

    channel: StrictStr
    values: dict[str, Value | list[Value]] = {}


class Login(Body):
    """Who logs in, and what the session is to be limited to."""

    name: StrictStr
    password: StrictStr
    allow: list[AllowedShape] | None = None


class NewPassword(Body):
    """Another password; a subscriber proves that it knows the current one."""

    password: StrictStr = Field(description="8 to 1024 characters")
    current: StrictStr | None = Field(None, description="the password until now; an operator leaves it out")


class Refresh(Body):
    """A refresh token."""

    refresh: StrictStr


class NewSubscription(Body):
    """What is subscribed to, and from where on."""

    channel: StrictStr
    values: dict[str, Value] | list[Value] = Field({}, description="by name, or in the order of the parameters")
    since: Literal["now", "earliest"] | Position = "now"
    subscriber: StrictStr | None = Field(None, description="whose subscription it is to be; for operators")


class Acknowledgement(Body):
    """Everything up to this position has been received."""

    position: Position


class ResultsPolicy(Body):
    """How results are cached."""

    policy: StrictStr | None = None
    budget: Bytes | None = None


class PagesPolicy(Body):
    """How pages are cached."""

    policy: StrictStr | None = None
    capacity: Bytes | None = None
    push: Literal["needed", "always"] | None = None


class PolicyShape(Body):
    """What a broker caches, and how. A PUT changes what it names."""

    results: ResultsPolicy = ResultsPolicy()
    pages: PagesPolicy = PagesPolicy()


class AccountShape(BaseModel):
    """A subscriber as operators see it."""

    name: str
    broker: str = Field(description="its home")
    subscriptions: int
    sessions: int
    state: Literal["active", "disabled"]
    created: int | None = Field(description="in Unix seconds; null if it is not known")


class AccountsShape(BaseModel):
    """A page of subscribers."""

    subscribers: list[AccountShape]
    next: str | None = Field(description="give it as `after` to go on; null if this is the last page")


class NameShape(BaseModel):
    """A subscriber's name."""

    name: str


class PairShape(BaseModel):
    """An access token for `expires_in` seconds, and a refresh token that is good once."""

    access: str
    refresh: str
    expires_in: int
    subscriber: str


class ChannelShape(BaseModel):
    """A channel that can be subscribed to."""

    name: str
    parameters: dict[str, str]
    period_s: float | None
    bind: dict[str, str] = Field(description="parameters that a claim of the subscriber decides")


class ChannelsShape(BaseModel):
    """Channels that the token may be used for; `next` is the `after` of the next page, null at the end."""

    channels: list[ChannelShape]
    next: str | None


class SuspendedShape(BaseModel):
    """Why the cluster leaves a subscription out, and since when."""

    error: str
    since_ms: int


class FrontendShape(BaseModel):
    """A subscription."""

    id: str
    channel: str
    values: dict[str, str | bool | int | float]
    stream: str = Field(description="what notifications call it")
    position: int = Field(description="up to where it is acknowledged")
    head: int = Field(description="the newest position")
    suspended: SuspendedShape | None = Field(
        None, description="set while the channel's query fails on the values, so that nothing comes"
    )


class FrontendsShape(BaseModel):
    """Subscriptions of the subscriber's; `next` as for channels."""

    subscriptions: list[FrontendShape]
    next: str | None


class DeliveredShape(BaseModel):
    """One result, and where it came from."""

    position: int
    at_ms: int
    payload: dict[str, Any]
    publication: int | None
    page: dict[str, Any] | None
    origin: Literal["cache", "cluster"]
    latency_ms: float


class DeliveryShape(BaseModel):
    """Pending results, oldest first."""

    results: list[DeliveredShape]
    head: int
    next: int | None = Field(description="the position of the last one if more are pending")


class PositionShape(BaseModel):
    """Up to where a subscription is acknowledged."""

    position: int


class GoneProblem(Problem):
    """Retention has removed what was asked for."""

    earliest: int = Field(description="the first position that is left")
