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
    fields.finish()
    return text


class PredictionCounts:
    """Counts of a prediction's tokens that the choices of an answer have, even where no drafts were run.

    Args:
        prediction: of each choice.
        choices: how many.
    """

    def __init__(self, prediction: Prediction, choices: int) -> None:
        self._length = len(prediction.tokens)
        self._pointers = [Pointer(prediction) for _ in range(choices)]
        self._finished = [False] * choices

    def feed(self, index: int, token: Token) -> None:
        """Take a choice's next token."""
        self._pointers[index].feed((token.id,))
        self._finished[index] = token.finish_reason is not None

    def counts(self, index: int | None = None) -> tuple[int, int]:
        """(accepted, rejected) tokens, of one choice or of all; rejected ones count once a choice has ended."""
        which = range(len(self._pointers)) if index is None else (index,)
        accepted = sum(self._pointers[i].accepted for i in which)
        return accepted, sum(self._length - self._pointers[i].accepted for i in which if self._finished[i])


def counted(prediction: Prediction | None, choices: int) -> PredictionCounts | None:
    """Counter of a prediction; None where there is none."""
    return PredictionCounts(prediction, choices) if prediction is not None else None
