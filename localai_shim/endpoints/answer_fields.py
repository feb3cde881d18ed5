"""Fields of answers: counts of tokens, with OpenAI's details, logprobs, and those that a request may ask for.

The latter are the usage in streams, and vLLM's: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from openai.types.chat import ChatCompletionTokenLogprob
from openai.types.chat.chat_completion_token_logprob import TopLogprob
from openai.types.completion_usage import PromptTokensDetails

from ..output.detokenizer import TokenBytes
from ..output.prediction import Pointer, Prediction
from ..prompt.template import ChatTokenizer
from ..types import Json, Prompt, Token
from .fields import Fields
from .request_fields import stream_options
from .token_fields import read_prompt_logprobs

_SAYS_IMAGES = "image_tokens" in PromptTokensDetails.model_fields  # not in the SDK's 2.x line


def by_kind(prompts: Sequence[Prompt]) -> dict[str, int]:
    """Counts of the prompts' tokens by kind, under the names of the SDK's `PromptTokensDetails`."""
    spans = [span for prompt in prompts for span in prompt.media]
    audio = sum(len(span.places) for span in spans if span.media.kind == "audio")
    if not (spans or _SAYS_IMAGES):
        return {"audio_tokens": 0}
    image = sum(len(span.places) for span in spans) - audio
    text = sum(len(prompt.tokens) for prompt in prompts) - image - audio
    return {"audio_tokens": audio, "image_tokens": image, "text_tokens": text}


def usage_fields(
    prompts: Sequence[Prompt], generated: int, reasoning_tokens: int = 0, predicted: tuple[int, int] = (0, 0)
) -> Json:
    """Token counts with OpenAI's details. The token that ended a sequence counts, as it does there and in vLLM; as
    there, so do those of a prediction that did not come.

    Args:
        predicted: how many tokens of a prediction came, and how many did not.
    """
    accepted, rejected = predicted
    completion_tokens = generated + rejected
    prompt_tokens = sum(len(prompt.tokens) for prompt in prompts)
    cached_tokens = sum(prompt.cached_tokens or 0 for prompt in prompts)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens, **by_kind(prompts)},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "audio_tokens": 0,
            "reasoning_tokens": reasoning_tokens,
            "rejected_prediction_tokens": rejected,
        },
    }


@dataclass(frozen=True, slots=True)
class Extras:
    """Fields of these that a request asks for.

    Attributes:
        token_ids: `return_token_ids`: those of the prompt and of the answer.
        prompt_logprobs: number of likely tokens to report with each of the prompt; None: nothing is reported.
        include_usage: a stream ends with a chunk that has the usage and no choices.
        continuous_usage: each chunk of a stream has the usage of its choice so far; with `include_usage` only, as in
            vLLM.
        reasoning: the answer has the reasoning.
    """

    token_ids: bool
    prompt_logprobs: int | None
    include_usage: bool
    continuous_usage: bool
    reasoning: bool

    def of_prompt(self, prompt: Prompt, tokenizer: ChatTokenizer) -> dict[str, object]:
        """The fields about a prompt, once its first token is there; null unless the request asks for them."""
        fields: dict[str, object] = {**NO_PROMPT}
        if self.token_ids:
            fields["prompt_token_ids"] = list(prompt.tokens)
        if self.prompt_logprobs is not None:
            fields["prompt_logprobs"] = prompt_logprobs(prompt, tokenizer, self.prompt_logprobs)
        return fields


NO_PROMPT: Mapping[str, None] = {"prompt_token_ids": None, "prompt_logprobs": None}
"""Extra fields of chunks that do not begin an answer."""


def read_extras(fields: Fields, stream: bool, *, reasoning: bool = True) -> Extras:
    """`stream_options`, `return_token_ids` and `prompt_logprobs`, added to what was read already."""
    with stream_options(fields, stream) as options:
        include_usage = options.boolean("include_usage") or False
        continuous_usage = bool(options.boolean("continuous_usage_stats")) and include_usage
    token_ids, top = fields.boolean("return_token_ids") or False, read_prompt_logprobs(fields, stream)
    return Extras(token_ids, top, include_usage, continuous_usage, reasoning)


def prompt_logprobs(prompt: Prompt, tokenizer: ChatTokenizer, top: int) -> list[Mapping[str, object] | None]:
    """For each token of a prompt its logprob and those of the likeliest, by token id; None for the first one."""
    found: list[Mapping[str, object] | None] = [None]
    for token_id, score in zip(prompt.tokens[1:], prompt.scores or (), strict=True):
        entries = {token_id: (score.logprob, score.rank)}
        for rank, (other, logprob) in enumerate(score.top[:top], 1):
            entries.setdefault(other, (logprob, rank))
        found.append(
            {
                str(i): {"logprob": logprob, "rank": rank, "decoded_token": tokenizer.token_bytes.text(i)}
                for i, (logprob, rank) in entries.items()
            }
        )
    return found


class PredictionCounts:
    """Counts of a prediction's tokens that the choices of an answer have, even where no drafts were run.

    Args:
        prediction: of each choice; None: there is none, and nothing is counted.
        choices: how many.

    Attributes:
        counts_any: there is one.
    """

    def __init__(self, prediction: Prediction | None, choices: int) -> None:
        self.counts_any = prediction is not None
        self._length = 0 if prediction is None else len(prediction.tokens)
        self._pointers = [] if prediction is None else [Pointer(prediction) for _ in range(choices)]
        self._finished = [False] * choices

    def feed(self, index: int, token: Token) -> None:
        """Take a choice's next token."""
        if self._pointers:
            self._pointers[index].feed((token.id,))
            self._finished[index] = token.finish_reason is not None

    def counts(self, index: int | None = None) -> tuple[int, int]:
        """(accepted, rejected) tokens, of one choice or of all; rejected ones count once a choice has ended."""
        which = range(len(self._pointers)) if index is None or not self._pointers else (index,)
        accepted = sum(self._pointers[i].accepted for i in which)
        return accepted, sum(self._length - self._pointers[i].accepted for i in which if self._finished[i])


def token_logprobs(tokens: Iterable[tuple[Token, int]], tokenizer: ChatTokenizer) -> list[ChatCompletionTokenLogprob]:
    """The logprobs of an answer's tokens, as `Delta.tokens`, and of the likeliest ones at each place."""
    out = []
    for token, offset in tokens:
        text, raw = _spelling(tokenizer.token_bytes, stripped=offset < 0)
        top = [TopLogprob(token=text(i), bytes=list(raw(i)), logprob=logprob) for i, logprob in token.top]
        logprob = token.logprob if token.logprob is not None else -9999.0
        made = ChatCompletionTokenLogprob(
            token=text(token.id), bytes=list(raw(token.id)), logprob=logprob, top_logprobs=top
        )
        out.append(made)
    return out


def _spelling(texts: TokenBytes, *, stripped: bool) -> tuple[Callable[[int], str], Callable[[int], bytes]]:
    """The text and the bytes of a token, without the space that one at the beginning of an answer has before it."""
    if not stripped:
        return texts.text, texts
    return lambda token_id: texts.text(token_id).removeprefix(" "), lambda token_id: texts(token_id).removeprefix(b" ")
