"""Classify texts with structured outputs: a grammar allows only labels.

python examples/classify.py [MODEL]

The bundled model always returns a valid label, but guesses which.
"""

import asyncio
import sys
from typing import Literal

from pydantic import BaseModel

from localai_shim import AsyncLocalOpenAI

TEXTS = [
    "The parcel came two weeks late.",
    "How do I reset my password?",
    "You have charged me twice!",
    "The app closes when I open the camera.",
    "Where is my order?",
    "I love the new colours.",
]


class Label(BaseModel):
    """What a text is about."""

    topic: Literal["delivery", "account", "payment", "bug", "praise"]
    urgent: bool


async def classify(client: AsyncLocalOpenAI, text: str) -> Label:
    answer = await client.chat.completions.parse(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": "Label the text."},
            {"role": "user", "content": text},
        ],
        response_format=Label,
        temperature=0,
    )
    label = answer.choices[0].message.parsed
    assert label is not None
    return label


async def main(model: str | None = None) -> None:
    async with AsyncLocalOpenAI(model=model) as client:
        labels = await asyncio.gather(
            *(classify(client, text) for text in TEXTS)
        )
    for text, label in zip(TEXTS, labels, strict=True):
        print(f"{label.topic:10} {'urgent' if label.urgent else '':8} {text}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
