"""Time to first token of agents: a warm turn, and several that share a prompt."""

from __future__ import annotations

import asyncio
from statistics import mean, median
from typing import Any

from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .streams import ask
from .workload import GREEDY, common_length, render

CACHED, NEW, ANSWER = 3_000, 135, 8
TURN_TARGET = 1.2
SHARED, AGENTS = 1_900, 8
SHARED_TARGET = 1.3


def warm_turn(bench: Bench) -> Section:
    """The second turn of a conversation, against a bare prefill of what is new in it."""
    runs: list[tuple[float, float, int]] = []
    prompts = bench.prompts_of(CACHED, seed=4)
    for number in range(bench.repeats + 2):
        (prompt,) = prompts.take(1)
        content, answer = asyncio.run(_first_turn(bench, prompt.messages))
        question = prompts.words(NEW - ANSWER)
        messages = [
            *prompt.messages,
            {"role": "assistant", "content": content},
            {"role": "user", "content": question},
        ]
        tokens = render(bench.tokenizer, messages)
        shared = common_length([*prompt.tokens, *answer], tokens[:-1])
        prefix = bench.bare.prefix(tokens[:shared])
        before = bench.bare.continue_seconds(prefix, tokens[shared:])
        turn = asyncio.run(ask(bench.ours, messages, 2))
        after = bench.bare.continue_seconds(prefix, tokens[shared:])
        if number >= 2:  # the first ones warm up
            runs.append((turn.first_token, mean((before, after)), turn.prefilled - len(tokens[shared:])))
    ours, bare, surplus = map(list, zip(*runs, strict=True))
    print(
        f"Warm turn, about {NEW} new tokens on {CACHED}: TTFT {spread(ours, 1e3, 1)} ms, bare prefill of the new "
        f"tokens {spread(bare, 1e3, 1)} ms; tokens prefilled beyond the new ones: {spread(surplus, digits=0)}"
    )
    figures = [
        Figure("warm turn: TTFT / bare prefill of the new tokens", ratios(ours, bare), TURN_TARGET, at_least=False)
    ]
    print_figures(figures)
    return Section(figures, {"client_seconds": ours, "bare_seconds": bare, "tokens_beyond_the_new": surplus})


async def _first_turn(bench: Bench, messages: Any) -> tuple[str, list[int]]:
    """An answer's text and its tokens, as they were generated."""
    made = await bench.ours.chat.completions.create(
        model="bench", messages=messages, max_tokens=ANSWER, logprobs=True, **GREEDY.fields()
    )
    (choice,) = made.choices
    assert choice.logprobs is not None and choice.logprobs.content is not None
    ids = {bench.tokenizer.decode([i]): i for i in range(len(bench.tokenizer))}
    return choice.message.content or "", [ids.get(entry.token, -1) for entry in choice.logprobs.content]


def shared_prompt(bench: Bench) -> Section:
    """Agents that start together on a system prompt that nobody has seen."""
    runs: list[tuple[float, float, int]] = []
    prompts = bench.prompts_of(SHARED, seed=5)
    for number in range(bench.repeats + 1):
        (prompt,) = prompts.take(1)
        before = bench.bare.first_token_seconds(prompt)
        conversations = [
            [{"role": "system", "content": prompt.text}, {"role": "user", "content": prompts.words(12)}]
            for _ in range(AGENTS)
        ]
        answers = asyncio.run(_together(bench, conversations))
        after = bench.bare.first_token_seconds(prompt)
        if number:
            p50 = median(a.first_token for a in answers)
            runs.append((p50, mean((before, after)), sum(a.prefilled for a in answers)))
    ours, bare, prefilled = map(list, zip(*runs, strict=True))
    print(
        f"{AGENTS} agents that share {SHARED} tokens, started together: TTFT p50 {spread(ours, 1e3, 0)} ms, one bare "
        f"prefill {spread(bare, 1e3, 0)} ms; tokens prefilled in all: {spread(prefilled, digits=0)}"
    )
    name = f"shared prompt: {AGENTS} agents, TTFT p50 / one bare prefill"
    figures = [Figure(name, ratios(ours, bare), SHARED_TARGET, at_least=False)]
    print_figures(figures)
    return Section(figures, {"client_seconds_p50": ours, "bare_seconds": bare, "prefilled_tokens": prefilled})


async def _together(bench: Bench, conversations: list[Any]) -> list[Any]:
    return await asyncio.gather(*(ask(bench.ours, messages, 8) for messages in conversations))
