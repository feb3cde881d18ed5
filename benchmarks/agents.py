"""Agent loops: what each turn prefills, for models of each kind of cache, with thinking and without."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx_lm

from localai_shim import AsyncLocalOpenAI, LocalOpenAI

from .bare import BareModel
from .bench import Bench
from .families import FAMILIES, make_family
from .figures import Figure, Section, print_figures, print_table, ratios, spread
from .streams import Answer, ask
from .workload import Prompts, common_length, render

SYSTEM, TURNS, AGENTS = 1_500, 10, 8
AGENT_TURNS = 3
SPARE = 16  # tokens that a turn may prefill beyond its new ones
FLAT = 1.3  # times the TTFT of turn 2
_QUESTION, _ANSWER, _THOUGHT = 60, 24, 8  # tokens


@dataclass(slots=True)
class Turn:
    """One turn of a loop."""

    answer: Answer
    tokens: list[int]
    """Its prompt."""
    new: int
    """Prompt tokens that the turn before did not have, answer included."""

    @property
    def surplus(self) -> int:
        """Tokens prefilled beyond the new ones."""
        return self.answer.prefilled - self.new


class Loop:
    """A conversation that goes on with what the model said, or as if it had called a tool.

    Args:
        client: whose engine runs a model with the template of `families`.
        tokenizer: mlx-lm's wrapper of the same model.
        words: where texts come from.
        system: its first message.
        thinking: whether the model thinks before it answers.
        tools: every turn but the first brings the result of a call, and not a new question.
    """

    def __init__(
        self, client: AsyncLocalOpenAI, tokenizer: Any, words: Prompts, system: str, *, thinking: bool, tools: bool
    ) -> None:
        self._client, self._tokenizer, self._words = client, tokenizer, words
        self._thinking, self._tools = thinking, tools
        self._messages: list[Any] = [{"role": "system", "content": system}, self._question()]
        self._seen: list[int] = []
        self.turns: list[Turn] = []

    async def turn(self) -> None:
        """Ask, and prepare the next turn."""
        tokens = render(self._tokenizer, self._for_template(), enable_thinking=self._thinking)
        new = len(tokens) - common_length(self._seen, tokens)
        fields: dict[str, Any] = {"enable_thinking": self._thinking}
        if self._thinking:
            fields["thinking_budget"] = _THOUGHT
        answer = await ask(self._client, self._messages, _ANSWER, **fields)
        if answer.prompt_tokens != len(tokens):
            raise RuntimeError("the client renders this conversation in another way")
        self.turns.append(Turn(answer, tokens, new))
        # The answer's own tokens, if the text becomes the same ones again: else fewer seem new than are.
        said = self._tokenizer.encode(answer.reasoning or answer.content, add_special_tokens=False)
        self._seen = [*tokens, *said]
        if self._tools:
            self._messages += self._call()
        else:
            self._messages += [{"role": "assistant", "content": answer.content}, self._question()]

    def _question(self) -> dict[str, Any]:
        return {"role": "user", "content": self._words.words(_QUESTION)}

    def _call(self) -> list[dict[str, Any]]:
        """A call that the model might have made, and its result; the random model makes none."""
        call_id = f"call_{len(self.turns)}"
        function = {"name": "look_up", "arguments": json.dumps({"what": self._words.words(4).strip()})}
        called: dict[str, Any] = {"role": "assistant", "content": ""}
        if self._thinking:
            called["reasoning_content"] = self._words.words(_THOUGHT).strip()
        called["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
        return [called, {"role": "tool", "tool_call_id": call_id, "content": self._words.words(_QUESTION).strip()}]

    def _for_template(self) -> list[Any]:
        messages = []
        for message in self._messages:
            calls = [
                {**c, "function": {**c["function"], "arguments": json.loads(c["function"]["arguments"])}}
                for c in message.get("tool_calls", ())
            ]
            messages.append({**message, "tool_calls": calls} if calls else message)
        return messages


def measure(bench: Bench) -> Section:
    """Every family, thinking on and off, questions and tool results."""
    section = Section()
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as root:
        for family in FAMILIES:
            folder = make_family(Path(root) / family.replace(" ", "-"), family)
            model, tokenizer, *_ = mlx_lm.load(str(folder))
            bare = BareModel(model)
            with closing(LocalOpenAI(model=folder, keep_alive=0)):  # holds the engine while event loops come and go
                client = AsyncLocalOpenAI(model=folder, keep_alive=0)
                words = Prompts(tokenizer, SYSTEM, seed=8)
                for thinking in (True, False):
                    name = f"{family}, thinking {'on' if thinking else 'off'}"
                    _measure_one(name, client, bare, tokenizer, words, thinking, bench, section, rows)
                asyncio.run(client.close())
    print(f"Agent loops over a system prompt of {SYSTEM} tokens: prefilled tokens - new tokens, per turn")
    print_table(
        [
            *("", f"{TURNS} turns", "with tools", f"{AGENTS} agents"),
            *("TTFT of turn 2, ms", "bare prefill of what is new", f"TTFT of turn {TURNS}", "bare"),
        ],
        rows,
    )
    print_figures(section.figures)
    return section


def _measure_one(
    name: str,
    client: AsyncLocalOpenAI,
    bare: BareModel,
    tokenizer: Any,
    words: Prompts,
    thinking: bool,
    bench: Bench,
    section: Section,
    rows: list[list[str]],
) -> None:
    def loop(system: str, *, tools: bool = False) -> Loop:
        return Loop(client, tokenizer, words, system, thinking=thinking, tools=tools)

    asyncio.run(_run([loop(words.words(200))], 2))  # warms up
    loops = [loop(words.words(SYSTEM)) for _ in range(1 if bench.quick else bench.repeats)]
    bare_seconds: list[tuple[float, float]] = []
    for one in loops:
        asyncio.run(_run([one], TURNS))
        bare_seconds.append((_bare_seconds(bare, one.turns[1]), _bare_seconds(bare, one.turns[-1])))
    calling = loop(words.words(SYSTEM), tools=True)
    asyncio.run(_run([calling], TURNS))
    system = words.words(SYSTEM)
    together = [loop(system) for _ in range(AGENTS)]
    asyncio.run(_run(together, 2 if bench.quick else AGENT_TURNS))

    surplus = {
        f"{TURNS} turns": [turn.surplus for one in loops for turn in one.turns],
        f"{TURNS} turns with tools": [turn.surplus for turn in calling.turns],
        f"{AGENTS} agents sharing it": _surplus_of_agents(together),
    }
    for what, values in surplus.items():
        worst = Figure(
            f"agents: {name}, {what}: worst turn, tokens beyond the new", [max(values)], SPARE, at_least=False, digits=0
        )
        section.figures.append(worst)
    first, last = ([one.turns[i].answer.first_token for one in loops] for i in (1, TURNS - 1))
    bare_first, bare_last = (list(seconds) for seconds in zip(*bare_seconds, strict=True))
    section.figures += [
        Figure(f"agents: {name}: TTFT of turn {TURNS} / turn 2", ratios(last, first), FLAT, at_least=False),
        # Attention to what was before takes longer with each turn, whoever runs it.
        Figure(f"agents: {name}: TTFT / bare prefill of what is new, turn 2", ratios(first, bare_first), None),
        Figure(f"agents: {name}: TTFT / bare prefill of what is new, turn {TURNS}", ratios(last, bare_last), None),
    ]
    times = [spread(seconds, 1e3, 1) for seconds in (first, bare_first, last, bare_last)]
    rows.append([name, *(_range(values) for values in surplus.values()), *times])
    section.raw[name] = {
        "surplus": surplus,
        "ttft_seconds": [[turn.answer.first_token for turn in one.turns] for one in loops],
        "bare_seconds": bare_seconds,
        "agents_ttft_seconds": [[turn.answer.first_token for turn in one.turns] for one in together],
    }


def _bare_seconds(bare: BareModel, turn: Turn) -> float:
    shared = len(turn.tokens) - turn.new
    return bare.continue_seconds(bare.prefix(turn.tokens[:shared]), turn.tokens[shared:])


async def _run(loops: Sequence[Loop], turns: int) -> None:
    async def run(loop: Loop) -> None:
        for _ in range(turns):
            await loop.turn()

    await asyncio.gather(*(run(loop) for loop in loops))


def _surplus_of_agents(loops: Sequence[Loop]) -> list[int]:
    """On the first turn one agent prefills what they share; to the others it is not new."""
    first = sorted((loop.turns[0] for loop in loops), key=lambda turn: turn.answer.prefilled)
    shared = min(common_length(first[0].tokens, turn.tokens) for turn in first[1:])
    out = [first[-1].surplus]
    out += [turn.answer.prefilled - (len(turn.tokens) - shared) for turn in first[:-1]]
    return out + [turn.surplus for loop in loops for turn in loop.turns[1:]]


def _range(values: Sequence[int]) -> str:
    return f"{min(values)}..{max(values)}"
