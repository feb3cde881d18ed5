"""Entries of type `mcp` in `tools`: a server, which of its tools the model may call, and which need an approval."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import urlsplit

from ....errors import BadRequest
from ....grammar.tool import Tool
from ....types import Json
from ...fields import Fields, as_strings
from ..kind import CalledTool
from .kind import MCP

TYPE = "mcp"
MAX_LABEL_LENGTH = 64
MAX_NAME_LENGTH = 128
_WORD = re.compile(r"[a-zA-Z0-9_-]+")
_REFUSED = {
    "connector_id": "Connectors run at OpenAI, with access that OpenAI holds. Pass 'server_url' of an MCP server, or "
    "give the client a server: hosted_tools={'mcp': {label: server}}.",
    "tunnel_id": "Tunnels run at OpenAI. Give the client a server: hosted_tools={'mcp': {label: server}}.",
}


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Tools of a server: by name, by their hint that they only read, or both."""

    names: frozenset[str] | None = None
    read_only: bool | None = None

    def matches(self, tool: Json) -> bool:
        """True for a tool, in the form that items have, that it selects."""
        hint = (tool.get("annotations") or {}).get("readOnlyHint")
        return (self.names is None or tool["name"] in self.names) and self.read_only in (None, hint is True)


@dataclass(frozen=True, slots=True)
class Approval:
    """Tools of a server whose calls wait for an approval."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None

    def needs(self, tool: Json) -> bool:
        """True if a call needs an approval. A tool that no filter names needs one, if some are said to need none."""
        if self.always is not None and self.always.matches(tool):
            return True
        if self.never is not None:
            return not self.never.matches(tool)
        return self.always is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry(Tool):
    """A server of a request. The model sees its tools, once they are known."""

    label: str
    url: str | None
    secrets: Mapping[str, str] = field(repr=False)
    """Headers of requests to the URL."""
    allowed: ToolFilter
    approval: Approval

    def tools(self, listed: Sequence[Json]) -> list[McpTool]:
        """Tools that the model sees of those that the server has, in the form that items have."""
        return [self.tool(each) for each in listed if self.allowed.matches(each)]

    @property
    def _about(self) -> str | None:
        """Description of the server, for each of its tools."""
        return f"{self.label}: {self.description}" if self.description else None

    def tool(self, listed: Json) -> McpTool:
        """A tool of the server."""
        return McpTool(
            model_name(self.label, listed["name"]),
            parameters=listed["input_schema"],
            strict=False,
            description="\n".join(filter(None, (listed.get("description"), self._about))) or None,
            path=self.path,
            hosted=MCP,
            server=self,
            own_name=listed["name"],
            needs_approval=self.approval.needs(listed),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool(CalledTool):
    """A tool of a server, which the model sees as a function."""

    server: ServerEntry
    own_name: str
    """Name that the server has for it."""
    needs_approval: bool


def model_name(label: str, name: str) -> str:
    """Name that the model has for a tool of a server: the same in all requests, and no other tool's."""
    plain = f"{label}__{name}"
    is_clear = "__" not in label and not label.endswith("_") and not name.startswith("_")
    if is_clear and len(plain) <= MAX_NAME_LENGTH and _WORD.fullmatch(plain):
        return plain
    digest = sha256(f"{label}\n{name}".encode(errors="replace")).hexdigest()[:8]
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', plain)[: MAX_NAME_LENGTH - 9]}_{digest}"


def read_server(fields: Fields) -> ServerEntry:
    """Read an entry of `tools`.

    Raises:
        BadRequest: with the path of what is wrong.
    """
    fields.get("type")
    label = fields.word("server_label", MAX_LABEL_LENGTH)
    if not _WORD.fullmatch(label):
        why = "expected a string that contains only letters, numbers, underscores, and dashes"
        raise BadRequest.refused(fields.at("server_label"), why)
    fields.refuse(_REFUSED)
    fields.boolean("defer_loading")
    fields.get("allowed_callers")
    made = ServerEntry(
        f"{TYPE}.{label}",  # no function can have a name with a dot
        description=fields.string("server_description"),
        path=fields.path,
        label=label,
        url=_read_url(fields),
        secrets=_read_secrets(fields),
        allowed=_read_allowed(fields),
        approval=_read_approval(fields),
    )
    fields.finish()
    return made


def shown_entry(entry: Json) -> Json:
    """An entry that was read, as responses show it: without secrets, which a URL's path may hold, too."""
    shown = {name: None if name == "headers" else value for name, value in entry.items() if name != "authorization"}
    if isinstance(entry.get("server_url"), str):
        parts = urlsplit(entry["server_url"])
        shown["server_url"] = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/<redacted>"
    return shown


def has_servers(body: Mapping[str, object]) -> bool:
    """True if the tools of a body, untrusted, name a server."""
    tools = body.get("tools")
    return isinstance(tools, list | tuple) and any(
        isinstance(each, Mapping) and each.get("type") == TYPE for each in tools
    )


def _read_url(fields: Fields) -> str | None:
    url = fields.string("server_url")
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        is_right = False
    if not is_right:
        why = "expected an http:// or https:// URL without a user name or password"
        raise BadRequest.refused(fields.at("server_url"), why)
    return url


def _read_secrets(fields: Fields) -> dict[str, str]:
    headers = fields.mapping("headers") or {}
    for name, value in headers.items():
        if not isinstance(value, str):
            raise BadRequest.wrong_type(f"{fields.at('headers')}.{name}", "a string", value)
        if not (isinstance(name, str) and _is_header(name, value)):
            why = "a header's name and value must be printable ASCII characters, and the name a single word"
            raise BadRequest.refused(fields.at("headers"), why)
    token = fields.string("authorization")
    if token is None:
        return {str(name): str(value) for name, value in headers.items()}
    if any(str(name).lower() == "authorization" for name in headers):
        text = f"Pass '{fields.at('authorization')}' or an Authorization header, not both."
        raise BadRequest(text, param=fields.at("authorization"))
    if not _is_header("Authorization", token):
        raise BadRequest.refused(fields.at("authorization"), "it must be printable ASCII characters")
    return {**{str(name): str(value) for name, value in headers.items()}, "Authorization": f"Bearer {token}"}


def _is_header(name: str, value: str) -> bool:
    return bool(re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) and re.fullmatch(r"[ -~]*", value))


def _read_allowed(fields: Fields) -> ToolFilter:
    value = fields.get("allowed_tools")
    if value is None:
        return ToolFilter()
    if isinstance(value, Mapping):
        return _read_filter(fields.inner("allowed_tools"))
    return ToolFilter(
        frozenset(as_strings(fields.at("allowed_tools"), value, "one of an array of strings or an object"))
    )


def _read_filter(inner: Fields) -> ToolFilter:
    names = as_strings(inner.at("tool_names"), inner.get("tool_names")) if inner.has("tool_names") else None
    made = ToolFilter(None if names is None else frozenset(names), inner.boolean("read_only"))
    inner.finish()
    return made


def _read_approval(fields: Fields) -> Approval:
    value = fields.get("require_approval")
    if isinstance(value, Mapping):
        with fields.inner("require_approval") as inner:
            filters = {name: _read_filter(inner.inner(name)) for name in ("always", "never") if inner.has(name)}
        return Approval(**filters)
    return (
        Approval(never=ToolFilter())
        if fields.choice("require_approval", ("always", "never")) == "never"
        else Approval()
    )
