"""An answer of a model of a family, found by rendering: what its template makes of one is what it was trained on.

It knows nothing of how answers are read, so that it can judge the reading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import jinja2

from localai_shim.testing import ScriptedTokenizer
from tests.templates.families import TEMPLATES, WITHOUT_TOOLS
from tests.templates.models import ENDS, markers
from tests.templates.uses import QUESTION

Call = tuple[str, dict[str, Any]]
"""A function's name and its arguments."""

ONE_CALL = ("gigachat3", "gigachat31", "gpt_oss", "llama3_json")
"""Families whose answers have one call at most."""

_STRINGS = ("functionary_v32", "phi4_mini")
"""Their templates write arguments as they get them."""

_LIKE = {"glm4": "glm47", "smollm3": "hermes", **dict.fromkeys(WITHOUT_TOOLS, "hermes")}
"""Families that write as another does: their own template does not show a call."""

_HEADERS = {"kimi_k3": '<|open|>message role="assistant"<|sep|>'}
"""What an answer stands behind, where the prompt goes on with what an answer without a thought may begin with."""

_MORE_ENDS = (
    "<|call|>",
    "<|calls|>",
    "<|eom_id|>",
    "<end_of_sentence>",
    "<|role_end|>",
    "<｜hy_eos｜>",
    "<SPECIAL_12>",
)
"""What else ends an answer; an engine stops there."""


def scripted_tokenizer(name: str) -> ScriptedTokenizer:
    """The tokenizer of a scripted model of a family: its template and its markers, and no word about its formats."""
    special, plain = markers(TEMPLATES[name])
    return ScriptedTokenizer(think=None, tool_format=None, markers=[*special, *plain], chat_template=TEMPLATES[name])


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


_ENVIRONMENT = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
_ENVIRONMENT.filters["tojson"] = _to_json
_ENVIRONMENT.globals["raise_exception"] = _refuse


def _render(name: str, messages: list[Any], prompts: bool) -> str:
    made = _ENVIRONMENT.from_string(TEMPLATES[name])
    more = {"bos_token": "", "eos_token": "</s>", "functions": "[]", "datetime": "today", "tools": []}
    return made.render(messages=messages, add_generation_prompt=prompts, **more)


def written(name: str, calls: Sequence[Call] = (), content: str = "") -> str:
    """The text of an answer, up to its end, and without a thought.

    Args:
        name: the family's.
        calls: what it calls.
        content: what it says, where it calls nothing.
    """
    name = _LIKE.get(name, name) if calls else name
    question = {"role": "user", "content": QUESTION}
    answer: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        answer["tool_calls"] = [_call(name, i, *call) for i, call in enumerate(calls)]
    whole = _render(name, [question, answer], prompts=False)
    if name in _HEADERS:
        answer_text = whole.rpartition(_HEADERS[name])[2]
    else:
        answer_text = _behind(name, _render(name, [question], prompts=True), whole)
    ends = "|".join(map(re.escape, (*ENDS, *_MORE_ENDS)))
    return re.sub(rf"\s*(?:{ends})?\s*$", "", answer_text)


def _call(name: str, index: int, function: str, arguments: dict[str, Any]) -> Any:
    given = json.dumps(arguments) if name in _STRINGS else arguments
    call_id = f"functions.{function}:{index}" if name == "kimi_k2" else f"abcDEF12{index}"
    return {"id": call_id, "type": "function", "function": {"name": function, "arguments": given}}


def _behind(name: str, prompt: str, whole: str) -> str:
    """What follows of a rendered conversation where it leaves the prompt; no marker is cut."""
    special, plain = markers(TEMPLATES[name])
    found = "|".join(map(re.escape, sorted([*special, *plain], key=len, reverse=True)))
    pieces = re.compile(f"{found}|." if found else ".", re.DOTALL)
    first, second = pieces.findall(prompt), pieces.findall(whole)
    same = next((i for i, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), len(first))
    return "".join(second[same:])
