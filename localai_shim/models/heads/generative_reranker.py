"""Generative rerankers, Qwen3-Reranker and Qwen3-VL-Reranker: asked whether a document fits, they say yes or no."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx
from mlx import nn

from ...threads.panics import panics_are_errors
from ...types import Json
from ...vectors import Ranking, Reranking
from .pooling import Encoder, Pooling, Reading

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from tokenizers import Tokenizer

_LAST = ("lasttoken",)
_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
# As Qwen3-Reranker was trained; its card has the same.
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_AFTER = "<|im_end|>\n<|im_start|>assistant\n"


_JUDGES = {
    "qwen3": ("<Instruct>: {instruction}\n\n<Query>: {query}\n\n<Document>:", " ", f"{_AFTER}<think>\n\n</think>\n\n"),
    "qwen3_vl": ("<Instruct>: {instruction}<Query>:{query}\n", "<Document>:", _AFTER),
}
"""Questions that kinds of models were trained on, as mlx-vlm's server has them: what asks, with places for an
instruction and the query (no token of a BPE vocabulary reaches across its end); what leads to the document; its end."""


def find_judge(model: nn.Module, encoder: Encoder | None, tokenizer: TokenizerWrapper, config: Json) -> Judge | None:
    """A `Judge` for a decoder; None if it is not of a kind that was trained to rerank.

    Args:
        model: of mlx-lm, or mlx-vlm's language model.
        encoder: gives its hidden states.
        tokenizer: mlx-lm's `TokenizerWrapper`.
        config: the checkpoint's.
    """
    wording = _JUDGES.get(config.get("model_type", ""))
    backend: Tokenizer | None = getattr(tokenizer._tokenizer, "backend_tokenizer", None)
    if encoder is None or wording is None or backend is None:
        return None
    answers = [token for word in ("yes", "no") if (token := backend.token_to_id(word)) is not None]
    if len(answers) < 2 or len(backend.encode(_AFTER[:10], add_special_tokens=False).ids) != 1:
        return None  # its turns end otherwise
    ask, lead, after = wording
    begin, end = encode_texts(backend, [_BEFORE, after])
    return Judge(model, encoder, PairTokenizer(backend, begin, [], end, ask, lead), answers)


class Judge:
    """Scores pairs by how likely yes is, against no.

    Args:
        model: its head makes logits.
        encoder: gives its hidden states.
        pairs: makes the texts.
        answers: the tokens yes and no.
    """

    def __init__(self, model: nn.Module, encoder: Encoder, pairs: PairTokenizer, answers: Sequence[int]) -> None:
        self._model, self._encoder, self._answers = model, encoder, list(answers)
        self.settings = Reranking(pairs, takes_instruction=True)

    def __call__(self, pairs: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        """`[pairs, 1]`, lazy."""
        states, counts = self._encoder.states(pairs)
        pooling = Pooling(_LAST, counts)
        pooling.add(states)
        return self._judge(pooling.result())

    def begin(self, pair: Sequence[int], skip: int = 0) -> Reading | None:
        """A pair that is read in pieces; see `Encoder.begin`."""
        return self._encoder.reading(pair, Pooling(_LAST, [len(pair)]), self._judge)

    def _judge(self, states: mx.array) -> mx.array:
        """Scores, of the states of the last tokens."""
        head = getattr(self._model, "lm_head", None) or self._model.model.embed_tokens.as_linear
        logits = head(states).astype(mx.float32)
        yes, no = (logits[:, token : token + 1] for token in self._answers)
        return mx.sigmoid(yes - no)


class PairTokenizer:
    """Makes the texts that a reranker reads; nothing in a query or a document becomes a control token.

    Args:
        backend: a tokenizer of the tokenizers library, which others may use as well.
        begin: token ids before the query.
        between: those between the query and the document.
        end: those behind the document.
        ask: text that is read instead of the query, with places for that and an instruction.
        lead: what is put before each document.
    """

    def __init__(
        self,
        backend: Tokenizer,
        begin: Sequence[int],
        between: Sequence[int],
        end: Sequence[int],
        ask: str = "{query}",
        lead: str = "",
    ) -> None:
        self._backend, self._ask, self._lead = backend, ask, lead
        self._begin, self._between, self._end = list(begin), list(between), list(end)
        added = sorted((str(token.content) for token in backend.get_added_tokens_decoder().values()), reverse=True)
        self._control = re.compile("|".join(map(re.escape, added)) or "(?!)")
        self._leading = len(encode_texts(backend, [lead.rstrip()])[0])  # a space is part of the first word

    def __call__(self, ranking: Ranking) -> list[list[int]]:
        """See `Reranking.encode`. The query is tokenised once."""
        asked = self._ask.format(query=ranking.query, instruction=ranking.instruction or _INSTRUCTION)
        before = self._begin + self._spelt(asked) + self._between
        rooms = [] if ranking.most is None else [max(0, ranking.most - len(before) - len(self._end))]
        if ranking.most_each is not None:
            rooms.append(self._leading + ranking.most_each)
        room = min(rooms, default=None)
        texts = [self._lead + text for text in ranking.documents]
        plain = iter(encode_texts(self._backend, [text for text in texts if not self._control.search(text)]))
        ids = [self._spelt(text) if self._control.search(text) else next(plain) for text in texts]
        return [before + each[:room] + self._end for each in ids]

    def _spelt(self, text: str) -> list[int]:
        """The tokens of a text that may spell control tokens: it is cut behind the first letter of each."""
        pieces: list[str] = []
        start = at = 0
        while (found := self._control.search(text, at)) is not None:
            at = found.start() + 1
            pieces.append(text[start:at])
            start = at
        return [i for ids in encode_texts(self._backend, [*pieces, text[start:]]) for i in ids]


@panics_are_errors
def encode_texts(backend: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of texts, with nothing around them."""
    return [made.ids for made in backend.encode_batch_fast(list(texts), add_special_tokens=False)]
