"""Dialogues of every kind, with the system prompts, tools and earlier turns that may surround them.

A new kind is one decorated function in a ``kinds_*`` module; a new module is one more import here.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from training import (
    canned,
    kinds_agent,
    kinds_beyond,
    kinds_chat,
    kinds_copy,
    kinds_extract,
    kinds_facts,
    kinds_invent,
    kinds_lookup,
    kinds_memory,
    kinds_numbers,
    kinds_results,
    kinds_results_more,
    kinds_rules,
    kinds_steps,
    kinds_system,
    kinds_system_more,
    kinds_text,
    kinds_tools,
    kinds_turns,
    kinds_words,
    results_tools,
    wordlists,
)
from training.excluded import is_excluded
from training.registry import REGISTRY, Dialogue, Kind, Split, assistant, system
from training.wordlists import ADJECTIVES, noun, sentence

KIND_MODULES: Final = (
    kinds_agent,
    kinds_beyond,
    kinds_chat,
    kinds_copy,
    kinds_extract,
    kinds_facts,
    kinds_invent,
    kinds_lookup,
    kinds_memory,
    kinds_numbers,
    kinds_results,
    kinds_results_more,
    kinds_rules,
    kinds_steps,
    kinds_system,
    kinds_system_more,
    kinds_text,
    kinds_tools,
    kinds_turns,
    kinds_words,
)
KINDS: Final = tuple(REGISTRY.kinds.values())
COMPARED: Final = tuple(kind for kind in KINDS if kind.content != "free")
WEIGHTS: Final = tuple(kind.weight for kind in KINDS)
HISTORY_KINDS: Final = tuple(kind for kind in KINDS if not kind.standalone)
# A name, role or fact of the system prompt would change their answers.
ANSWERED_BY_SYSTEM: Final = frozenset(("own_nature", "own_place", "own_maker", "abilities", "unknown", "beyond"))
# A search, a clock or a forecast might do what they ask for.
ANSWERED_BY_TOOLS: Final = frozenset(("unknown", "beyond"))
LONG_HISTORY_TURNS: Final = 30
# Tools that would do what other kinds answer without one: sums, words and capitals.
CALCULATORS: Final = wordlists.listed("evaluate calc square_root sqrt run_python python get_capital capital_of")
ABLE: Final = frozenset(CALCULATORS).union(
    *(tool.names for tool in results_tools.TOOLS if tool.sort == "number" or tool.names[0] in ("translate", "define"))
)


def system_prompt(rng: Random, *, plain: bool = False) -> str:
    """A system prompt that changes nothing about the answer; a ``plain`` one tells nothing either."""
    if plain or rng.random() < 0.5:
        return kinds_system.around(rng, plain=plain)
    if rng.random() < 0.75:
        return rng.choice(canned.SYSTEM_PROMPTS)
    if rng.random() < 0.5:
        return f"You are a {rng.choice(ADJECTIVES)} {noun(rng)} assistant. Help the user."
    return ". ".join(sentence(rng) for _ in range(rng.randint(1, 3))) + "."


def history(rng: Random, split: Split, exchanges: int) -> tuple[dict[str, str], ...]:
    """Earlier turns about other things."""
    turns: list[dict[str, str]] = []
    for _ in range(exchanges):
        dialogue = rng.choice(HISTORY_KINDS).generate(rng, split)
        turns += (*dialogue.messages, assistant(rng.choice(dialogue.answers)))
    return tuple(turns)


def idle(tools: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The tools that none of the questions answered without one could use."""
    return tuple(one for one in tools if one.get("function", one)["name"].lower() not in ABLE)


def surrounded(rng: Random, split: Split, kind: Kind, dialogue: Dialogue) -> Dialogue:
    """The dialogue, now and then with earlier turns, a system prompt and tools that it does not need."""
    messages = dialogue.messages
    if messages[0]["role"] == "system":
        return dialogue
    form = rng.random()
    if form < 0.2:
        messages = (*history(rng, split, rng.randint(1, 3)), *messages)
    elif form < 0.205:
        messages = (*history(rng, split, rng.randint(8, LONG_HISTORY_TURNS)), *messages)
    if rng.random() < 0.35:
        messages = (system(system_prompt(rng, plain=kind.name in ANSWERED_BY_SYSTEM)), *messages)
    tools = dialogue.tools
    form = 1.0 if kind.name in ANSWERED_BY_TOOLS else rng.random()
    if form < 0.03:
        tools = idle(kinds_tools.offered(rng, rng.choice(kinds_tools.USES)(rng)))
    elif form < 0.1:
        tools = idle(kinds_system.unrelated_tools(rng, split))
    return replace(dialogue, messages=messages, tools=tools)


def sample(rng: Random, split: Split, kind: Kind) -> Dialogue:
    """A dialogue of the kind as it is met in training and evaluation."""
    dialogue = kind.generate(rng, split)
    return dialogue if kind.standalone else surrounded(rng, split, kind, dialogue)


def sample_any(rng: Random, split: Split) -> tuple[Kind, Dialogue]:
    """A kind drawn by weight and a dialogue of it that is not in the test set of first tries."""
    while True:
        kind = rng.choices(KINDS, WEIGHTS)[0]
        dialogue = sample(rng, split, kind)
        if not is_excluded(dialogue.messages):
            return kind, dialogue


def either(rng: Random, split: Split, more: Sequence[str]) -> tuple[Kind, Dialogue]:
    """A dialogue of any kind, or half of the time of the kinds that are wanted more, if there are some."""
    if not more or rng.random() < 0.5:
        return sample_any(rng, split)
    kind = REGISTRY.kinds[rng.choice(more)]
    dialogue = sample(rng, split, kind)
    return either(rng, split, more) if is_excluded(dialogue.messages) else (kind, dialogue)
