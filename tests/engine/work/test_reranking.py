"""Rerankings on the engine: beside text and embeddings, failing alone, cancelled, and with the clients' own calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, rerank
from localai_shim.engine.engine import Engine
from localai_shim.models.loading import load_model
from localai_shim.vectors import Ranking
from tests.embedding_models import tiny_classifier, tiny_embedder, tiny_judge
from tests.embedding_oracle import INSTRUCTION, QUERY, TEXTS, recorded
from tests.engine.work.passes import Head
from tests.threads import in_threads
from tests.tiny import tiny

BEST_FIRST = {
    kind: sorted(range(len(TEXTS)), key=lambda i, scores=scores: -scores[i])
    for kind, scores in recorded()["scores"].items()
}


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalOpenAI]:
    """A model that generates, embeds and ranks."""
    with LocalOpenAI(model=tiny_judge(), keep_alive=0) as client:
        yield client


def order(answer: Any) -> list[int]:
    return [result.index for result in answer.results]


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta", "judge"])
def test_a_client_ranks_as_the_oracle_does(kind: str) -> None:
    path = tiny_judge() if kind == "judge" else tiny_classifier(kind)
    with LocalOpenAI(model=path, keep_alive=0) as client:
        answer = rerank(client, QUERY, TEXTS, instruction=INSTRUCTION if kind == "judge" else None)
        assert order(answer) == BEST_FIRST[kind] and answer.model == path.name
        scores = {result.index: result.relevance_score for result in answer.results}
        assert [scores[i] for i in range(len(TEXTS))] == pytest.approx(recorded()["scores"][kind], abs=2e-6)
        assert client.stats().embedded_texts == len(TEXTS)


def test_text_embeddings_and_rankings_run_at_once(judge: LocalOpenAI) -> None:
    def chat() -> str | None:
        messages: Any = [{"role": "user", "content": "Hi"}]
        made = judge.chat.completions.create(model="m", messages=messages, temperature=0, max_tokens=40)
        return made.choices[0].message.content

    def embed() -> list[float]:
        return judge.embeddings.create(model="m", input=TEXTS).data[2].embedding

    def ask() -> list[int]:
        return order(rerank(judge, QUERY, TEXTS, instruction=INSTRUCTION))

    alone = [chat(), embed(), ask()]
    found: list[Any] = []
    jobs = [chat, embed, ask] * 4
    in_threads(lambda i: found.append((i, jobs[i]())), range(len(jobs)))
    assert len(found) == len(jobs)
    for i, made in found:
        if i % 3 == 1:
            assert made == pytest.approx(alone[1], abs=1e-5)
        else:
            assert made == alone[i % 3]


@pytest.mark.anyio
async def test_many_async_rankings_share_passes_and_keep_their_order() -> None:
    client = AsyncLocalOpenAI(model=tiny_classifier("bert"), keep_alive=0)
    found: dict[int, list[int]] = {}

    async def ask(i: int) -> None:
        turned = TEXTS[i % 4 :] + TEXTS[: i % 4]
        found[i] = [(index + i % 4) % 4 for index in order(await rerank(client, QUERY, turned))]

    async with anyio.create_task_group() as tasks:
        for i in range(12):
            tasks.start_soon(ask, i)
    assert [found[i] for i in range(12)] == [BEST_FIRST["bert"]] * 12
    await client.close()


def test_a_pass_that_fails_fails_its_own_request_only() -> None:
    engine = Engine(lambda: load_model(str(tiny_classifier("bert")), {}))
    with LocalOpenAI(engine=engine) as client:
        model: Any = engine.model
        score = model.heads["rerank"]
        [marked] = model.settings["rerank"].encode(Ranking(QUERY, ["fox"]))

        def fails(pairs: Any, skip: int) -> Any:
            if marked in [list(pair) for pair in pairs]:
                raise ArithmeticError("a pair that cannot be read")
            return score(pairs)

        model.heads["rerank"] = Head(fails)
        answers: list[Any] = []
        with pytest.raises(openai.InternalServerError, match=r"scoring document 0 failed: .*cannot be read"):
            rerank(client.with_options(max_retries=0), QUERY, ["fox", "dog"])
        answers.append(order(rerank(client, QUERY, ["dog", "The quick brown fox!"])))
        model.heads["rerank"] = score
        assert answers == [order(rerank(client, QUERY, ["dog", "The quick brown fox!"]))]
        assert len(rerank(client, QUERY, ["fox"]).results) == 1
    engine.close()


def test_a_ranking_that_times_out_leaves_the_engine(judge: LocalOpenAI) -> None:
    with pytest.raises(openai.APITimeoutError):
        rerank(judge.with_options(timeout=0.0, max_retries=0), QUERY, TEXTS * 20)
    assert order(rerank(judge, QUERY, TEXTS, instruction=INSTRUCTION)) == BEST_FIRST["judge"]
    assert judge.stats().waiting == 0


# -- models that embed ----------------------------------------------------------------------------------------------

EMBEDDERS: dict[str, Callable[[], Path]] = {
    "encoder": lambda: tiny_embedder("bert"),
    "lengths of its own": lambda: tiny_embedder("bert", normalize=False),
    "a prompt": lambda: tiny_embedder("bert", prompts=(("q", "query: "),), default_prompt="q", include_prompt=False),
    "decoder": lambda: tiny("qwen3"),
}


@pytest.mark.parametrize("folder", EMBEDDERS.values(), ids=EMBEDDERS)
def test_models_that_embed_rank_by_cosine(folder: Callable[[], Path]) -> None:
    with LocalOpenAI(model=folder(), keep_alive=0) as client:
        made = client.embeddings.create(model="m", input=[QUERY, *TEXTS])
        query, *documents = [np.array(each.embedding) / np.linalg.norm(each.embedding) for each in made.data]
        expected = [float(query @ each) for each in documents]
        found = rerank(client, QUERY, TEXTS)
        scores = {each.index: each.relevance_score for each in found.results}
        assert [scores[i] for i in range(len(TEXTS))] == pytest.approx(expected, abs=1e-5)
        assert order(found) == sorted(range(len(TEXTS)), key=lambda i: -scores[i])
        short = rerank(client, QUERY, [" ".join(TEXTS)], max_tokens_per_doc=3).usage
        whole = rerank(client, QUERY, [" ".join(TEXTS)], max_tokens_per_doc=0).usage
        assert short is not None and whole is not None and short.prompt_tokens < whole.prompt_tokens


# -- what is refused ------------------------------------------------------------------------------------------------


def test_models_that_are_for_something_else_say_so() -> None:
    with LocalOpenAI(model=tiny_classifier("bert"), keep_alive=0) as client:
        with pytest.raises(openai.BadRequestError, match="it is there to rerank documents"):
            client.embeddings.create(model="m", input="a")
        with pytest.raises(openai.BadRequestError, match="cannot generate text"):
            client.responses.create(model="m", input="a")
        listed: Any = client.models.list().data[0]
        assert (listed.tasks, listed.max_model_len, listed.embedding_dimensions) == (["rerank"], 128, None)


def test_long_documents_are_refused_or_cut() -> None:
    with LocalOpenAI(model=tiny_classifier("bert"), keep_alive=0) as client:
        long = "fox " * 200
        with pytest.raises(openai.BadRequestError, match="at most 128 tokens together") as caught:
            rerank(client, QUERY, ["fox", long])
        assert (caught.value.param, caught.value.code) == ("documents.1", "context_length_exceeded")
        cut = rerank(client, QUERY, ["fox", long], truncate=True)
        assert cut.usage is not None and cut.usage.total_tokens == 128 + 11
        with pytest.raises(openai.BadRequestError) as caught:
            rerank(client, long, ["fox"], truncate=True)
        assert caught.value.param == "query"
        with pytest.raises(openai.BadRequestError, match="reads no instruction"):
            rerank(client, QUERY, ["fox"], instruction="Be strict")


def test_an_instruction_changes_what_is_relevant(judge: LocalOpenAI) -> None:
    scores = [rerank(judge, QUERY, ["fox"], instruction=i).results[0].relevance_score for i in (None, "Find animals")]
    assert scores[0] != scores[1]
