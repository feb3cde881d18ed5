"""What a seeded request says does not depend on its neighbours."""

from __future__ import annotations

from localai_shim.types import SamplingParams
from tests.engine.harness import Running, engine_for, generate, request
from tests.engine.traffic import ids_in_traffic

SEEDED = SamplingParams(temperature=1.1, top_p=0.95, seed=1234)
NEIGHBOURS = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.0, seed=1),
    SamplingParams(temperature=0.7, top_k=5, seed=2),
    SamplingParams(temperature=1.5, min_p=0.1, seed=3),
    SamplingParams(temperature=1.0, presence_penalty=1.0, seed=4),
    SamplingParams(temperature=0.0, top_logprobs=3),
    SamplingParams(temperature=2.0, logit_bias={7: 5.0}, seed=6),
]


def test_a_seeded_request_says_the_same_alone_in_a_batch_of_eight_and_again() -> None:
    engine = engine_for("qwen3")
    try:
        seeded = request([9, 8, 7, 6], SEEDED, max_tokens=60)
        [alone] = generate(engine, seeded)
        assert len(set(alone)) > 10
        neighbours = [
            Running(engine, request([3 + i, 4], params, max_tokens=20 + 9 * i)) for i, params in enumerate(NEIGHBOURS)
        ]
        assert Running(engine, seeded).finish() == [alone]
        for neighbour in neighbours:
            neighbour.finish()
        assert generate(engine, seeded) == [alone]
    finally:
        engine.close()


def test_different_seeds_say_different_things() -> None:
    engine = engine_for("qwen3")
    try:
        texts = generate(engine, *(request([9, 8], SamplingParams(seed=seed)) for seed in range(8)))
        assert len({tuple(text) for text in texts}) == 8
    finally:
        engine.close()


def test_min_tokens_holds_back_the_end_and_ignore_eos_passes_it() -> None:
    engine = engine_for("qwen3")
    try:
        [eos] = engine.model.eos_token_ids
        wants_to_end = SamplingParams(temperature=0.0, logit_bias={eos: 100.0})
        assert generate(engine, request([5, 6], wants_to_end)) == [[eos]]
        [held] = generate(engine, request([5, 6], wants_to_end, min_tokens=5))
        assert len(held) == 6 and held[-1] == eos and eos not in held[:-1]
        assert generate(engine, request([5, 6], wants_to_end, max_tokens=7, ignore_eos=True)) == [[eos] * 7]
    finally:
        engine.close()


def test_rows_that_leave_and_join_while_a_step_is_built_for_others_disturb_nobody() -> None:
    engine = engine_for("qwen3")
    try:
        sampling = [SamplingParams(temperature=0.9, top_p=0.95, seed=i, top_logprobs=1) for i in range(6)]
        prompts = [[5 + i, 6, 7 + 2 * i] for i in range(6)]
        wanted = [request(p, s, 40, ignore_eos=True) for p, s in zip(prompts, sampling, strict=True)]
        alone = [generate(engine, r)[0] for r in wanted]
        assert ids_in_traffic(engine, wanted, lambda i: wanted[i - 1]) == alone
    finally:
        engine.close()
