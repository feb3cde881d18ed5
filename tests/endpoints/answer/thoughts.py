"""Questions of the tests of reasoning, and their templates."""

from __future__ import annotations

from typing import Any

QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]
THINKS = {"enable_thinking": True}
PLAIN = """
{%- for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor -%}
{%- if add_generation_prompt %}[assistant]{% endif -%}"""


def body(**more: Any) -> dict[str, Any]:
    return {"extra_body": more}
