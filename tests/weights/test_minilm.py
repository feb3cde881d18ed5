"""all-MiniLM-L6-v2: similarities that sentence-transformers publishes, and finding what a question is about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from localai_shim import LocalOpenAI

# sentence-transformers' documentation prints these for this model (sbert.net, "Usage"): its own output.
PUBLISHED = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
SIMILARITIES = {(0, 1): 0.6660, (0, 2): 0.1046, (1, 2): 0.1411}

RECORDED = Path(__file__).with_name("minilm.json")  # by sentence-transformers 6.2 with torch 2.13

PASSAGES = {
    "The Great Wall of China was built to keep out invaders from the north.": "Why was a wall made in Asia?",
    "Photosynthesis lets plants turn sunlight into sugar.": "How do leaves make food from light?",
    "The heart pumps blood through the body about seventy times a minute.": "Which organ moves blood?",
    "Bread rises because yeast makes gas in the dough.": "Why does a loaf get bigger before it is baked?",
    "The Amazon is the largest rainforest on Earth.": "Where is the biggest tropical forest?",
    "Interest rates rise when central banks fight inflation.": "What do central banks do about higher prices?",
    "Bees dance to tell each other where flowers are.": "How do insects of a hive say where nectar is?",
    "A violin has four strings and is played with a bow.": "Which instrument does one play with a bow?",
    "The first email was sent in 1971 by Ray Tomlinson.": "Who sent the first electronic message?",
    "Glaciers carve valleys as they slowly move downhill.": "What does moving ice do to mountains?",
    "Penguins are birds that swim well and cannot fly.": "Which birds are good in water?",
    "Chess is played on a board of sixty-four squares.": "How many fields does the board of the king's game have?",
    "Vaccines train the immune system to fight a virus.": "How do shots protect us from disease?",
    "Rust forms when iron meets water and oxygen.": "Why do old nails turn brown?",
    "The Eiffel Tower was opened in 1889 in Paris.": "When was the French capital's landmark finished?",
    "Sharks can smell a drop of blood in the sea.": "Which fish has a very good nose?",
}
"""Passages, and questions that hardly share a word with them."""


@pytest.fixture(scope="module")
def client(weights: Path) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(model=weights / "all-MiniLM-L6-v2") as client:
        yield client


def embed(client: LocalOpenAI, texts: list[str]) -> np.ndarray:
    """`[texts, 384]`"""
    return np.array([each.embedding for each in client.embeddings.create(model="any", input=texts).data])


def test_similarities_are_the_published_ones(client: LocalOpenAI) -> None:
    vectors = embed(client, PUBLISHED)
    assert vectors.shape == (3, 384)
    found = vectors @ vectors.T
    assert {pair: float(found[pair]) for pair in SIMILARITIES} == pytest.approx(SIMILARITIES, abs=1e-4)
    assert np.allclose(np.diag(found), 1, atol=1e-5)


def test_vectors_are_those_of_sentence_transformers(client: LocalOpenAI) -> None:
    """Recorded from it on the same folder: a text beyond the model's length, and characters that it does not know."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    texts = [text for text in recorded["texts"] if text]  # OpenAI's API refuses an empty one
    places = [i for i, text in enumerate(recorded["texts"]) if text]
    made = client.embeddings.create(model="any", input=texts, extra_body={"truncate": True})  # as it does by itself
    vectors = np.array([each.embedding for each in made.data])
    first = np.array(recorded["first_numbers"])[places]
    assert np.allclose(vectors[:, : first.shape[1]], first, atol=1e-4)
    assert np.allclose(vectors @ vectors.T, np.array(recorded["similarities"])[np.ix_(places, places)], atol=1e-4)


def test_questions_find_their_passages(client: LocalOpenAI) -> None:
    scores = embed(client, list(PASSAGES.values())) @ embed(client, list(PASSAGES)).T
    order = np.argsort(-scores, axis=1)
    own = np.arange(len(PASSAGES))[:, None]
    assert (order[:, :1] == own).mean() >= 0.9 and (order[:, :3] == own).any(axis=1).all()
