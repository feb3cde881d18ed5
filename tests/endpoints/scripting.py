"""Asking scripted, tiny and real models, and holding a stream against the whole answer of the same tokens."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine, ScriptedTokenizer
from tests.conftest import MESSAGES, revalidate
from tests.tiny import VOCABULARY, make_model, make_tokenizer


def ask(client: Any, **more: Any) -> Any:
    """`chat.completions.create` with what it needs."""
    return client.chat.completions.create(**{"model": "any", "messages": MESSAGES, **more})


# -- one script, asked for in three ways ----------------------------------------------------------------------------


def answer(*replies: Any, tokenizer: ScriptedTokenizer | None = None, obey: bool = False, **more: Any) -> Any:
    """The completion that comes of a script. A stream of the same tokens and the SDK's stream helper say the same.

    Args:
        replies: one per choice.
        tokenizer: of the model.
        obey: see `ScriptedEngine`.
        more: arguments of `create`.
    """
    with ScriptedEngine([*replies] * 3, tokenizer=tokenizer, obey_constraints=obey) as engine:
        client = LocalOpenAI(engine=engine)
        whole = ask(client, **more)
        chunks = list(ask(client, stream=True, stream_options={"include_usage": True}, **more))
        with client.chat.completions.stream(**{"model": "any", "messages": MESSAGES, **more}) as stream:
            events = list(stream)
            final = stream.current_completion_snapshot  # the final one is refused where the answer is cut
    revalidate(whole)
    check_stream(chunks)
    assert said(gathered(chunks)) == said(whole)
    assert chunks[-1].usage == whole.usage
    assert said(final) == said(whole)
    check_events(events, final)
    return whole


def message(*replies: Any, **more: Any) -> Any:
    """The message of the only choice, see `answer`."""
    [choice] = answer(*replies, **more).choices
    return choice.message


def said(completion: Any) -> list[dict[str, Any]]:
    """What a completion says, without ids, which differ from request to request."""
    return [
        {
            "finish_reason": choice.finish_reason,
            "content": choice.message.content,
            "reasoning": reasoning(choice.message),
            "calls": calls(choice.message),
            "function_call": choice.message.function_call and choice.message.function_call.model_dump(),
            "invalid": invalid(choice.message),
            "logprobs": _logprobs(choice),
        }
        for choice in completion.choices
    ]


def _logprobs(choice: Any) -> list[dict[str, Any]]:
    """None of the content's tokens is the same as no logprobs: a stream has no chunk to say it in."""
    return [entry.model_dump() for entry in choice.logprobs.content or []] if choice.logprobs else []


def reasoning(part: Any) -> str | None:
    """Of a message or a delta."""
    return getattr(part, "reasoning_content", None)


def invalid(part: Any) -> list[dict[str, Any]]:
    """Of a message or a delta."""
    found: list[dict[str, Any]] = getattr(part, "invalid_tool_calls", None) or []
    return found


def calls(message: Any) -> list[tuple[str, str]]:
    """Name, and arguments as they are written, or input."""
    found = []
    for made in message.tool_calls or []:
        kind, text = ("custom", "input") if made.type == "custom" else ("function", "arguments")
        inner = getattr(made, kind)
        inner = inner if isinstance(inner, dict) else inner.model_dump()
        found.append((inner["name"], inner[text]))
    return found


def arguments(message: Any) -> list[tuple[str, Any]]:
    """Name and arguments of function calls."""
    return [(name, json.loads(text)) for name, text in calls(message)]


def ids(completion: Any) -> list[str]:
    """Of all calls of all choices."""
    return [made.id for choice in completion.choices for made in choice.message.tool_calls or []]


def check_stream(chunks: Sequence[Any]) -> None:
    """What holds of every stream: types, what is said once, and that nothing is said for nothing."""
    seen: set[tuple[int, int]] = set()
    order: list[int] = []
    ended: set[int] = set()
    for chunk in chunks:
        choices = chunk.choices
        if not any("custom" in made.model_fields_set or made.type == "custom" for made in _call_deltas(chunk)):
            revalidate(chunk)
        for choice in choices:
            assert choice.index not in ended, "nothing follows a finish_reason"
            delta = choice.delta
            assert (delta.role is None) == (choice.index in order), "the role comes first and once"
            if delta.role is not None:
                order.append(choice.index)
            for made in delta.tool_calls or []:
                key = (choice.index, made.index)
                assert all((made.id, made.type)) == (key not in seen), "a call's id and type come first and once"
                seen.add(key)
            if choice.finish_reason is not None:
                ended.add(choice.index)
    assert order == sorted(order), "the SDK's helper reads choices in the order of their first chunks"
    assert ended == set(order)
    assert len({chunk.id for chunk in chunks}) == 1


def _call_deltas(chunk: Any) -> Iterable[Any]:
    return (made for choice in chunk.choices for made in choice.delta.tool_calls or [])


def gathered(chunks: Sequence[Any]) -> Any:
    """A stream's choices, put together by plain concatenation."""
    choices: dict[int, Any] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            made = choices.setdefault(choice.index, _empty())
            _add(made, choice)
    return SimpleNamespace(choices=[choices[index] for index in sorted(choices)])


def _empty() -> Any:
    message = SimpleNamespace(content=None, reasoning_content=None, tool_calls=[], invalid_tool_calls=[])
    message.function_call = None
    return SimpleNamespace(message=message, finish_reason=None, logprobs=None)


def _add(made: Any, choice: Any) -> None:
    message, delta = made.message, choice.delta
    made.finish_reason = choice.finish_reason
    if choice.logprobs is not None:
        made.logprobs = made.logprobs or SimpleNamespace(content=[])
        made.logprobs.content += choice.logprobs.content or []
    if delta.content is not None:
        message.content = (message.content or "") + delta.content
    if reasoning(delta) is not None:
        message.reasoning_content = (message.reasoning_content or "") + reasoning(delta)
    for part in invalid(delta):
        assert part["index"] == len(message.invalid_tool_calls)
        message.invalid_tool_calls.append(part)
    for part in delta.tool_calls or []:
        kind, text = ("custom", "input") if part.type == "custom" else ("function", "arguments")
        inner = getattr(part, kind)
        inner = inner if isinstance(inner, dict) else inner.model_dump()
        if part.id is not None:
            assert part.index == len(message.tool_calls)
            message.tool_calls.append(SimpleNamespace(id=part.id, type=part.type, **{kind: dict(inner)}))
        else:
            getattr(message.tool_calls[part.index], message.tool_calls[part.index].type)[text] += inner[text]
    if delta.function_call is not None:
        told = delta.function_call
        known = message.function_call or _FunctionCall(name=told.name, arguments="")
        message.function_call = known
        known.arguments += told.arguments or ""


class _FunctionCall(SimpleNamespace):
    def model_dump(self) -> dict[str, Any]:
        return vars(self)


def check_events(events: Sequence[Any], final: ChatCompletion) -> None:
    """The SDK's events for contents and function calls say what the final completion says."""
    for choice in final.choices if len(final.choices) == 1 else []:  # events do not say whose they are
        functions = [made for made in choice.message.tool_calls or [] if made.type == "function"]
        deltas: dict[int, str] = {}
        for event in events:
            if event.type == "tool_calls.function.arguments.delta":
                deltas[event.index] = deltas.get(event.index, "") + event.arguments_delta
                assert event.arguments == deltas[event.index]
        done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
        assert [(event.name, event.arguments) for event in done] == [
            (made.function.name, made.function.arguments) for made in functions
        ]
        assert list(deltas.values()) == [made.function.arguments for made in functions]
        text = "".join(event.delta for event in events if event.type == "content.delta")
        assert text == (choice.message.content or "")


# -- tiny models with markers ---------------------------------------------------------------------------------------


@functools.cache
def marked_model(template: str, *markers: str, seed: int = 0, words: Sequence[str] = ()) -> Path:
    """The folder of a random model whose tokenizer has more special tokens and this chat template.

    Args:
        words: texts of letters that are one token each.
    """
    from transformers import AddedToken, PreTrainedTokenizerFast

    size = VOCABULARY + 32 + len("".join(words))  # more than there are tokens, as in most models
    folder = Path(tempfile.mkdtemp(prefix="localai_shim-marked-")) / "marked"
    make_model(folder, "qwen3", seed=seed, vocab_size=size, max_position_embeddings=4096)
    make_tokenizer(folder, template=template)
    _learn_words(folder / "tokenizer.json", words)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    tokenizer.save_pretrained(folder)
    assert len(tokenizer) < size
    return folder


def _learn_words(path: Path, words: Sequence[str]) -> None:
    tokenizer = json.loads(path.read_text())
    model = tokenizer["model"]
    merges = [[word[:n], word[n]] for word in words for n in range(1, len(word))]
    for pair in merges:
        model["vocab"].setdefault("".join(pair), len(model["vocab"]))
    model["merges"] = merges + [pair for pair in model["merges"] if pair not in merges]
    path.write_text(json.dumps(tokenizer))


def token_id(folder: Path, marker: str) -> str:
    """The id of a special token, as `logit_bias` takes it."""
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    return str(next(token["id"] for token in added if token["content"] == marker))


def forbidden(text: Any, match: str, **more: Any) -> None:
    """The grammar of the request does not let the model say this."""
    with pytest.raises(openai.InternalServerError, match="grammar does not allow") as caught:
        message(text, obey=True, **more)
    assert re.search(match, str(caught.value)), caught.value
