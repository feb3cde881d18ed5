"""The prediction of an answer, and counts of its tokens."""

from __future__ import annotations

from ..errors import BadRequest
from ..output.prediction import Pointer, Prediction
from ..prompt.messages import encodable
from ..prompt.template import ChatTokenizer
from ..types import Token
from .fields import Fields, as_array


def read_prediction(fields: Fields, tokenizer: ChatTokenizer) -> Prediction | None:
    """`prediction`; None where it has no text."""
    text = _read_text(fields)
    return Prediction(tokenizer.encode_marker(text), tokenizer.token_bytes.spelled) if text else None


def _read_text(fields: Fields) -> str:
    prediction = fields.inner("prediction")
    if not fields.has("prediction"):
        return ""
    prediction.option("type", ("content",))
    content = prediction.require("content")
    prediction.finish()
    if isinstance(content, str):
        return encodable(content, "prediction.content")
    parts = as_array("prediction.content", content, "a string or an array of text parts")
    return "".join(_read_part(part, f"prediction.content[{i}]") for i, part in enumerate(parts))


def _read_part(part: object, path: str) -> str:
    if not isinstance(part, dict):
        raise BadRequest.wrong_type(path, "a text part", part)
    fields = Fields(part, path)
    fields.option("type", ("text",))
    text = fields.text("text")
    fields.mapping("prompt_cache_breakpoint")  # a hint to OpenAI's prompt cache
    fields.finish()
    return text


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
