"""Kinds that give text of the prompt back: whole, in part, in another order, or counted."""

from random import Random
from typing import Final

from training import values, wordlists
from training.functions import in_split
from training.registry import Dialogue, Split, ask, draw, kind, lines, loose, one_of

PLACES: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
COPY_FORMS: Final = lines("""
    Repeat exactly: {t}
    Repeat this exactly: {t}
    Copy this: {t}
    Copy the following: {t}
    Copy exactly: {t}
    Say exactly this: {t}
    Write this down again: {t}
    Echo back: {t}
    Return this unchanged: {t}
    Output exactly: {t}
    Print: {t}
    Type this: {t}
    Give me back this text: {t}
    The text is: {t}\\nRepeat it.
    {t}\\n\\nRepeat the text above.
    {t}\\n\\nCopy that.
    Reproduce word for word: {t}
    Write exactly the following: {t}
    Say this, and nothing else: {t}
    Respond only with: {t}
    Answer with this text: {t}
    Quote this: {t}
    Please copy: {t}
    Can you repeat this? {t}
    I say: {t}\\nWhat did I say?
    Read this back to me: {t}
    Repeat the line:\\n{t}
    Copy everything after the colon: {t}
    Your answer must be: {t}
    Reply with this string: {t}
    Duplicate: {t}
    Mirror my message: {t}
    Text:\\n{t}\\n\\nWrite it again.
    Here is a string: {t} - repeat it
    Do not change anything: {t}
    Just say {t}
    Simply answer {t}
    Send back: {t}
    Transcribe: {t}
    Parrot this: {t}
""")


def fresh(rng: Random, split: Split) -> str:
    """A string of any cut that is new to the split."""
    return draw(lambda: values.hard_string(rng), split, lambda text: f"copy {text}")


def fresh_list(rng: Random, split: Split, fewest: int, most: int) -> list[str]:
    """Different spans, new to the split as a whole."""

    def make() -> list[str]:
        maker = rng.choice((values.span, values.code, wordlists.word, wordlists.made_up_word, values.person))
        found = dict.fromkeys(maker(rng).replace(",", "") for _ in range(rng.randint(fewest, most)))
        return list(found) if len(found) >= fewest else make()

    return draw(make, split, lambda items: f"items {items}")


@kind("open", "The user wants the same text back.", weight=6)
def copy_text(rng: Random, split: Split) -> Dialogue:
    """A string of words, codes, marks and letters of several scripts, given back unchanged."""
    text = fresh(rng, split)
    return ask(rng.choice(in_split(COPY_FORMS, split, "copy")).replace("\\n", "\n").replace("{t}", text), text)


@kind("open", "The user wants the same lines back.", weight=2)
def copy_lines(rng: Random, split: Split) -> Dialogue:
    """Several lines or a longer text, given back unchanged."""

    def make() -> str:
        if rng.random() < 0.5:
            return "\n".join(rng.choice((values.hard_string, values.words, wordlists.sentence))(rng)
                             for _ in range(rng.randint(2, 8)))  # fmt: skip
        return " ".join(wordlists.sentence(rng) + "." for _ in range(rng.randint(2, 14)))

    text = draw(make, split, lambda one: f"lines {one}")
    forms = ("Repeat these lines:\n{t}", "Copy this text:\n\n{t}", "Repeat the following text exactly.\n\n{t}",
             "Write this again:\n{t}", "{t}\n\nRepeat this.", "Copy:\n{t}", "Return this text unchanged:\n{t}")  # fmt: skip
    return ask(rng.choice(in_split(forms, split, "lines")).replace("{t}", text), text)


@kind("open", "I look for the line.", weight=4)
def quote_line(rng: Random, split: Split) -> Dialogue:
    """One line of several, by its number or by a word in it."""
    items = draw(lambda: [rng.choice((values.hard_string, values.words, wordlists.sentence))(rng)
                          for _ in range(rng.randint(3, 8))], split, lambda one: f"quote {one}")  # fmt: skip
    place = rng.randrange(len(items))
    words = [word for word in items[place].split() if sum(word in line for line in items) == 1 and word.isalnum()]
    text = "\n".join(items)
    if words and rng.random() < 0.6:
        forms = ('Quote the line with "{w}".', "Which line contains {w}?", "Quote the line that mentions {w}.",
                 "Give me the line that has {w} in it.", "Copy the line with the word {w}.", "Find the line with {w}.")  # fmt: skip
        wish = one_of(rng, in_split(forms, split, "line with"), w=rng.choice(words))
    else:
        name = "last" if place + 1 == len(items) and rng.random() < 0.6 else PLACES[place]
        forms = ("Quote the {p} line.", "What is the {p} line?", "Give me the {p} line.", "Copy the {p} line only.",
                 "Repeat the {p} line.", "Which line is {p}?")  # fmt: skip
        wish = one_of(rng, in_split(forms, split, "line at"), p=name)
    prompt = f"{text}\n\n{wish}" if rng.random() < 0.5 else f"{wish}\n\n{text}"
    return ask(prompt, items[place])


@kind("open", "The user wants one item of the list.", weight=2.5)
def item_of_list(rng: Random, split: Split) -> Dialogue:
    """One item, by its place."""
    items = fresh_list(rng, split, 2, 8)
    place = rng.randrange(len(items))
    name = "last" if place + 1 == len(items) and rng.random() < 0.5 else PLACES[place]
    forms = ("What is the {p} item of {l}?", "Which is the {p} one: {l}?", "Give me the {p} of these: {l}",
             "{l}. What is the {p} one?", "From the list {l}, take the {p}.", "Name the {p} item: {l}",
             "Pick the {p} one of {l}", "Tell me the {p} entry of this list: {l}", "Here is a list: {l}. What is {p}?")  # fmt: skip
    return ask(one_of(rng, in_split(forms, split, "item"), p=name, l=", ".join(items)), items[place])


@kind("open", "I look for the next one.", weight=1.5)
def neighbour_item(rng: Random, split: Split) -> Dialogue:
    """The item after or before a given one."""
    items = fresh_list(rng, split, 3, 8)
    place = rng.randrange(len(items) - 1)
    shown = ", ".join(items)
    if rng.random() < 0.6:
        forms = ("What comes after {x} in {l}?", "Which item follows {x}? {l}", "In the list {l}, what stands after {x}?",
                 "{l}: which one is right after {x}?", "After {x} comes what? {l}")  # fmt: skip
        return ask(one_of(rng, in_split(forms, split, "after"), x=items[place], l=shown), items[place + 1])
    forms = ("What comes before {x} in {l}?", "Which item is just before {x}? {l}", "In {l}, what stands before {x}?",
             "{l}: which one is right before {x}?")  # fmt: skip
    return ask(one_of(rng, in_split(forms, split, "before"), x=items[place + 1], l=shown), items[place])


@kind("open", "The user wants the words the other way round.", weight=2)
def reverse_words(rng: Random, split: Split) -> Dialogue:
    """The words of a sentence in reverse order."""
    words = draw(lambda: [wordlists.word(rng) for _ in range(rng.randint(2, 8))], split, lambda one: f"reverse {one}")
    forms = ("Reverse the words: {t}", "Write the words in reverse order: {t}", 'Reverse the words of "{t}"',
             "Put these words in the opposite order: {t}", "Say the words backwards: {t}",
             "Turn the order of the words around: {t}", "Last word first: {t}")  # fmt: skip
    return ask(one_of(rng, in_split(forms, split, "reverse"), t=" ".join(words)), " ".join(reversed(words)))


@kind("open", "I sort by the first letters.", weight=4)
def sort_words(rng: Random, split: Split) -> Dialogue:
    """Words in the order of the alphabet."""

    def make() -> list[str]:
        maker = rng.choice((wordlists.word, wordlists.noun, wordlists.name))
        return list(dict.fromkeys(maker(rng) for _ in range(rng.randint(2, 7))))

    items = draw(make, split, lambda one: f"sort {one}")
    forms = ("Sort these words: {l}", "Sort alphabetically: {l}", "Put these in alphabetical order: {l}",
             "Sort {l} by the alphabet", "Order these words alphabetically: {l}", "Alphabetical order, please: {l}",
             "Arrange {l} alphabetically")  # fmt: skip
    return ask(one_of(rng, in_split(forms, split, "sort"), l=", ".join(items)), ", ".join(sorted(items)))


@kind("open", "I number the items.", weight=2)
def item_count(rng: Random, split: Split) -> Dialogue:
    """How many items a list has, by way of numbering them."""
    items = fresh_list(rng, split, 1, 10)
    forms = ("How many items are in this list: {l}", "Count the items: {l}", "How many are these? {l}",
             "How many things do I name? {l}", "Number of items in {l}?", "Count: {l}")  # fmt: skip
    numbered = ", ".join(f"{number} {item}" for number, item in enumerate(items, 1))
    prompt = one_of(rng, in_split(forms, split, "count"), l=", ".join(items))
    return ask(prompt, f"{numbered}: {len(items)} item{'s' * (len(items) != 1)}.")


@kind("open", "The user wants one text in place of another.", weight=2)
def replace_word(rng: Random, split: Split) -> Dialogue:
    """A text with one word replaced by another."""
    words = draw(lambda: [wordlists.word(rng) for _ in range(rng.randint(3, 9))], split, lambda one: f"swap {one}")
    old, new = rng.choice(words), wordlists.word(rng)
    forms = ("Replace {o} with {n}: {t}", "Replace {o} by {n} in: {t}", "Write {n} instead of {o}: {t}",
             'In "{t}", change {o} to {n}.', "Swap {o} for {n} in this text: {t}", "Substitute {n} for {o}: {t}")  # fmt: skip
    prompt = one_of(rng, in_split(forms, split, "replace"), o=old, n=new, t=" ".join(words))
    return ask(prompt, " ".join(new if word == old else word for word in words))


@kind("open", "I look whether it is in the text.", weight=2)
def contains(rng: Random, split: Split) -> Dialogue:
    """Whether an item is in a list."""
    items = fresh_list(rng, split, 2, 8)
    inside = rng.random() < 0.5
    asked = rng.choice(items) if inside else rng.choice((values.span, wordlists.word))(rng).replace(",", "")
    inside = asked in items
    forms = ("Is {x} in this list: {l}?", "Does the list {l} contain {x}?", "Is {x} among {l}?",
             "{l}. Is {x} one of them?", "Do you see {x} in {l}?")  # fmt: skip
    prompt = one_of(rng, in_split(forms, split, "contains"), x=asked, l=", ".join(items))
    return ask(loose(rng, prompt), f"Yes, {asked} is in the list." if inside else f"No, {asked} is not in the list.")
