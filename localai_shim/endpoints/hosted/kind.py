"""Kinds of hosted tools: their functions, hooks, and items."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...grammar.tool import Tool
from ...prompt.messages import parsed_arguments
from ...types import Json
from ..fields import Fields
from .partial import Reader, StringReader

Options = Mapping[str, object]


class BadResultError(Exception):
    """A hook has returned something else than its kind demands. The message says what."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a call of a hook."""

    output: str
    """The text that the model reads."""
    found: Sequence[Json] = ()
    """Results in the form that items have."""
    failed: bool = False
    item: Json | None = None
    """Fields of the item that was recorded; None: the kind makes them."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names of a kind in the API."""

    item: str
    """Type of its output items."""
    prefix: str
    """Beginning of their ids."""
    working: str
    """Status of an item, and last word of its event, while the hook runs."""


class Calls:
    """Calls of hosted tools, as the model writes them and as events show them."""

    names: ClassVar[Names]
    argument: ClassVar[str]
    """Only argument of the function, and the item's field that has it."""
    text_events: ClassVar[str] = ""
    """Beginning of the types of events that stream the argument; empty: it is not streamed."""
    says_working: ClassVar[bool] = True
    """An event says that the tool works."""
    in_order: ClassVar[bool] = False
    """Calls of one turn are made one after the other: each may depend on the one before it."""
    says_failed: ClassVar[bool] = False
    """An event says that a call has failed."""

    def reader(self) -> Reader:
        """Reader of the argument while the model writes a call."""
        return StringReader(self.argument)

    def read_argument(self, arguments: str) -> str | None:
        """The argument of a call as the model wrote it; None: there is none."""
        read = parsed_arguments(arguments)
        value = read.get(self.argument) if isinstance(read, dict) else None
        return value if isinstance(value, str) else None

    def citations(self, text: str, found: Sequence[Json]) -> list[Json]:
        """Annotations of a message that names something that was found."""
        return []

    def pictures(self, item: Json) -> Sequence[str]:
        """`data:` URLs of an item's images, which models that see read behind the text."""
        return ()

    def sounds(self, item: Json) -> Sequence[str]:
        """`data:` URLs of an item's audio, which models that hear read behind the text."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledTool(Tool):
    """A tool that the client calls for the model, which sees it as a function."""

    hosted: Calls


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedTool(CalledTool):
    """A hosted tool of a request that a hook serves."""

    hosted: Kind
    type: str
    """Type that the request's entry gives."""
    options: Options
    """Fields of the request's entry that its hook gets."""


class Kind(Calls, ABC):
    """A kind of hosted tool: its function, its hook, and its items."""

    name: ClassVar[str]
    """Name of the function that the model sees, and of the hook in `hosted_tools`."""
    method: ClassVar[str]
    """Method of hooks that are objects."""
    types: ClassVar[tuple[str, ...]]
    """Types of the entries in `tools` that ask for it."""
    shown_types: ClassVar[Mapping[str, str]] = {}
    """Those of them that responses show as another one in `tool_choice`, because the SDK does not know them there."""
    description: ClassVar[str]
    about_argument: ClassVar[str]
    hints: ClassVar[Collection[str]] = ()
    """Options that a hook may do without."""
    streams: ClassVar[bool] = False
    """Hooks may return an iterator of unfinished results, and the last one."""

    def tool(self, fields: Fields) -> HostedTool:
        """The tool that an entry of `tools` asks for; reads all its fields.

        Raises:
            BadRequest: with the path of what is wrong.
        """
        kind = fields.text("type")
        options = {name: value for name, value in self.read_options(fields).items() if value is not None}
        fields.finish()
        text = {"type": "string", "description": self.about_argument}
        parameters = {
            "type": "object",
            "properties": {self.argument: text},
            "required": [self.argument],
            "additionalProperties": False,
        }
        return HostedTool(
            self.name,
            parameters,
            strict=None,
            description=self.description,
            path=fields.path,
            hosted=self,
            type=kind,
            options=options,
        )

    @abstractmethod
    def read_options(self, fields: Fields) -> dict[str, object]:
        """Fields of an entry of `tools`, without its type, as its hook gets them."""

    def options_in(self, options: Options, items: Sequence[Json]) -> Options:
        """Options of a response that continues these items."""
        return options

    def path_of(self, option: str) -> str:
        """Path of an option in an entry of `tools`."""
        return option

    @abstractmethod
    def outcome(self, returned: object) -> Outcome:
        """Read what a hook has returned.

        Raises:
            BadResultError: it is something else.
        """

    def read(self, returned: object, options: Options) -> Outcome:
        """Read what a hook has returned that was called with these options. Raises as `outcome` does."""
        return self.outcome(returned)

    def partial(self, returned: object, options: Options) -> Json:
        """Fields of the event for an unfinished result. Raises as `outcome` does."""
        raise NotImplementedError

    def most_partial(self, options: Options) -> int:
        """Maximum number of events for unfinished results."""
        return 0

    @abstractmethod
    def item_fields(self, argument: str, options: Options, found: Sequence[Json], include: Collection[str]) -> Json:
        """Fields of an item, besides those that all kinds have.

        Args:
            argument: of the call.
            options: of the response.
            found: results, once there are some.
            include: of the request.
        """

    @abstractmethod
    def read_item(self, fields: Fields) -> Json:
        """Such fields of an item that a caller sends back. Raises BadRequest with the path of what is wrong."""

    @abstractmethod
    def asked(self, item: Json) -> str:
        """Argument of the call that an item shows."""

    def found_in(self, item: Json) -> list[Json]:
        """Results of a call that an item shows, as far as it has them, in the form that `citations` takes."""
        return []

    @abstractmethod
    def shown_output(self, item: Json) -> str:
        """Text that the model reads of an item that does not say what it has read before."""


def value_of(owner: Any, name: str) -> Any:
    """A value that a hook has returned, under a key or as an attribute; None: there is none."""
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def text_of(owner: object, name: str, what: str, *, otherwise: str | None = None) -> str:
    """A text that a hook has returned. Lone surrogates become question marks: no JSON can be made of them.

    Args:
        what: for errors: what the owner is.
        otherwise: the text if there is none; None: there must be one.

    Raises:
        BadResultError: it is no text.
    """
    value = value_of(owner, name)
    if value is None:
        value = otherwise
    if not isinstance(value, str):
        raise BadResultError(f"{what} must have '{name}', a string, not {value!r}")
    return value.encode(errors="replace").decode()


def as_list(value: Any, what: str) -> list[Any]:
    """A list that a hook has returned.

    Raises:
        BadResultError: it is something else.
    """
    if isinstance(value, str | bytes | Mapping):
        raise BadResultError(f"{what} must be a list, not {type(value).__name__}")
    try:
        return list(value)
    except TypeError:
        raise BadResultError(f"{what} must be a list, not {type(value).__name__}") from None


def written(value: object) -> str:
    """JSON as the model reads it."""
    return json.dumps(value, ensure_ascii=False)
