"""The tokenizer: whole words of the questions, single letters of what is printed; and dialogues as token ids."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

from training.registry import Split
from training.vision.dialogues import IMAGE, SKILLS, TALK, Dialogue, opened
from training.vision.scenes import SHORT_WORDS

END_OF_TEXT: Final = "<|endoftext|>"
START, END = "<|im_start|>", "<|im_end|>"
AROUND, WHOLE = "<fake_token_around_image>", "<global-img>"
SPECIALS: Final = (END_OF_TEXT, START, END, AROUND, WHOLE, IMAGE, "<end_of_utterance>")
IMAGE_TOKENS: Final = 64
IGNORED: Final = -100
CONTEXT: Final = 2048
PIECES: Final = r" ?[A-Za-z]+|\d|[^A-Za-z0-9\s]|\s"
TEMPLATE: Final = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string -%}{{ message.content }}{%- else -%}
{%- for part in message.content or [] -%}
{%- if part.type == 'image' -%}<image>{%- elif part.type == 'text' -%}{{ part.text }}{%- endif -%}
{%- endfor -%}{%- endif -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""


def words_of_questions(seed: int = 0, count: int = 400) -> list[str]:
    """Words that are one token, with the space before them: those that often stand where nothing is printed."""
    rng, found = Random(seed), Counter[str]()
    for skill, make in SKILLS.items():
        for _ in range(count):
            made = opened(rng, make(rng, Split.TRAIN))
            printed = {line.text for scene in made.scenes for line in scene.prints}
            texts = [text for turn in made.turns for text in turn if text not in printed]
            found.update(piece for text in (*texts, made.system or "") for piece in re.findall(PIECES, text))
        if skill == "small talk":
            found.update(piece for turn in TALK for text in turn for piece in re.findall(PIECES, text) * 9)
    lines = {word.capitalize() for word in SHORT_WORDS} - {"Are", "Is"}
    return [
        piece
        for piece, times in sorted(found.items())
        if times > 8 and len(piece) > 1 and (piece[0] == " " or piece.istitle()) and piece not in lines
    ]


def make_tokenizer() -> Any:
    """A byte-level BPE tokenizer without merges, whose whole words are entries."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [word.replace(" ", "Ġ") for word in (*words_of_questions(), "user", "assistant", "system")]
    vocabulary = {entry: i for i, entry in enumerate([*SPECIALS, *alphabet, *words])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIALS))
    return tokenizer


def save_tokenizer(folder: Path) -> None:
    """Write the tokenizer's three files."""
    make_tokenizer().save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "bos_token": None,
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "extra_special_tokens": {"image_token": IMAGE, "fake_image_token": AROUND, "global_image_token": WHOLE},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(TEMPLATE)


class Encoder:
    """The tokenizer as a table; several times as fast."""

    def __init__(self, file: Path) -> None:
        self.table: dict[str, int] = json.loads(file.read_text())["model"]["vocab"]
        self.split = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")").split
        self.find = re.compile(PIECES).findall
        self.block = [self.table[AROUND], self.table[WHOLE], *[self.table[IMAGE]] * IMAGE_TOKENS, self.table[AROUND]]

    def __call__(self, text: str) -> list[int]:
        """Token ids; a picture's placeholder becomes all of its tokens."""
        ids: list[int] = []
        for part in self.split(text):
            if part == IMAGE:
                ids += self.block
            elif part in SPECIALS:
                ids.append(self.table[part])
            else:
                for piece in self.find(part):
                    known = self.table.get(piece.replace(" ", "Ġ").replace("\n", "Ċ"))
                    ids += [known] if known is not None else [
                        self.table[letter.replace(" ", "Ġ")] for letter in piece
                    ]  # fmt: skip
        return ids


def row(encoder: Encoder, dialogue: Dialogue) -> tuple[list[int], list[int]]:
    """Token ids, and for each the next one where the model should write it."""
    ids, marks = list[int](), list[bool]()

    def add(text: str, taught: bool) -> None:
        more = encoder(text)
        ids.extend(more)
        marks.extend([taught] * len(more))

    if dialogue.system is not None:
        add(f"{START}system\n{dialogue.system}{END}\n", False)
    for question, answer in dialogue.turns:
        add(f"{START}user\n{question}{END}\n{START}assistant\n", False)
        add(f"{answer}{END}", True)
        add("\n", False)
    return ids[:-1], [after if mark else IGNORED for after, mark in zip(ids[1:], marks[1:], strict=True)]


def shortened(encoder: Encoder, dialogue: Dialogue, length: int) -> tuple[list[int], list[int]]:
    """A row of at most this length; turns at the end are dropped where it is too long."""
    while True:
        ids, wanted = row(encoder, dialogue)
        if len(ids) <= length or len(dialogue.turns) == 1:
            return ids[:length], wanted[:length]
        dialogue = replace(dialogue, turns=dialogue.turns[:-1])
