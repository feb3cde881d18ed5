"""Requests of a scripted client: each as its caller sent it, with its outcome."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..prompt.items import qualified_name
from ..types import Json

if TYPE_CHECKING:
    from .model.replies import PlayedRow

_NOT_PARAMETERS = {"model", "messages", "input", "instructions", "prompt", "tools", "functions", "stream", "file"}
_GENERATED_ID = re.compile(r"\b(call|resp|msg|rs|fc|ctc|conv|chatcmpl|cmpl|req)_?-?[0-9a-f]{16,}\b")


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that a request offers, as it was sent, and the namespace that it is in."""

    sent: Json
    namespace: str | None = None

    @property
    def fields(self) -> Json:
        """Its own fields, name and parameters among them."""
        return tool_fields(self.sent)

    @property
    def is_custom(self) -> bool:
        """It takes a text instead of arguments."""
        return self.sent.get("type") == "custom"

    @property
    def is_server(self) -> bool:
        """It is an MCP server, whose tools the request does not name."""
        return self.sent.get("type") == "mcp"

    def has(self, name: str) -> bool:
        """True if it is an MCP server that may have a tool of this name, such as `calc__add`."""
        return self.is_server and name.startswith(f"{self.sent.get('server_label')}__")

    @property
    def name(self) -> str:
        """Its own name."""
        return str(self.fields.get("name", self.sent.get("type")))

    @property
    def full_name(self) -> str:
        """The name that tells it from those of other namespaces."""
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"

    @property
    def written_name(self) -> str:
        """The name that a model has for it."""
        return qualified_name(self.namespace, self.name)


@dataclass(slots=True, eq=False)
class Request:
    """One request to a scripted client: an entry of `client.calls`, and the argument of callables and predicates.

    Example:
        >>> from localai_shim.testing import Request, scripted
        >>> def reply(request: Request) -> str:
        ...     return f"You said {request.user!r}, and {request.parameters}."
        >>> with scripted(reply) as client:
        ...     client.responses.create(model="any", input="Hi", temperature=0).output_text
        "You said 'Hi', and {'temperature': 0}."
    """

    api: str
    """`chat.completions`, `responses`, `completions`, `responses.compact`, `embeddings`, `rerank`,
    `audio.transcriptions`, `audio.translations` or `audio.speech`."""
    body: Json
    """Body of the request, as plain JSON."""
    prompt: str
    """Prompt, rendered by the chat template."""
    prompt_tokens: int = 0
    attempt: int = 0
    """Number of retries before this request."""
    choice: int = 0
    """Index of the choice that a callable answers."""
    tool_calls: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """Calls in the answer: name and arguments, or their text if it is not JSON."""
    errors: list[BaseException] = field(default_factory=list[BaseException], repr=False)
    """Scripted errors of its choices."""
    choices: list[PlayedRow] = field(default_factory=list["PlayedRow"], repr=False)
    """Choices that were played."""
    texts: list[str] = field(default_factory=list[str])
    """Texts that are embedded, or documents that are ranked; token IDs are decoded."""

    @property
    def wants_vectors(self) -> bool:
        """True if the answer is vectors or scores instead of text."""
        return self.api in ("embeddings", "rerank")

    @property
    def wants_text(self) -> bool:
        """True if the answer has a text."""
        return not self.wants_vectors and self.api != "audio.speech"

    @property
    def has_sound(self) -> bool:
        """True if the answer is what is said in a file."""
        return self.api in ("audio.transcriptions", "audio.translations")

    @property
    def file(self) -> Json | None:
        """The audio file of a transcription: its `name`, `bytes` (their number), and `sha256`."""
        found = self.body.get("file")
        return found if isinstance(found, dict) else None

    @property
    def error(self) -> BaseException | None:
        """Scripted error of the request, if any."""
        return self.errors[0] if self.errors else None

    @property
    def model(self) -> str:
        return str(self.body.get("model") or "")

    @property
    def messages(self) -> list[Json]:
        """Chat messages as they were sent; for other APIs, their input as messages or input items."""
        if self.wants_vectors:
            return [{"role": "user", "content": text} for text in self.texts]
        given = self.body.get("messages", self.body.get("input", self.body.get("prompt")))
        items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
        if isinstance(instructions := self.body.get("instructions"), str):
            items.insert(0, {"role": "system", "content": instructions})
        return [item if isinstance(item, dict) else {"role": "user", "content": item} for item in items]

    @property
    def tools(self) -> list[Json]:
        old = [{"type": "function", "function": each} for each in self.body.get("functions") or ()]
        search = [{"type": "web_search"}] if self.body.get("web_search_options") is not None else []
        return [*(self.body.get("tools") or old), *search]

    @property
    def tool_names(self) -> list[str]:
        """Names of the offered tools, such as `get_customer`, or `crm.get_customer` in a namespace."""
        return [tool.full_name for tool in self.offered_tools]

    @property
    def offered_tools(self) -> list[OfferedTool]:
        """Offered tools, including those in namespaces."""
        found: list[OfferedTool] = []
        for tool in self.tools:
            if tool.get("type") == "namespace":
                found += [OfferedTool(inner, str(tool.get("name"))) for inner in tool.get("tools") or ()]
            else:
                found.append(OfferedTool(tool))
        return found

    def offered_tool(self, name: str, namespace: str | None = None) -> OfferedTool | None:
        """Find an offered tool by its name, with or without the namespace."""
        tools = [tool for tool in self.offered_tools if namespace in (None, tool.namespace)]
        whole = (tool for tool in tools if name in (tool.full_name, tool.written_name))
        found = next(whole, None) or next((tool for tool in tools if name == tool.name), None)
        return found or next(
            (OfferedTool({"type": "function", "name": name}) for tool in tools if tool.has(name)), None
        )

    @property
    def tool_choice(self) -> Any:
        return self.body.get("tool_choice", self.body.get("function_call"))

    @property
    def response_format(self) -> Json | None:
        """`response_format`, or the Responses API's `text.format`."""
        given = self.body.get("response_format") or (self.body.get("text") or {}).get("format")
        return given if isinstance(given, dict) else None

    @property
    def _named_schema(self) -> Json:
        format = self.response_format or {}
        return dict(format.get("json_schema") or format)

    @property
    def schema(self) -> Json | None:
        """JSON schema of the answer."""
        found = self._named_schema.get("schema")
        return found if isinstance(found, dict) else None

    @property
    def schema_name(self) -> str | None:
        """Name of the answer's schema."""
        return self._named_schema.get("name")

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def parameters(self) -> Json:
        """All other fields: temperature, max_tokens, metadata, and others."""
        return {name: value for name, value in self.body.items() if name not in _NOT_PARAMETERS}

    @property
    def system(self) -> str:
        """Text of all system and developer messages."""
        return "\n".join(_text(m) for m in self.messages if m.get("role") in ("system", "developer"))

    @property
    def user(self) -> str:
        """Text of the last user message."""
        return next((_text(m) for m in reversed(self.messages) if m.get("role") == "user"), "")

    @property
    def tool_results(self) -> list[str]:
        """Texts of tool results since the model's last message."""
        found: list[str] = []
        for message in reversed(self.messages):
            if message.get("role") in ("tool", "function"):
                found.append(_text(message))
            elif str(message.get("type", "")).endswith("_call_output"):
                found.append(_text({"content": message.get("output")}))
            elif message.get("role") not in ("user", "system", "developer"):  # some agents say more behind a result
                break
        return found[::-1]

    @property
    def completion_tokens(self) -> int:
        """Output tokens that were played so far."""
        return sum(choice.generated for choice in self.choices)

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def snapshot(self) -> Json:
        """Return the fields as a dict that is the same in each run: generated IDs are numbered."""
        known: dict[str, str] = {}

        def number(match: re.Match[str]) -> str:
            kind = match[1]
            return known.setdefault(match[0], f"{kind}_{sum(v.startswith(f'{kind}_') for v in known.values()) + 1}")

        body = {name: value for name, value in self.body.items() if value is not None}
        text = json.dumps({"api": self.api, **body}, ensure_ascii=False)
        return dict(json.loads(_GENERATED_ID.sub(number, text)))

    def brief(self) -> str:
        """Return one line that describes the request."""
        results = self.tool_results
        said = f"tool result: {_short(results[-1])}" if results else f"user: {_short(self.user)}"
        if self.wants_vectors:
            kind = "document" if self.api == "rerank" else "text"
            said = f"{len(self.texts)} {kind}{'s' * (len(self.texts) != 1)}: {_short(self.texts[0])}"
        if self.file is not None:
            said = f"file: {_short(str(self.file.get('name')))}"
        tools = f", tools: {', '.join(self.tool_names)}" if self.tool_names else ""
        return f"{self.api}(model={self.model!r}, {said}{tools})"

    def outcome(self) -> str:
        """Return the outcome in a few words."""
        retry = f" (retry {self.attempt})" if self.attempt else ""
        if self.error is not None:
            return f"{retry} -> {type(self.error).__name__}"
        called = "".join(f", {name}({arguments})" for name, arguments in self.tool_calls)
        if self.wants_vectors:
            return f"{retry} -> {len(self.texts)} {'scores' if self.api == 'rerank' else 'vectors'}"
        return f"{retry} -> {self.completion_tokens} tokens{called}"


def api_of(path: str) -> str:
    """The name of an endpoint, as the SDK's resources are called."""
    return path.strip("/").replace("/", ".")


def plain(value: object) -> object:
    """A copy of a field, with the types of images and other objects that are not JSON in their place."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):  # a file is a tuple
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return f"<{type(value).__name__}>"


def tool_fields(tool: Json) -> Json:
    """A tool's own fields, name and parameters among them: chat completions have them one level deeper."""
    found = tool.get(str(tool.get("type")))
    return found if isinstance(found, dict) else tool


def _text(message: Json) -> str:
    """A message's text, without what is none."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    return "" if content is None else str(content)


def _short(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else f"{text[: most - 1]}…")
