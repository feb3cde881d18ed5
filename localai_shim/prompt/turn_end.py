"""The token that ends an assistant's turn, as a model's chat template writes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from .history import Message

_ASKED, _ANSWER, _NEXT = "pencil", "marmalade", "umbrella"


def find_turn_end(
    render: Callable[[list[Message]], str | None],
    encode: Callable[[str], list[int]],
    decode: Callable[[Sequence[int]], str],
    ends: Collection[int],
    added: Mapping[int, str],
    markers: Collection[int],
) -> int | None:
    """The token with which a chat template ends answers, if an answer would not end there.

    Args:
        render: the text of a prompt for messages; None if the template refuses them.
        encode: a text's tokens alone.
        decode: the text of tokens.
        ends: tokens that end a sequence.
        added: tokens that were added to the vocabulary, with their texts.
        markers: those of them that answers contain, such as the end of a thought.

    Returns:
        None if the template writes one of the ends behind an answer, or no token.
    """
    messages: list[Message] = [
        {"role": "user", "content": _ASKED},
        {"role": "assistant", "content": _ANSWER},
        {"role": "user", "content": _NEXT},
    ]
    text = render(messages) or ""
    behind, _, rest = text.rpartition(_ANSWER)[2].partition(_NEXT)
    if not rest and not text.endswith(_NEXT):
        return None
    ids = encode(behind)
    if any(i in ends for i in ids):
        return None
    for i in ids:
        if i in markers or not decode([i]).strip():
            continue
        return i if i in added else None
    return None
