"""Reinforcement learning on the model that ships with the package: it learns to greet with "Hello".

The client samples answers to each prompt, and says the tokens of each with their logprobs. A copy of the model, on this
thread, learns from those that were better than others of the same prompt (GRPO), and its weights become the client's.
`python examples/grpo.py` takes a minute on two cores, and draws the rewards in grpo.svg.
"""

import asyncio
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from localai_shim import AsyncLocalOpenAI  # isort: skip  # before MLX, which multiplies faster then on Linux
from localai_shim.builtin import CHECKPOINT  # isort: skip

import mlx.core as mx
import mlx_lm
from mlx import nn, optimizers
from mlx.utils import tree_flatten

PROMPTS = ["Hello", "Hello!", "Good morning", "Hey"]
WANTED = re.compile("Hello")
STEPS, SAMPLES, MAX_TOKENS = 12, 8, 12
LEARNING_RATE, CLIP = 3e-5, 0.2


@dataclass
class Sample:
    """One answer: its prompt's tokens and its own, with the logprob of each when it was sampled."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    reward: float
    advantage: float = 0.0


def reward(text: str) -> float:
    """1 for what is wanted, else 0."""
    return float(WANTED.match(text) is not None)


async def sample(client: AsyncLocalOpenAI, prompt: str, seed: int) -> Sample:
    """Sample one answer from the model's own distribution."""
    made: Any = await client.responses.create(
        model="policy",
        input=prompt,
        max_output_tokens=MAX_TOKENS,
        temperature=1.0,
        top_p=1.0,
        include=["message.output_text.logprobs"],
        store=False,
        extra_body={"return_token_ids": True, "seed": seed, "top_k": 0},
    )
    return Sample(
        made.prompt_token_ids,
        made.token_ids,
        made.token_logprobs,
        reward(made.output_text),
    )


async def roll_out(client: AsyncLocalOpenAI, step: int) -> list[Sample]:
    """Sample answers to all prompts in one batch, and say how much better than its neighbours each is."""
    seeds = range(step * SAMPLES, (step + 1) * SAMPLES)
    made = await asyncio.gather(
        *(sample(client, prompt, seed) for prompt in PROMPTS for seed in seeds)
    )
    for start in range(0, len(made), SAMPLES):
        group = made[start : start + SAMPLES]
        rewards = [each.reward for each in group]
        for each in group:
            each.advantage = (each.reward - mean(rewards)) / (
                pstdev(rewards) + 1e-4
            )
    return list(made)


def loss(model: nn.Module, samples: Sequence[Sample]) -> mx.array:
    """GRPO's loss: advantages times clipped ratios of probabilities, over the tokens of all answers."""
    width = max(len(each.prompt) + len(each.tokens) for each in samples)
    rows, counts, old = [], [], []
    for each in samples:
        before, padding = (
            len(each.prompt) - 1,
            width - len(each.prompt) - len(each.tokens),
        )
        rows.append([*each.prompt, *each.tokens, *[0] * padding])
        counts.append(
            [0.0] * before + [1.0] * len(each.tokens) + [0.0] * padding
        )
        old.append([0.0] * before + each.logprobs + [0.0] * padding)
    tokens, counted = mx.array(rows), mx.array(counts)
    new = -nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])
    ratio = mx.exp((new - mx.array(old)) * counted)
    advantage = mx.array([[each.advantage] for each in samples])
    gain = mx.minimum(
        ratio * advantage, mx.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage
    )
    return -(gain * counted).sum() / counted.sum()


async def main(steps: int = STEPS) -> list[float]:
    """Train for some steps; returns the mean reward of each."""
    policy: Any = mlx_lm.load(str(CHECKPOINT))[0]
    policy.set_dtype(mx.float32)
    optimizer, learn = (
        optimizers.AdamW(LEARNING_RATE),
        nn.value_and_grad(policy, loss),
    )
    rewards = []
    async with AsyncLocalOpenAI(CHECKPOINT) as client:
        for step in range(steps):
            samples = await roll_out(client, step)
            rewards.append(mean(each.reward for each in samples))
            print(f"step {step}: reward {rewards[-1]:.2f}")
            told = [each for each in samples if each.advantage]
            if told and step < steps - 1:
                for _ in range(2):
                    _, gradients = learn(policy, told)
                    optimizer.update(policy, gradients)
                    mx.eval(policy.parameters(), optimizer.state)
                await client.update_weights(
                    dict(tree_flatten(policy.parameters()))
                )
    print(f"reward before {rewards[0]:.2f}, after {rewards[-1]:.2f}")
    return rewards


def draw(rewards: Sequence[float]) -> str:
    """The rewards as a line, in SVG."""
    points = " ".join(
        f"{60 + 480 * i / max(1, len(rewards) - 1):.1f},{260 - 220 * r:.1f}"
        for i, r in enumerate(rewards)
    )
    marks = "".join(
        f'<text x="50" y="{264 - 220 * r}" text-anchor="end">{r}</text>'
        for r in (0, 0.5, 1)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="600" height="300" font-family="sans-serif" font-size="14">'
        f'<rect width="600" height="300" fill="#fff"/><path d="M60 40V260H540" fill="none" stroke="#718096"/>{marks}'
        f'<polyline points="{points}" fill="none" stroke="#2b6cb0" stroke-width="3"/>'
        '<text x="60" y="24">mean reward</text>'
        f'<text x="540" y="285" text-anchor="end">step {len(rewards) - 1}</text></svg>\n'
    )


if __name__ == "__main__":
    learnt = asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS))
    Path("grpo.svg").write_text(draw(learnt))
