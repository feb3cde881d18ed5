"""A prompt that an answer of completions repeats, with its tokens' logprobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openai.types.completion_choice import Logprobs

from ...prompt.template import ChatTokenizer
from ...types import Prompt


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt as an answer repeats it."""

    text: str
    offsets: list[int]
    """Offset of each token's text."""

    def before(self, logprobs: Logprobs, prompt: Prompt, top: int, text: Callable[[int], str]) -> Logprobs:
        """An answer's logprobs behind those of its prompt, of which the first token has none.

        Args:
            logprobs: the answer's.
            prompt: scored.
            top: how many likely tokens to report with each.
            text: of a token.
        """
        scores = prompt.scores or ()
        tops = [
            by_text([*score.top[:top], (token_id, score.logprob)], text)
            for token_id, score in zip(prompt.tokens[1:], scores, strict=True)
        ]
        # Copied: the SDK's types have no null in these lists, and the API sends one for the first token.
        return logprobs.model_copy(
            update={
                "tokens": [*map(text, prompt.tokens), *(logprobs.tokens or ())],
                "text_offset": [*self.offsets, *(logprobs.text_offset or ())],
                "token_logprobs": [None, *(score.logprob for score in scores), *(logprobs.token_logprobs or ())],
                "top_logprobs": [None, *tops, *(logprobs.top_logprobs or ())],
            }
        )


def by_text(logprobs: Sequence[tuple[int, float | None]], text: Callable[[int], str]) -> dict[str, float | None]:
    """Logprobs by the tokens' texts, likeliest first: of several tokens with one text the first."""
    found: dict[str, float | None] = {}
    for token_id, logprob in logprobs:
        found.setdefault(text(token_id), logprob)
    return found


def make_echo(prompt: Prompt, tokens: list[int], text: str | None, tokenizer: ChatTokenizer) -> Echo:
    """Make the part of an answer that repeats its prompt.

    Args:
        prompt: what is run, which may have been cut.
        tokens: all that were given.
        text: what was given instead; a token that stands for none of it, such as one that begins a sequence, is empty.
    """
    known = text if len(prompt.tokens) == len(tokens) else None
    detokenizer = tokenizer.detokenizer(continuing=known is not None)  # of a known text all spaces count
    ends, length = [0], 0
    pieces: list[str] = []
    for token in prompt.tokens:
        detokenizer.add_token(token)
        pieces.append(detokenizer.last_segment)
        length += len(pieces[-1])
        ends.append(length)
    detokenizer.finalize()
    pieces.append(detokenizer.last_segment)
    read = "".join(pieces)
    if known is None:
        return Echo(read, ends[:-1])
    before = len(read) - len(known) if read.endswith(known) else 0
    return Echo(known, [min(max(0, end - before), len(known)) for end in ends[:-1]])
