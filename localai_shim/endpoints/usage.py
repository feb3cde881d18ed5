"""Counts of the tokens that a request took, with OpenAI's details."""

from __future__ import annotations

from collections.abc import Sequence

from openai.types.completion_usage import PromptTokensDetails

from ..types import Json, Prompt

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
