"""The tokenizer: whole words of the questions, single letters of what is printed; and dialogues as token ids."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

from training.registry import Split
from training.vision.dialogues import IMAGE, Calls, Dialogue, Retold
from training.vision.scenes import SHORT_WORDS
from training.vision.skills import SKILLS, TALK, opened, some_tools

END_OF_TEXT: Final = "<|endoftext|>"
START, END = "<|im_start|>", "<|im_end|>"
AROUND, WHOLE = "<fake_token_around_image>", "<global-img>"
SPECIALS: Final = (END_OF_TEXT, START, END, AROUND, WHOLE, IMAGE, "<end_of_utterance>")
IMAGE_TOKENS: Final = 64
IGNORED: Final = -100
CONTEXT: Final = 2048
MOST_WORDS: Final = 640
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


TOOLS: Final = """You can call functions. Each of these lines describes one as JSON, with a schema of its parameters:
{functions}

To call a function, answer with its name and its arguments, exactly like this:
{example}
Write this for each call, and nothing after the last one. The results come back in <tool_response> blocks. \
Where no function helps, answer in words."""
"""As localai_shim/formats/description.py describes functions where a template does not."""


def written(name: str, arguments: dict[str, Any]) -> str:
    """A call as a model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def parts(dialogue: Dialogue) -> list[tuple[str, str, bool]]:
    """Roles and texts of a prompt as localai_shim renders it, and whether the model learns to write them."""
    made: list[tuple[str, str, bool]] = []
    head = [] if dialogue.system is None else [dialogue.system]
    if dialogue.tools:
        functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in dialogue.tools)
        head.append(TOOLS.format(functions=functions, example=written("function_name", {"parameter": "value"})))
    if head:
        made.append(("system", "\n\n".join(head), False))
    for question, answer in dialogue.turns:
        if isinstance(question, str):
            made.append(("user", question, False))
        elif dialogue.tools:
            results = (f"<tool_response>\n{one}\n</tool_response>" for one in question.contents)
            made.append(("user", "\n".join(results), False))
        else:
            made += [("tool", one, False) for one in question.contents]
        if isinstance(answer, Calls):
            calls = "\n".join(written(*one) for one in answer.calls)
            made.append(("assistant", f"{answer.text}\n{calls}" if answer.text else calls, False))
        elif answer is not None:
            made.append(("assistant", answer, not isinstance(answer, Retold)))
    return made


def words_of_questions(seed: int = 0, count: int = 400) -> list[str]:
    """Words that are one token, with the space before them: those that often stand where nothing is printed."""
    rng, found = Random(seed), Counter[str]()
    for skill, make in SKILLS.items():
        for _ in range(count):
            made = opened(rng, make(rng, Split.TRAIN))
            if skill == "small talk" and rng.random() < 0.3:
                made = replace(made, tools=some_tools(rng))
            printed = {line.text for scene in made.scenes for line in scene.prints}
            texts = [text for _, text, _ in parts(made) if text not in printed]
            found.update(piece for text in texts for piece in re.findall(PIECES, text))
        if skill == "small talk":
            found.update(piece for turn in TALK for text in turn for piece in re.findall(PIECES, text) * 9)
    lines = set(SHORT_WORDS) | ({word.capitalize() for word in SHORT_WORDS} - {"Are", "Is"})
    known = [
        (piece, times)
        for piece, times in found.items()
        if times > 8
        and len(piece) > 1
        and (piece[0] == " " or piece.istitle() or piece.islower())
        and piece not in lines
    ]
    return sorted(piece for piece, _ in sorted(known, key=lambda one: (-one[1], one[0]))[:MOST_WORDS])


def make_tokenizer() -> Any:
    """A byte-level BPE tokenizer without merges, whose whole words are entries."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [word.replace(" ", "Ġ") for word in (*words_of_questions(), "user", "assistant", "system", "tool")]
    vocabulary = {entry: i for i, entry in enumerate(dict.fromkeys([*SPECIALS, *alphabet, *words]))}
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

    for role, text, taught in parts(dialogue):
        add(f"{START}{role}\n", False)
        add(f"{text}{END}", taught)
        add("\n", False)
    return ids[:-1], [after if mark else IGNORED for after, mark in zip(ids[1:], marks[1:], strict=True)]


def prompt_of(dialogue: Dialogue) -> tuple[str, str]:
    """The prompt for the last answer, and that answer."""
    *before, (_, answer, _) = parts(dialogue)
    text = "".join(f"{START}{role}\n{text}{END}\n" for role, text, _ in before)
    return f"{text}{START}assistant\n", answer


def shortened(encoder: Encoder, dialogue: Dialogue, length: int) -> tuple[list[int], list[int]]:
    """A row of at most this length; turns at the end are dropped where it is too long."""
    while True:
        ids, wanted = row(encoder, dialogue)
        if len(ids) <= length or len(dialogue.turns) == 1:
            return ids[:length], wanted[:length]
        dialogue = replace(dialogue, turns=dialogue.turns[:-1])
