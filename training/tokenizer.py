"""Trains the byte-level BPE tokenizer of the checkpoint and writes its files."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from training.chat import END_OF_TEXT, IM_END, SPECIAL_TOKENS, TEMPLATE, completion_text, prompt_text
from training.dialogues import sample_any
from training.registry import Split

# Every digit on its own; a word takes the space before it; runs of space and of marks stay together.
PIECES: Final = r"\p{N}| ?[\p{L}\p{M}]+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s"
# Short entries make every long word several tokens, so that the spelling of an unseen word can be learnt from others.
LONGEST_ENTRY: Final = 6


def corpus(seed: int, count: int) -> Iterator[str]:
    """The text of ``count`` training dialogues."""
    rng = Random(seed)
    for _ in range(count):
        kind, dialogue = sample_any(rng, Split.TRAIN)
        prompt = prompt_text(dialogue.messages, dialogue.tools, thinking=True) if dialogue.raw is None else dialogue.raw
        yield prompt + completion_text(rng.choice(dialogue.answers), kind.thought, thinking=True)


def train_tokenizer(seed: int, vocabulary: int, count: int = 30_000) -> Tokenizer:
    """A byte-level BPE tokenizer with ``vocabulary`` entries, special tokens included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=LONGEST_ENTRY,
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(seed, count), trainer)
    return tokenizer


def tokenizer_config(context: int) -> dict[str, Any]:
    """What transformers reads besides ``tokenizer.json``; ``context`` is in tokens."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "bos_token": None,
        "eos_token": IM_END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "extra_special_tokens": [],
    }


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Writes ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja``."""
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(context), indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
