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


def prompt_text(messages: Sequence[Message], tools: Sequence[Tool], *, thinking: bool) -> str:
    """What TEMPLATE renders with ``add_generation_prompt`` for messages whose content is plain text.

    ``messages`` hold one optional leading system turn, and assistant turns without tool calls of their own
    (a call in the history is given as its text).
    """
    rest = list(messages)
    system = [str(rest.pop(0)["content"])] if rest and rest[0]["role"] in ("system", "developer") else []
    if tools:
        system.append(tools_text(tools))
    turns = [f"{IM_START}system\n" + "\n\n".join(system)] if system else []
    for message in rest:
        if message["role"] == "tool":
            turns.append(f"{IM_START}user\n<tool_response>\n{message['content']}\n</tool_response>")
        else:
            turns.append(f"{IM_START}{message['role']}\n{message['content']}")
    start = f"{IM_START}assistant\n" + ("" if thinking else NO_THOUGHT)
    return "".join(f"{turn}{IM_END}\n" for turn in turns) + start


def completion_text(answer: str, thought: str, *, thinking: bool) -> str:
    """What the model writes after :func:`prompt_text`, end token included."""
    return (f"<think>\n{thought}\n</think>\n\n" if thinking else "") + answer + IM_END
