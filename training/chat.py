"""The chat format: the Jinja template written into the checkpoint, and the same rendering in Python for training."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

IM_START: Final = "<|im_start|>"
IM_END: Final = "<|im_end|>"
END_OF_TEXT: Final = "<|endoftext|>"
SPECIAL_TOKENS: Final = (
    END_OF_TEXT,
    IM_START,
    IM_END,
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
NO_THOUGHT: Final = "<think>\n\n</think>\n\n"

Message = Mapping[str, Any]
Tool = Mapping[str, Any]

TEMPLATE: Final = r"""
{%- macro text_of(content) -%}
  {%- if content is string -%}{{ content }}
  {%- elif content is iterable -%}{%- for part in content -%}{{ part if part is string else part.text }}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- set first_is_system = messages and messages[0].role in ('system', 'developer') -%}
{%- if tools -%}
{{ '<|im_start|>system\n' }}
{%- if first_is_system -%}{{ text_of(messages[0].content) + '\n\n' }}{%- endif -%}
{{ '# Tools\n<tools>' }}
{%- for tool in tools -%}{{ '\n' + ((tool.function if tool.function is defined else tool) | tojson) }}{%- endfor -%}
{{ '\n</tools>\nTo call one: <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call><|im_end|>\n' }}
{%- elif first_is_system -%}
{{ '<|im_start|>system\n' + text_of(messages[0].content) + '<|im_end|>\n' }}
{%- endif -%}
{%- set last = namespace(user=-1) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set last.user = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if loop.first and first_is_system -%}
{%- elif message.role in ('tool', 'function') -%}
{{ '<|im_start|>user' if loop.first or loop.previtem.role not in ('tool', 'function') else '' }}
{{- '\n<tool_response>\n' + text_of(message.content) + '\n</tool_response>' }}
{{- '<|im_end|>\n' if loop.last or loop.nextitem.role not in ('tool', 'function') else '' }}
{%- elif message.role == 'assistant' -%}
{%- set body = text_of(message.content) -%}
{{ '<|im_start|>assistant\n' }}
{%- if message.reasoning_content and loop.index0 > last.user -%}
{{ '<think>\n' + (message.reasoning_content | trim) + '\n</think>\n\n' }}
{%- endif -%}
{{ body.split('</think>')[-1].lstrip('\n') if '</think>' in body else body }}
{%- for item in message.tool_calls or [] -%}
{%- set tool_call = item.function if item.function is defined else item -%}
{{ '\n' if body or not loop.first else '' }}
{{- '<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
{{- tool_call.arguments if tool_call.arguments is string else (tool_call.arguments | tojson) }}
{{- '}\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\n' }}
{%- else -%}
{{ '<|im_start|>' + ('user' if message.role == 'user' else 'system') + '\n' }}
{{- text_of(message.content) + '<|im_end|>\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- if enable_thinking is not defined or not enable_thinking -%}{{ '<think>\n\n</think>\n\n' }}{%- endif -%}
{%- endif -%}
""".strip()


def tool_call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """One tool call as the model writes it."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def tools_text(tools: Sequence[Tool]) -> str:
    """The part of the system turn that lists the tools, one JSON object a line."""
    lines = "".join("\n" + json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    example = '<tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>'
    return f"# Tools\n<tools>{lines}\n</tools>\nTo call one: {example}"


def pieces(
    messages: Sequence[Message], tools: Sequence[Tool], *, thinking: bool, taught: bool = False
) -> list[tuple[str, bool]]:
    """The text that TEMPLATE renders with ``add_generation_prompt``, in pieces that the model should write or not.

    ``messages`` hold one optional leading system turn and plain text; a call in the history is given as its text. The
    assistant's turns are pieces to be written if ``taught`` is true.
    """
    rest = list(messages)
    system = [str(rest.pop(0)["content"])] if rest and rest[0]["role"] in ("system", "developer") else []
    if tools:
        system.append(tools_text(tools))
    made = [(f"{IM_START}system\n" + "\n\n".join(system) + f"{IM_END}\n", False)] if system else []
    for place, message in enumerate(rest):
        text = str(message["content"])
        if message["role"] == "tool":
            first = place == 0 or rest[place - 1]["role"] != "tool"
            last = place + 1 == len(rest) or rest[place + 1]["role"] != "tool"
            head, end = f"{IM_START}user" if first else "", f"{IM_END}\n" if last else ""
            made.append((f"{head}\n<tool_response>\n{text}\n</tool_response>{end}", False))
        elif message["role"] == "assistant" and taught:
            made += [(f"{IM_START}assistant\n", False), (f"{text}{IM_END}", True), ("\n", False)]
        else:
            made.append((f"{IM_START}{message['role']}\n{text}{IM_END}\n", False))
    return [*made, (f"{IM_START}assistant\n" + ("" if thinking else NO_THOUGHT), False)]


def prompt_text(messages: Sequence[Message], tools: Sequence[Tool], *, thinking: bool) -> str:
    """The text that TEMPLATE renders with ``add_generation_prompt`` for messages whose content is plain text."""
    return "".join(text for text, _ in pieces(messages, tools, thinking=thinking))


def completion_text(answer: str, thought: str, *, thinking: bool) -> str:
    """What the model writes after :func:`prompt_text`, end token included."""
    return (f"<think>\n{thought}\n</think>\n\n" if thinking else "") + answer + IM_END
