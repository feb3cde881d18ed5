"""Asks clients of models that see, and takes the tokens of what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image

from localai_shim import LocalOpenAI
from localai_shim.media import Media
from tests.endpoints.pictures import image_url, user
from tests.models.vision.seeing import QUESTION, TOKENS, pictures

SHOWN: Sequence[Sequence[Media]] = ((), pictures(1), pictures(2)[1:])
"""Of each question the pictures."""


def ids(client: LocalOpenAI, model: str, media: Sequence[Media], max_tokens: int = TOKENS, **more: Any) -> Any:
    """Tokens of a greedy answer to the question about some pictures."""
    parts = [image_url(Image.fromarray(each.data)) for each in media]
    extra = {"return_token_ids": True, "ignore_eos": True, **more}
    answer = client.chat.completions.create(
        model=model, messages=[user(*parts, QUESTION)], max_tokens=max_tokens, temperature=0, extra_body=extra
    )
    return answer.choices[0].token_ids  # type: ignore[attr-defined]
