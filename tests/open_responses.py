"""What the specification Open Responses requires of a response."""

from __future__ import annotations

from typing import Any

OPEN_RESPONSES = {
    "background": bool,
    "created_at": int,
    "frequency_penalty": int | float,
    "id": str,
    "metadata": dict,
    "model": str,
    "object": str,
    "output": list,
    "parallel_tool_calls": bool,
    "presence_penalty": int | float,
    "service_tier": str,
    "status": str,
    "store": bool,
    "temperature": int | float,
    "text": dict,
    "tool_choice": str | dict,
    "tools": list,
    "top_logprobs": int,
    "top_p": int | float,
    "truncation": str,
}
"""Fields that Open Responses (2026-04-24) requires of a response, and the type of each."""
OPEN_RESPONSES_NULLABLE = {
    "completed_at": int,
    "error": dict,
    "incomplete_details": dict,
    "instructions": str,
    "max_output_tokens": int,
    "max_tool_calls": int,
    "previous_response_id": str,
    "prompt_cache_key": str,
    "reasoning": dict,
    "safety_identifier": str,
    "usage": dict,
}


def check_open_response(body: dict[str, Any]) -> None:
    assert {name: body[name] for name, kind in OPEN_RESPONSES.items() if not isinstance(body[name], kind)} == {}
    wrong = {
        name: body[name] for name, kind in OPEN_RESPONSES_NULLABLE.items() if not isinstance(body[name], kind | None)
    }
    assert wrong == {}
