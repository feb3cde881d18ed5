"""Markers of reasoning, and what models write around the answer after it: a table, the most specific first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thought:
    """Format in which a family of models writes its reasoning.

    Attributes:
        name: what users call it.
        start, end: around a block.
        openers: other texts that open one.
        opened: ends of prompts after which an answer begins with reasoning, besides `start`.
        closed: texts that begin the answer proper, besides `end`: none follows where a prompt ends with one.
        structural: what the model writes around its answer, which says nothing.
        signs: what a template of this family has; `start` or `end` where nothing else is needed.
        tokens: by these tokens the family is known, too; by `start` and `end` where there are no signs either.
    """

    name: str
    start: str
    end: str
    openers: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    structural: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()


THOUGHTS = (
    Thought("seed_oss", "<seed:think>", "</seed:think>"),
    Thought("minimax_m3", "<mm:think>", "</mm:think>"),
    Thought("longcat", "<longcat_think>", "</longcat_think>"),
    Thought("hunyuan3", "<think:opensource>", "</think:opensource>", signs=("<think", "<tool_sep", "<arg_key")),
    Thought("mistral", "[THINK]", "[/THINK]"),
    Thought(
        "cohere",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        closed=("<|START_RESPONSE|>", "<|START_TEXT|>"),
        structural=(
            *("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
            *("<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ),
    ),
    Thought("apertus", "<|inner_prefix|>", "<|inner_suffix|>"),
    Thought("gemma4", "<|channel>thought", "<channel|>", openers=("<|channel>",), tokens=("<|channel>", "<channel|>")),
    Thought(
        "kimi_k3",
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
        closed=("<|open|>response<|sep|>",),
        structural=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
        signs=("<|open|>", "<|sep|>"),
        tokens=("<|open|>", "<|close|>", "<|sep|>"),
    ),
    Thought(
        "solar_open",
        "<|think|>",
        "<|end|>",
        closed=("<|think|><|end|><|begin|>assistant",),
        structural=("<|begin|>assistant<|content|>", "<|begin|>assistant", "<|content|>"),
        signs=("<|think|>", "<|end|>", "<|content|>"),
        tokens=("<|think|>", "<|end|>", "<|content|>"),
    ),
    Thought(
        "apriel",
        "Here are my reasoning steps:\n",
        "[BEGIN FINAL RESPONSE]",
        opened=("<|assistant|>", "<|begin_assistant|>"),
        structural=("[END FINAL RESPONSE]",),
    ),
    Thought(
        "granite",
        "<think>",
        "</think>",
        structural=("<response>", "</response>"),
        signs=("<think></think>", "<response></response>"),
    ),
    Thought(
        "hunyuan_a13b",
        "<think>",
        "</think>",
        structural=("<answer>", "</answer>"),
        signs=("</think>", "<|extra_0|>"),
    ),
    Thought("think_start", "<|think:start|>", "<|think:end|>"),
    Thought("think", "<think>", "</think>"),
    Thought("think", "<think>", "</think>", signs=("<tool_calls>", "<beginning_of_sentence>")),  # MiniMax-M1
)
"""Markers of reasoning, in the order in which they are looked for."""
