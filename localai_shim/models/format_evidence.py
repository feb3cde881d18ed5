"""Evidence of the formats that a model writes: its chat template, its vocabulary, and its config."""

from __future__ import annotations

from collections.abc import Container
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..formats.markup import Detected, Evidence, detect
from ..threads.deadline import Budget, check
from ..types import Json
from .checkpoint.files import read_json
from .template_sandbox import limited_template

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

MAX_PROMPT_CHARACTERS = 100_000  # in which markers are looked for: many times what templates write of one tool
SAMPLE_QUESTION = "What is the weather in Paris?"
SAMPLE_TOOL: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Its name."}},
            "required": ["city"],
        },
    },
}


def find_formats(
    tokenizer: TokenizerWrapper,
    tool_format: str | None = None,
    reasoning_format: str | None = None,
    budget: Budget | None = None,
) -> Detected:
    """Formats of a model's calls and reasoning, and why they are known.

    Args:
        tokenizer: mlx-lm's `TokenizerWrapper`.
        tool_format, reasoning_format: names that the caller gave; None: they are found out.
        budget: of a prompt that is rendered for that; None: its own one.
    """
    parser = (getattr(tokenizer, "init_kwargs", None) or {}).get("tool_parser_type")
    start, end = (getattr(tokenizer, name, None) for name in ("think_start", "think_end"))
    evidence = Evidence(
        template=_template_text(tokenizer),
        tokens=frozenset(added_tokens(tokenizer).values()),
        parser=parser if isinstance(parser, str) else None,
        think=(start, end) if start and end else None,
        render=partial(_prompt, tokenizer, budget or Budget()),
    )
    tool_format = tool_format or getattr(tokenizer, "tool_format", None)  # a scripted model says it itself
    return detect(evidence, tool_format, reasoning_format)


def _template_text(tokenizer: TokenizerWrapper) -> str:
    """The source of the chat templates; empty for a program, which mlx-lm's wrapper prefers to the checkpoint's."""
    if getattr(tokenizer, "_chat_template", None) is not None:
        return ""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        return "\n".join(map(str, template.values()))
    return str(template or "")


def _prompt(tokenizer: TokenizerWrapper, budget: Budget) -> str:
    """A question and a tool, as the chat template writes them; "" where it refuses that, or takes too long."""
    if not tokenizer.has_chat_template:
        return ""
    limited: Json = {}
    if getattr(tokenizer, "_chat_template", None) is None and (inner := getattr(tokenizer, "_tokenizer", None)):
        limited = limited_template(inner, [SAMPLE_TOOL])
    return budget.find("what it makes of tools", partial(_sample, tokenizer, limited), str)


def _sample(tokenizer: TokenizerWrapper, limited: Json) -> str:
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": SAMPLE_QUESTION}]
    for start in (0, 1):  # mlx-lm's programs list tools in the system message, which others refuse
        check()
        try:
            text: str = tokenizer.apply_chat_template(
                messages[start:], tools=[SAMPLE_TOOL], tokenize=False, add_generation_prompt=True, **limited
            )
            return text[:MAX_PROMPT_CHARACTERS]
        except Exception:  # templates raise what they like
            continue
    return ""


def added_tokens(tokenizer: TokenizerWrapper) -> dict[int, str]:
    """Tokens that were added to the trained vocabulary, markers and ends of sequence among them, by id."""
    return {int(i): str(token) for i, token in tokenizer.added_tokens_decoder.items()}


def grammar_tokens(tokenizer: TokenizerWrapper, special: Container[int]) -> dict[int, str]:
    """Of the `added_tokens` those that a grammar names, and that its free text never holds, by id.

    Words, letters and runs of spaces were added as text; `special` are those that are flagged.
    """
    added = added_tokens(tokenizer)
    return {i: text for i, text in added.items() if i in special or text[:1] in ("<", "[")}


def read_formats(folder: Path) -> Detected | None:
    """Formats of a model by its files alone; None if it has no chat template."""
    config = read_json(folder / "tokenizer_config.json")
    templates = [
        path.read_text(encoding="utf-8", errors="replace") for path in folder.glob("*.jinja") if path.is_file()
    ]
    given = config.get("chat_template")
    if isinstance(given, list):
        templates += [str(entry.get("template")) for entry in given if isinstance(entry, dict)]
    elif isinstance(given, str):
        templates.append(given)
    if not templates:
        return None
    decoder = config.get("added_tokens_decoder")
    added = [*decoder.values()] if decoder else read_json(folder / "tokenizer.json").get("added_tokens") or []
    tokens = frozenset(str(token.get("content")) for token in added if isinstance(token, dict))
    parser = config.get("tool_parser_type")
    return detect(Evidence("\n".join(templates), tokens, parser if isinstance(parser, str) else None))
