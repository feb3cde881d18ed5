"""The tokenizer of a scripted model: every piece that a script has is one token, whatever its bytes.

It has what clients read of mlx-lm's `TokenizerWrapper`, and needs neither mlx-lm nor transformers.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser

from ...output.detokenizer import byte_of_char
from ...threads.system import Lock

Piece = str | bytes | int
"""One token: its text, its bytes, or its id. A text that is a marker is the marker's token; bytes never are."""

CHATML = "chatml"
_START, _END = "<|im_start|>", "<|im_end|>"
_WORDS = re.compile(r"\s*\S+|\s+")

# The built-in template; `_chatml` puts in what the model does.
_TEMPLATE = r"""
{%- set system = messages[0].content if messages and messages[0].role == 'system' else none -%}
{%- set skipped = 0 if system is none else 1 -%}
@OFFER
{%- if system is not none -%}{{ '<|im_start|>system\n' + system + '<|im_end|>\n' }}{%- endif -%}
{%- for message in messages[skipped:] -%}
{%- if message.role == 'tool' -%}
{{ '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- else -%}
{{ '<|im_start|>' + message.role + '\n' }}
@THOUGHT
{{- message.content or '' -}}
@CALLS
{%- endif -%}
{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
@NO_THOUGHT
{%- endif -%}
"""
_THINKING = {
    "@THOUGHT": r"""
{%- if message.reasoning_content -%}
{{ @START + '\n' + message.reasoning_content + '\n' + @END + '\n\n' }}
{%- endif -%}""",
    "@NO_THOUGHT": r"""
{%- if enable_thinking is defined and not enable_thinking -%}
{{ @START + '\n\n' + @END + '\n\n' }}
{%- endif -%}""",
}
_TOOLS = {
    "@OFFER": r"""
{%- if tools -%}
{%- set system = (system + '\n\n' if system else '') + '# Tools\n<tools>\n' -%}
{%- set system = system + (tools | map('tojson') | join('\n')) + '\n</tools>' -%}
{%- endif -%}""",
    "@CALLS": r"""
{%- for call in message.tool_calls or [] -%}
{{ '\n' if message.content or not loop.first else '' }}
{{- @START + '\n{"name": ' + (call.function.name | tojson) }}
{{- ', "arguments": ' + (call.function.arguments | tojson) + '}\n' + @END }}
{%- endfor -%}""",
}


class ScriptedTokenizer:
    """Tokenizer with 256 byte tokens, markers as special tokens, and a token for every longer piece of a script.

    `encode` uses only bytes and markers, so that a prompt's length does not depend on earlier replies; `decode` knows
    all tokens. Can be used from several threads.

    Args:
        think: Start and end of a reasoning block; None for a model that does not reason.
        tool_format: Tool-call format, as for `LocalOpenAI`, or mlx-lm's name; None for a model without tool calls.
        tool_markers: Start and end of a tool call in the built-in template; the end is empty if a call ends with the
            turn.
        markers: Additional special tokens.
        chat_template: Jinja template. The built-in CHATML reads `messages`, `tools`, and `enable_thinking`. None for a
            model that was not tuned for chat.

    Example:
        >>> from localai_shim.testing import ScriptedTokenizer
        >>> tokenizer = ScriptedTokenizer()
        >>> tokenizer.decode(tokenizer.encode("Hello there"))
        'Hello there'
    """

    def __init__(
        self,
        *,
        think: tuple[str, str] | None = ("<think>", "</think>"),
        tool_format: str | None = "hermes",
        tool_markers: tuple[str, str] = ("<tool_call>", "</tool_call>"),
        markers: Sequence[str] = (),
        chat_template: str | None = CHATML,
    ) -> None:
        tools = tool_markers if tool_format is not None else None
        special = dict.fromkeys(m for m in (_START, _END, *(think or ()), *(tools or ()), *markers) if m)
        self._lock = Lock()
        self._bytes: list[bytes] = [bytes([b]) for b in range(256)] + [marker.encode() for marker in special]
        self._special = {marker: 256 + i for i, marker in enumerate(special)}
        self._ids = {piece: i for i, piece in enumerate(self._bytes[:256])}
        longest_first = sorted(special, key=len, reverse=True)
        self._marker = re.compile("(" + "|".join(re.escape(marker) for marker in longest_first) + ")")
        self.all_special_ids = list(self._special.values())
        self.added_tokens_decoder = {token_id: marker for marker, token_id in self._special.items()}
        self.eos_token, self.eos_token_id = _END, self._special[_END]
        self.eos_token_ids = {self.eos_token_id}
        self.bos_token = self.bos_token_id = None
        self.chat_template = _chatml(think, tools) if chat_template == CHATML else chat_template
        self.has_chat_template = chat_template is not None
        self._compiled = None if self.chat_template is None else _environment().from_string(self.chat_template)
        self.backend_tokenizer = SimpleNamespace(decoder="ByteLevel")  # where `TokenBytes` looks how tokens are written
        none: tuple[str | None, str | None] = (None, None)
        self.think_start, self.think_end = think or none
        self.tool_call_start, self.tool_call_end = tools or none
        self.tool_format = tool_format

    def __len__(self) -> int:
        return len(self._bytes)

    # -- text to tokens -----------------------------------------------------------------------------------------

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Encode a text: one token per marker, and one per byte of other text. Nothing is added."""
        out: list[int] = []
        for i, part in enumerate(self._marker.split(text)):
            out.extend([self._special[part]] if i % 2 else part.encode())
        return out

    def split(self, text: str) -> list[str]:
        """Split a text into pieces: markers, and words with the space before them."""
        out: list[str] = []
        for i, part in enumerate(self._marker.split(text)):
            out.extend([part] if i % 2 else _WORDS.findall(part))
        return out

    def intern(self, piece: Piece) -> int:
        """Return the token of a piece, and add it if it is new.

        Raises:
            ValueError: No such token, or the text contains lone surrogates.
        """
        if isinstance(piece, int):
            if not 0 <= piece < len(self):
                raise ValueError(f"{piece} is not a token: ids go from 0 to {len(self) - 1}")
            return piece
        if isinstance(piece, str):
            if piece in self._special:
                return self._special[piece]
            piece = piece.encode()
        with self._lock:
            token_id = self._ids.setdefault(piece, len(self._bytes))
            if token_id == len(self._bytes):
                self._bytes.append(piece)
        return token_id

    # -- and back -----------------------------------------------------------------------------------------------

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes of a token."""
        return self._bytes[token_id]

    def spelling(self, token_id: int) -> Sequence[int]:
        """The tokens of the fixed vocabulary, markers and bytes, with the same bytes."""
        return [token_id] if token_id < 256 + len(self._special) else list(self._bytes[token_id])

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Decode tokens; bytes that are not UTF-8 become U+FFFD."""
        kept = (i for i in ids if not (skip_special_tokens and i in self.all_special_ids))
        return b"".join(self._bytes[i] for i in kept).decode(errors="replace")

    def convert_ids_to_tokens(self, token_id: int) -> str | None:
        """Return a token as vocabularies write it; None for an unknown ID."""
        return self._spell(token_id) if 0 <= token_id < len(self) else None

    def _spell(self, token_id: int) -> str:
        """A marker as it is; all others in GPT-2's byte-level alphabet."""
        if 256 <= token_id < 256 + len(self._special):
            return self._bytes[token_id].decode()
        return "".join(_CHARS[byte] for byte in self._bytes[token_id])

    def get_vocab(self) -> dict[str, int]:
        """Token -> id."""
        return {self._spell(i): i for i in range(len(self))} | self._special

    # -- conversations ------------------------------------------------------------------------------------------

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None = None,
        *,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        continue_final_message: bool = False,
        **variables: object,
    ) -> Any:
        """Render a conversation as text or tokens, as transformers does.

        With `continue_final_message`, it ends after the content of the last message.

        Raises:
            jinja2.TemplateError: The template rejects the conversation.
        """
        if self._compiled is None:
            raise jinja2.TemplateError("this tokenizer has no chat template")
        text = self._compiled.render(
            messages=messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            bos_token=self.bos_token or "",
            eos_token=self.eos_token,
            **variables,
        )
        if continue_final_message:
            last = str(messages[-1]["content"])
            text = text[: text.rindex(last) + len(last)]
        return self.encode(text) if tokenize else text


_CHARS = {byte: char for char, byte in byte_of_char().items()}


def _chatml(think: tuple[str, str] | None, tools: tuple[str, str] | None) -> str:
    """The built-in template, without the parts that are about what the model does not do."""
    template = _TEMPLATE
    for parts, markers in ((_THINKING, think), (_TOOLS, tools)):
        for place, part in parts.items():
            if markers is not None:
                start, end = (json.dumps(marker, ensure_ascii=False) for marker in markers)
                part = part.replace("@START", start).replace("@END", end)
            template = template.replace(f"\n{place}\n", f"{part}\n" if markers else "\n")
    return template


class _Generation(jinja2.ext.Extension):
    """Templates may mark the assistant's text, for training; here that has no effect."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> jinja2.Environment:
    """Jinja with what transformers gives to chat templates, but no sandbox: this one is the test's own."""
    made = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"])
    made.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
    made.globals.update(raise_exception=_raise_exception, strftime_now=lambda format: datetime.now().strftime(format))
    return made


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
