"""Clients of tiny models whose template has tools and thoughts, as agents use them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from localai_shim import LocalOpenAI
from localai_shim.engine.engine import EngineOptions
from tests.engine.harness import engine_for

THINKING = """{%- if tools or messages[0].role == 'system' -%}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- for tool in tools or [] %}
{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif -%}
{%- set ns = namespace(last=0) -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
<|im_start|>user
{{ message.content }}<|im_end|>
{% elif message.role == 'assistant' -%}
<|im_start|>assistant
{% if loop.index0 > ns.last and message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>
{% endif %}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}{% set tool_call = call.function %}
<tool_call>{"name": "{{ tool_call.name }}", "arguments": {{ tool_call.arguments | tojson }}}</tool_call>
{%- endfor %}<|im_end|>
{% elif message.role == 'tool' -%}
<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
<think>
{% endif -%}"""
"""As Qwen3's: the generation prompt opens a thought, and thoughts before the last user message are dropped."""


KINDS = ["qwen3", "gemma3_text", "qwen3_next"]
"""Dense, sliding window, hybrid."""


@contextmanager
def client_of(kind: str, options: EngineOptions | None = None) -> Iterator[LocalOpenAI]:
    engine = engine_for(kind, options, template=THINKING, max_position_embeddings=16384)
    try:
        with LocalOpenAI(engine=engine) as client:
            yield client
    finally:
        engine.close()
