"""Forms of requests: two that mean the same have the same form. Differences of two others, and normalized texts."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from ...formats.values import json_or_text
from ...types import Json, map_texts

DELIVERY = frozenset({"stream", "stream_options", "background", "store", "metadata"}) | {
    "encoding_format",
    "return_documents",
    "top_n",
}
"""Fields for the delivery of an answer, and for what happens to it then."""
WITHOUT_EFFECT = frozenset({"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"})
"""Fields for the service on which answers do not depend: they are sent there and not recorded."""
_DEFAULTS: Json = {
    "temperature": 1,
    "top_p": 1,
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logprobs": False,
    "top_logprobs": 0,
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
    "truncation": "disabled",
    "modalities": ["text"],
    "verbosity": "medium",
    "text": {},
    "reasoning": {},
    "logit_bias": {},
    "tools": [],
    "stop": [],
    "include": [],
}
_AUDIO_DEFAULTS: Json = {
    "temperature": 0,
    "response_format": "json",
    "timestamp_granularities": ["segment"],
    "speed": 1,
    "include": [],
    "prompt": "",
}
_SAME_FORMATS = {"text": "json", "srt": "verbose_json", "vtt": "verbose_json"}
"""Formats of transcriptions that are made of another's answer."""
_SPEECH_DELIVERY = frozenset({"response_format", "stream_format"})
_TEXT_DEFAULTS: Json = {"format": {"type": "text"}, "verbosity": "medium"}
_ITEM_DEFAULTS: Json = {"type": "message", "status": "completed", "annotations": [], "logprobs": [], "strict": False}
_LOGPROBS = "message.output_text.logprobs"
_OTHER_NAMES = {"max_tokens": "max_completion_tokens"}
_GENERATED = frozenset({"id", "call_id", "tool_call_id", "item_id", "approval_request_id"})
_CALLERS = frozenset({"arguments", "parameters", "schema", "json_schema", "format", "chat_template_kwargs"})
"""Fields that hold names of the caller's own."""
_TEXTS = frozenset({"text", "input_text", "output_text"})


def meaning(api: str, request: Mapping[str, object]) -> Json:
    """A request's canonical form: without nulls, defaults and what does not change the answer; ids are numbered."""
    if api.startswith("audio."):
        return _audio_meaning(api, request)
    made: Json = {"api": api}
    ids: dict[str, str] = {}
    for name, value in request.items():
        if value is None or name in DELIVERY or name in WITHOUT_EFFECT:
            continue
        key = _OTHER_NAMES.get(name, name) if api == "chat.completions" else name
        is_messages = key in ("messages", "input") and api != "embeddings"
        made[key] = [_message(each) for each in _listed(value)] if is_messages else _plain(value)
    if api == "embeddings" and isinstance(made.get("input"), str):
        made["input"] = [made["input"]]
    text = made.get("text")
    if isinstance(text, dict):
        made["text"] = {key: value for key, value in text.items() if _TEXT_DEFAULTS.get(key) != value}
    if made.get("tool_choice") == ("auto" if made.get("tools") else "none"):
        del made["tool_choice"]
    made["include"] = [each for each in made.get("include", ()) if each == _LOGPROBS]
    for name, default in _DEFAULTS.items():
        if name in made and made[name] == default:
            del made[name]
    return {key: _numbered(made[key], ids) for key in sorted(made)}


def delivery(api: str) -> frozenset[str]:
    """Fields of an endpoint for the delivery of an answer."""
    return DELIVERY | _SPEECH_DELIVERY if api == "audio.speech" else DELIVERY


def _audio_meaning(api: str, request: Mapping[str, object]) -> Json:
    """The canonical form of a request for a transcription or speech. A file is the same whatever its name."""
    left_out = {*delivery(api), *WITHOUT_EFFECT}
    made: Json = {name: _plain(value) for name, value in request.items() if value is not None and name not in left_out}
    if isinstance(file := made.get("file"), dict):
        made["file"] = {name: value for name, value in file.items() if name != "name"}
    if "response_format" in made:
        made["response_format"] = _SAME_FORMATS.get(made["response_format"], made["response_format"])
    kept = {name: value for name, value in made.items() if _AUDIO_DEFAULTS.get(name, _NONE) != value}
    return {"api": api} | {name: kept[name] for name in sorted(kept)}


def _listed(value: object) -> list[object]:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return list(value) if isinstance(value, list | tuple) else [value]


def _message(value: object) -> object:
    """A message or item: its text as one string, a call's arguments as what they say."""
    made = _plain(value)
    if not isinstance(made, dict):
        return made
    content = made.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") in _TEXTS for part in content):
        made["content"] = "".join(part.get("text", "") for part in content)
    if made.get("role") == "assistant" and made.get("content") == "":
        del made["content"]
    return made


def _plain(value: object) -> object:
    """Without nulls and defaults, at any depth."""
    if isinstance(value, Mapping):
        made = {key: _plain(each) for key, each in value.items() if each is not None}
        arguments = made.get("arguments")
        if isinstance(arguments, str):
            made["arguments"] = json_or_text(arguments)
        return {key: each for key, each in made.items() if _ITEM_DEFAULTS.get(key, _NONE) != each}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


_NONE = object()


def _numbered(value: object, ids: dict[str, str]) -> object:
    """Number generated ids by their order; ids that nothing refers to are left out."""
    if isinstance(value, dict):
        made: Json = {}
        for key, each in value.items():
            if key in _GENERATED and isinstance(each, str):
                if key != "id" or "function" in value:
                    made[key] = ids.setdefault(each, f"call_{len(ids) + 1}")
            else:
                made[key] = each if key in _CALLERS else _numbered(each, ids)
        return made
    return [_numbered(each, ids) for each in value] if isinstance(value, list) else value


# -- differences ----------------------------------------------------------------------------------------------------

MAX_SHOWN_DIFFERENCES = 12


def differences(recorded: Json, now: Json) -> list[str]:
    """A line for each field in which two canonical forms differ."""
    old, new = dict(_leaves(recorded)), dict(_leaves(now))
    pairs = ((path, old.get(path, _NONE), new.get(path, _NONE)) for path in {**old, **new})
    return [f"{path}: {_shown(was, is_)}" for path, was, is_ in pairs if was != is_]


def nearest(recorded: Sequence[Json], now: Json) -> int | None:
    """The index of the canonical form that is most like another; None where there are none."""
    if not recorded:
        return None
    text = json.dumps(now, sort_keys=True)

    def distance(index: int) -> tuple[int, float]:
        other = json.dumps(recorded[index], sort_keys=True)
        likeness = difflib.SequenceMatcher(None, text[:4000], other[:4000], autojunk=False).quick_ratio()
        return len(differences(recorded[index], now)), -likeness

    return min(range(len(recorded)), key=distance)


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for i, each in enumerate(value):
            yield from _leaves(each, f"{path}[{i}]")
    else:
        yield path, value


def _shown(was: object, is_: object) -> str:
    if was is _NONE:
        return f"is new: {_short(is_)}"
    if is_ is _NONE:
        return f"is missing; recorded: {_short(was)}"
    start = 0
    if isinstance(was, str) and isinstance(is_, str) and max(len(was), len(is_)) > _MAX_SHOWN_CHARACTERS:
        same = (i for i, (a, b) in enumerate(zip(was, is_, strict=False)) if a != b)
        start = max(0, next(same, min(len(was), len(is_))) - _MAX_SHOWN_CHARACTERS // 3)
    return f"recorded {_short(was, start)}, now {_short(is_, start)}"


_MAX_SHOWN_CHARACTERS = 60


def _short(value: object, start: int = 0) -> str:
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
    cut = value[start : start + _MAX_SHOWN_CHARACTERS]
    return f"{'…' if start else ''}{cut!r}{'…' if start + _MAX_SHOWN_CHARACTERS < len(value) else ''}"


# -- what differs from run to run: dates, ids, paths ------------------------------------------------------------------

Normalize = Callable[[str], str] | Mapping[str, str]
"""A function of a text, or regular expressions and their replacements."""

_UNTOUCHED = frozenset({"model", "file"})
"""Names, many of which end in a date; and the hash of a file."""


def normalizer(*rules: Normalize | None) -> Callable[[Json], Json]:
    """A function that applies rules, one after the other, to all texts of a request but the model's name and its file.

    Raises:
        TypeError: a rule is neither a function nor a mapping.
        re.error: a pattern is no regular expression.
    """
    steps = [_function(rule) for rule in rules if rule is not None]

    def apply(text: str) -> str:
        for step in steps:
            text = step(text)
            if not isinstance(text, str):
                raise TypeError(f"it returned {text!r}, and not a text")
        return text

    def request(body: Json) -> Json:
        return {name: value if name in _UNTOUCHED else map_texts(value, apply) for name, value in body.items()}

    return request if steps else lambda body: body


def _function(rule: Normalize) -> Callable[[str], str]:
    if callable(rule):
        return rule
    if not isinstance(rule, Mapping):
        raise TypeError(f"`normalize` must be a function of a text or a dict of patterns, not {rule!r}")
    patterns = [(re.compile(pattern), text) for pattern, text in rule.items()]

    def replace(text: str) -> str:
        for pattern, new in patterns:
            text = pattern.sub(new, text)
        return text

    return replace
