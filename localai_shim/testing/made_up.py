"""Answers to requests that nobody scripted: what the request asks for, the same for the same request and seed."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

from ..types import GenerationRequest, GrammarConstraint, Json
from .answers import Answer, ToolCall
from .model.schema_values import SchemaValues
from .model.tokenizer import ScriptedTokenizer
from .requests import Request, tool_fields

_TEXTS = (
    "This is a made-up answer.",
    "Here is what I found.",
    "That is a good question.",
    "Let me explain it in a few words.",
    "The short answer is yes.",
)


class MadeUp:
    """An answer to one request: a call of a tool that it requires, an instance of its schema, or a short text.

    Attributes:
        answer: a proposal.
        certain: it is what the request asks for; False: its grammar has to say, see `steer`.
    """

    def __init__(self, asked: Request, seed: int, request: GenerationRequest) -> None:
        body = json.dumps([seed, asked.choice, asked.snapshot()], sort_keys=True)
        self.numbers = random.Random(hashlib.sha256(body.encode()).digest())
        self.certain = request.constraint is None
        self.answer = self._make(asked)

    def _make(self, asked: Request) -> Answer:
        tool = self._required_tool(asked)
        if tool is not None:
            inner = tool_fields(tool)
            if tool.get("type") == "custom":
                return Answer((ToolCall(inner["name"], self.numbers.choice(_TEXTS)),))
            return Answer((ToolCall(inner["name"], self._instance(inner.get("parameters") or {"type": "object"})),))
        if asked.schema is not None:
            return self._text(json.dumps(self._instance(asked.schema), ensure_ascii=False))
        if (asked.response_format or {}).get("type") == "json_object":
            self.certain = True
            return self._text(json.dumps({"answer": self.numbers.choice(_TEXTS)}))
        return self._text(self.numbers.choice(_TEXTS))

    def _text(self, text: str) -> Answer:
        return Answer((text,))

    def _instance(self, schema: Json) -> Any:
        values = SchemaValues(schema, self.numbers)
        made = values.make()
        self.certain = values.certain
        return made

    def _required_tool(self, asked: Request) -> Json | None:
        """The tool that the answer has to call, if it has to."""
        choice, tools = asked.tool_choice, {tool_fields(tool).get("name"): tool for tool in asked.tools}
        if isinstance(choice, dict):
            allowed = choice.get("allowed_tools", choice)
            if "tools" in allowed:
                names = [tool_fields(tool).get("name") for tool in allowed["tools"]]
                tools = {name: tools[name] for name in names if name in tools}
                choice = allowed.get("mode")
            else:
                return tools.get(tool_fields(choice).get("name"))
        return self.numbers.choice(list(tools.values())) if choice == "required" and tools else None


def steer(text: str, constraint: GrammarConstraint, tokenizer: ScriptedTokenizer, numbers: random.Random) -> list[int]:
    """Tokens that a request's grammar allows: a proposed text's as far as it allows them, then random ones."""
    import numpy as np

    proposed, out = tokenizer.encode(text), list[int]()
    while len(out) < 2 * MAX_RANDOM_TOKENS:
        mask = np.zeros((len(tokenizer) + 31) // 32, np.int32)
        if not constraint.mask(mask):
            return out + proposed
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
        if proposed and proposed[0] in allowed:
            token = proposed.pop(0)
        elif not allowed or any(end in allowed for end in tokenizer.eos_token_ids):
            break
        else:
            proposed.clear()
            hurry = 1 + 100 * (len(out) > MAX_RANDOM_TOKENS)
            token = numbers.choices(allowed, [_likelihood(each, hurry) for each in allowed])[0]
        out.append(token)
        if constraint.accept(token):
            break
    return out


MAX_RANDOM_TOKENS = 400
"""After so many, a random answer takes each chance to end."""


def _likelihood(token: int, hurry: int) -> float:
    """Closing brackets and quotes come soon, then letters and digits; other characters only where nothing else may."""
    if token > 126 or token < 32:
        return 1e-9
    char = chr(token)
    if char in '"]})':
        return 8.0 * hurry
    return 1.0 if char.isalnum() else 1e-3 if char == "\\" else 0.2
