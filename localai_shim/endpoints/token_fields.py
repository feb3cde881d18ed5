"""Fields about tokens: a prediction of the answer, and vLLM's.

https://docs.vllm.ai/en/latest/api/vllm/sampling_params.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..errors import BadRequest
from ..output.prediction import Prediction
from ..prompt.messages import encodable
from ..prompt.template import ChatTokenizer
from .fields import Fields, as_array, as_strings

T = TypeVar("T")
_MAX_BAD_WORDS = 4096  # token sequences
_MAX_PROMPT_LOGPROBS = 20  # likely tokens beside each


def token_id(value: object, path: str, tokenizer: ChatTokenizer) -> int:
    """A token of the model.

    Raises:
        BadRequest: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest.wrong_type(path, "an integer", value)
    last = min(tokenizer.vocabulary_size, getattr(tokenizer.model, "embedded", None) or tokenizer.vocabulary_size) - 1
    if not 0 <= value <= last:
        raise BadRequest.refused(path, f"{value} is not a token of this model, whose ids go from 0 to {last}")
    return value


def read_token_ids(
    fields: Fields, name: str, tokenizer: ChatTokenizer, *, empty: bool = True
) -> tuple[int, ...] | None:
    """A list of tokens, each once; None where it is absent.

    Args:
        empty: it may be empty.
    """
    given = fields.get(name)
    if given is None:
        return None
    values = as_array(name, given, "an array of integers", empty=empty)
    return tuple(dict.fromkeys(token_id(value, f"{name}[{i}]", tokenizer) for i, value in enumerate(values)))


def read_bad_words(fields: Fields, tokenizer: ChatTokenizer) -> tuple[tuple[int, ...], ...]:
    """`bad_words` as token sequences: each word as it is written at the beginning of a text, and after a space.

    vLLM leaves the second form out where it has another number of tokens; here the word is banned then, too.
    """
    found: dict[tuple[int, ...], None] = {}
    for i, word in enumerate(as_strings("bad_words", fields.get("bad_words", []))):
        path, text = f"bad_words[{i}]", word.lstrip()
        forms = [tuple(tokenizer.encode_marker(form)) for form in (text, f" {text}")] if text else []
        if not forms or not forms[0]:
            raise BadRequest.refused(path, f"{word!r}. Expected a string that is more than white space")
        found.update(dict.fromkeys(form for form in forms if form))
    if len(found) > _MAX_BAD_WORDS:
        why = f"They are {len(found)} sequences of tokens, and at most {_MAX_BAD_WORDS} may be banned"
        raise BadRequest.refused("bad_words", f"too many words. {why}", "array_above_max_length")
    return tuple(found)


def read_truncation(fields: Fields) -> tuple[int | None, bool]:
    """`truncate_prompt_tokens`, where -1 is as many as the context holds, and whether `truncation_side` is the left."""
    most = fields.integer("truncate_prompt_tokens", -1)
    side = fields.choice("truncation_side", ("left", "right"))
    if most == 0:
        why = "0 leaves nothing to continue. Expected -1, or a value >= 1"
        raise BadRequest.refused("truncate_prompt_tokens", why)
    return most, side != "right"


def most_tokens(truncation: tuple[int | None, bool], context_length: int | None, max_tokens: int | None) -> int | None:
    """Number of a prompt's tokens that are left after truncation; None: all.

    Args:
        truncation: as `read_truncation` reads it.
        context_length: of the model.
        max_tokens: the most output tokens; -1 truncates the prompt so that they fit into the context.
    """
    if truncation[0] != -1:
        return truncation[0]
    return None if context_length is None else max(1, context_length - (1 if max_tokens is None else max_tokens))


def truncated(
    tokens: list[int], truncation: tuple[int | None, bool], context_length: int | None, max_tokens: int | None
) -> list[int]:
    """A prompt's tokens, truncated as the request asks: see `most_tokens`."""
    most = most_tokens(truncation, context_length, max_tokens)
    if most is None or len(tokens) <= most:
        return tokens
    return tokens[-most:] if truncation[1] else tokens[:most]


def without_oldest(starts: Sequence[int], make: Callable[[int], T], fits: Callable[[T], bool]) -> T | None:
    """Make a conversation without as few of its oldest entries as have to go; None: nothing fits.

    Args:
        starts: entries at which what is left may begin, ascending.
        make: gets one of them.
    """
    found: T | None = None
    low, high = 0, len(starts)
    while low < high:
        middle = (low + high) // 2
        tried = make(starts[middle])
        if fits(tried):
            found, high = tried, middle
        else:
            low = middle + 1
    return found


def read_prompt_logprobs(fields: Fields, stream: bool) -> int | None:
    """`prompt_logprobs`: how many likely tokens to report with each of the prompt; None: nothing is reported."""
    wanted = fields.integer("prompt_logprobs", 0, _MAX_PROMPT_LOGPROBS)
    if wanted is not None and stream:
        raise BadRequest.invalid(
            "prompt_logprobs", "'prompt_logprobs' are not available when 'stream' is enabled: leave out one of the two."
        )
    return wanted


def read_prediction(fields: Fields, tokenizer: ChatTokenizer) -> Prediction | None:
    """`prediction`; None where it has no text."""
    text = _read_text(fields)
    return Prediction(tokenizer.encode_marker(text), tokenizer.token_bytes.spelled) if text else None


def _read_text(fields: Fields) -> str:
    with fields.inner("prediction") as prediction:
        if not fields.has("prediction"):
            return ""
        prediction.option("type", ("content",))
        content = prediction.require("content")
    if isinstance(content, str):
        return encodable(content, "prediction.content")
    parts = as_array("prediction.content", content, "a string or an array of text parts")
    return "".join(_read_part(part, f"prediction.content[{i}]") for i, part in enumerate(parts))


def _read_part(part: object, path: str) -> str:
    if not isinstance(part, dict):
        raise BadRequest.wrong_type(path, "a text part", part)
    with Fields(part, path) as fields:
        fields.option("type", ("text",))
        text = fields.text("text")
        fields.mapping("prompt_cache_breakpoint")  # a hint to OpenAI's prompt cache
        return text
