"""Fields of answers that a request may ask for: the usage in streams, and vLLM's.

https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..prompt.template import ChatTokenizer
from ..types import Prompt
from .fields import Fields
from .request_fields import stream_options
from .token_fields import read_prompt_logprobs


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
    options = stream_options(fields, stream)
    include_usage = options.boolean("include_usage") or False
    continuous_usage = bool(options.boolean("continuous_usage_stats")) and include_usage
    options.finish()
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
