"""What answers have beyond OpenAI's fields where a request asks for it, by vLLM's names.

https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..prompt.template import ChatTokenizer
from ..types import Prompt
from .fields import Fields
from .token_fields import read_prompt_logprobs


@dataclass(frozen=True, slots=True)
class Extras:
    """What a request asks for.

    Attributes:
        token_ids: `return_token_ids`: those of the prompt and of the answer.
        prompt_logprobs: so many likely tokens beside each of the prompt, and its own; None: nothing of it.
        continuous_usage: each chunk of a stream has the usage of its choice so far.
        reasoning: the answer has the reasoning.
    """

    token_ids: bool = False
    prompt_logprobs: int | None = None
    continuous_usage: bool = False
    reasoning: bool = True

    def of_prompt(self, prompt: Prompt, tokenizer: ChatTokenizer) -> dict[str, Any]:
        """The fields that concern a prompt, once an answer is there."""
        fields: dict[str, Any] = {}
        if self.token_ids:
            fields["prompt_token_ids"] = list(prompt.tokens)
        if self.prompt_logprobs is not None:
            fields["prompt_logprobs"] = prompt_logprobs(prompt, tokenizer, self.prompt_logprobs)
        return fields


NO_EXTRAS = Extras()


def read_extras(fields: Fields, stream: bool, *, continuous_usage: bool, reasoning: bool = True) -> Extras:
    """`return_token_ids` and `prompt_logprobs`, beside what was read already."""
    return Extras(
        fields.boolean("return_token_ids") or False,
        read_prompt_logprobs(fields, stream),
        continuous_usage,
        reasoning,
    )


def prompt_logprobs(prompt: Prompt, tokenizer: ChatTokenizer, top: int) -> list[dict[str, Any] | None]:
    """For each token of a prompt its logprob and those of the likeliest, by token id; None for the first one."""
    found: list[dict[str, Any] | None] = [None]
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


def scored(*wanted: int | None) -> int | None:
    """`Prompt.top_logprobs` for all who want the prompt's logprobs; None where nobody does."""
    return max((top for top in wanted if top is not None), default=None)
