"""Runs of a placeholder in a prompt, which a tokenizer need not read one by one: a picture has thousands."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

import numpy as np


class Runs:
    """Placeholders that are tokens wherever they stand, so that a run of them is that token, again and again.

    Args:
        tokenizer: transformers'.
        ids: of placeholders; those that are no such tokens are read as they are.
    """

    def __init__(self, tokenizer: Any, ids: Collection[int]) -> None:
        added = getattr(tokenizer, "added_tokens_decoder", {})
        whole = {i: added[i] for i in ids if i in added and _is_whole(added[i])}
        texts = sorted((re.escape(str(token)) for token in whole.values()), key=len, reverse=True)
        self._ids = sorted(whole)
        self._run = re.compile(rf"({'|'.join(texts)})\1*") if texts else None

    def encode(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Token ids of a text, by `encode`, which gets one placeholder of each run."""
        counts = list[int]()

        def one(found: re.Match[str]) -> str:
            counts.append(len(found[0]) // len(found[1]))
            return found[1]

        short = text if self._run is None else self._run.sub(one, text)
        if len(short) == len(text):
            return encode(text)
        ids = np.asarray(encode(short))
        places = np.isin(ids, self._ids)
        if np.count_nonzero(places) != len(counts):  # it reads them otherwise
            return encode(text)
        times = np.ones(len(ids), np.int64)
        times[places] = counts
        made: list[int] = ids.repeat(times).tolist()
        return made


def _is_whole(token: Any) -> bool:
    """Whether a token is found before all else, whatever stands beside it, and takes nothing of that."""
    return not (token.normalized or token.lstrip or token.rstrip or token.single_word)
