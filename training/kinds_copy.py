"""Kinds that give text of the prompt back: whole, in part, in another order, or counted."""

from random import Random
from typing import Final

from training import values, wordlists
from training.registry import Dialogue, Split, ask, draw, in_split, kind, loose, one_of, wordings

PLACES: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
COPY_FORMS: Final = wordings("""
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
    [Please |Can you |Could you |Now |][repeat|copy|echo|say|print|return|reproduce|type][ this| exactly| exactly this| the following| this text| this for me|][:|:|?] {t}
""")
LINES_FORMS: Final = wordings("""
    [Repeat|Copy|Echo|Return|Write out] these lines[ exactly|]:\\n{t}
    [Copy|Repeat|Reproduce|Return] [this|the following] text[ exactly| unchanged| word for word|][:|.]\\n\\n{t}
    [Write|Say|Print|Type] this again:\\n{t}
    {t}\\n\\n[Repeat|Copy|Echo] [this|that|the text above|everything above][.|]
    [Copy|Repeat|Echo|Again|Text]:\\n{t}
""")
LINE_WITH_FORMS: Final = wordings("""
    [Quote|Copy|Give me|Find|Show|Return] the line [with|that has|containing|that contains|that mentions] ["{w}"|{w}|the word {w}][.|]
    [Which|What] line [contains|mentions|has] ["{w}"|{w}|the word {w}][ in it|]?
    [In|On] which line is [the word |]{w}?
""")
LINE_AT_FORMS: Final = wordings("""
    [Quote|Copy|Give me|Repeat|Show|Return|Say] the {p} line[.| only.| of the text.|, please.]
    [What|Which] is the {p} line[?| of the text?| here?]
    Which line is {p}?
    What does the {p} line say?
""")
ITEM_FORMS: Final = wordings("""
    [What|Which] is the {p} [item|one|entry|element] [of|in] {l}?
    [What|Which] is the {p} [item|one|entry]: {l}[?|]
    [Give me|Take|Tell me|Name|Pick|Return] the {p} [item|one|entry|of these|of this list]: {l}
    [From|Of|In] the list {l}, [take|give me|name|say] the {p}[ one|].
    {l}. [What|Which] is the {p}[ one| item|]?
    [Here is a list|List|My list|Items]: {l}. [What|Which] is [the |]{p}?
""")
AFTER_FORMS: Final = wordings("""
    [What|Which item|Which one] [comes|is|stands|goes] [right |directly |]after {x} in {l}?
    [What|Which item|Which one] follows {x}[ in this list|]? {l}
    In [the list |]{l}, [what|which one] [comes|is|stands] [right |]after {x}?
    {l}: [which one|what] [is|comes] right after {x}?
    [After|Behind] {x} comes what? {l}
    [List|Items|Here]: {l}. What [comes|is] [next |]after {x}?
""")
BEFORE_FORMS: Final = wordings("""
    [What|Which item|Which one] [comes|is|stands|goes] [right |directly |just |]before {x} in {l}?
    [What|Which item|Which one] [precedes|is before] {x}[ in this list|]? {l}
    In [the list |]{l}, [what|which one] [comes|is|stands] [right |]before {x}?
    {l}: [which one|what] [is|comes] right before {x}?
    [List|Items|Here]: {l}. What [comes|is] before {x}?
""")
REVERSE_FORMS: Final = wordings("""
    [Reverse|Turn around|Invert|Flip] the [words|order of the words][ of this| in this| here|]: {t}
    [Write|Say|Put|Give me|Print] [the|these] words [in reverse order|in the opposite order|backwards|the other way round|from last to first]: {t}
    [Reverse|Flip] the [words|word order] [of|in] "{t}"[.|]
    "{t}" - [reverse the words|the words backwards, please|words in reverse order]
    [Last word first|Words backwards|Reverse word order|Reversed]: {t}
""")
SORT_FORMS: Final = wordings("""
    [Sort|Order|Arrange] these words[ alphabetically| by the alphabet| from A to Z| in alphabetical order|]: {l}
    [Sort|Order|Arrange|Put] [this list|these names|these items|the following] [alphabetically|by the alphabet|in alphabetical order|from A to Z]: {l}
    [Sort|Order|Arrange|Alphabetise] {l} [alphabetically|by the alphabet|from A to Z|in alphabetical order]
    [Alphabetical order|A to Z|Sort alphabetically|In alphabetical order], please: {l}
    [Sort|Sorted|Alphabetise]: {l}
""")
COUNT_FORMS: Final = wordings("""
    How many [items|things|words|entries|names] are [in this list|in the list|listed here|there|these][:|?] {l}
    [Count|Number] the [items|things|entries|elements][ in this list| of the list|]: {l}
    [Count|How many]: {l}
    [What is the number|Tell me the number|Give me the number] of items [in|of] {l}[?|]
    How many [items|things] do [I|we] [name|list|have] here? {l}
    How [long|big] is this list: {l}?
    {l} - how many are [these|that|there]?
""")
REPLACE_FORMS: Final = wordings("""
    [Replace|Substitute|Exchange] {o} [with|by|for] {n}[ in|:| in this text:| here:] {t}
    [Write|Put|Use|Say] {n} instead of {o}[:| in| here:| in this text:] {t}
    [In|Take] "{t}"[, change|, turn|: change|and change] {o} [to|into] {n}[.|]
    [Change|Turn|Swap|Switch] {o} [to|for|into] {n}[:| in| in this text:| here:] {t}
    {o} [becomes|should be|has to be|must be] {n}: {t}
""")
CONTAINS_FORMS: Final = wordings("""
    Is {x} [in|on|part of|among] [this list|the list|these]: {l}?
    Does [the list|this list|this] {l} [contain|include|have|hold] {x}?
    [Is|Do you see|Can you find] {x} [among|in] {l}?
    {l}. [Is|Do you see] {x} [one of them|among them|in there|in it]?
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


@kind("open", "The user wants the same lines back.", weight=4)
def copy_lines(rng: Random, split: Split) -> Dialogue:
    """Several lines or a longer text, given back unchanged."""

    def make() -> str:
        if rng.random() < 0.5:
            return "\n".join(rng.choice((values.hard_string, values.words, wordlists.sentence))(rng)
                             for _ in range(rng.randint(2, 8)))  # fmt: skip
        return " ".join(wordlists.sentence(rng) + "." for _ in range(rng.randint(2, 14)))

    text = draw(make, split, lambda one: f"lines {one}")
    return ask(rng.choice(in_split(LINES_FORMS, split, "lines")).replace("\\n", "\n").replace("{t}", text), text)


@kind("open", "I look for the line.", weight=8)
def quote_line(rng: Random, split: Split) -> Dialogue:
    """One line of several, by its number or by a word in it."""
    items = draw(lambda: [rng.choice((values.hard_string, values.words, wordlists.sentence))(rng)
                          for _ in range(rng.randint(3, 8))], split, lambda one: f"quote {one}")  # fmt: skip
    place = rng.randrange(len(items))
    words = [word for word in items[place].split() if sum(word in line for line in items) == 1 and word.isalnum()]
    text = "\n".join(items)
    if words and rng.random() < 0.6:
        wish = one_of(rng, in_split(LINE_WITH_FORMS, split, "line with"), w=rng.choice(words))
    else:
        name = "last" if place + 1 == len(items) and rng.random() < 0.6 else PLACES[place]
        wish = one_of(rng, in_split(LINE_AT_FORMS, split, "line at"), p=name)
    prompt = f"{text}\n\n{wish}" if rng.random() < 0.5 else f"{wish}\n\n{text}"
    return ask(prompt, items[place])


@kind("open", "The user wants one item of the list.", weight=2.5)
def item_of_list(rng: Random, split: Split) -> Dialogue:
    """One item, by its place."""
    items = fresh_list(rng, split, 2, 8)
    place = rng.randrange(len(items))
    name = "last" if place + 1 == len(items) and rng.random() < 0.5 else PLACES[place]
    return ask(one_of(rng, in_split(ITEM_FORMS, split, "item"), p=name, l=", ".join(items)), items[place])


@kind("open", "I look for the next one.", weight=8)
def neighbour_item(rng: Random, split: Split) -> Dialogue:
    """The item after or before a given one."""
    items = fresh_list(rng, split, rng.choice((2, 3)), rng.choice((3, 5, 8)))
    place = rng.randrange(len(items) - 1)
    shown = ", ".join(items)
    if rng.random() < 0.6:
        return ask(one_of(rng, in_split(AFTER_FORMS, split, "after"), x=items[place], l=shown), items[place + 1])
    return ask(one_of(rng, in_split(BEFORE_FORMS, split, "before"), x=items[place + 1], l=shown), items[place])


@kind("open", "The user wants the words the other way round.", weight=3)
def reverse_words(rng: Random, split: Split) -> Dialogue:
    """The words of a sentence in reverse order."""
    words = draw(lambda: [wordlists.word(rng) for _ in range(rng.randint(2, 8))], split, lambda one: f"reverse {one}")
    return ask(one_of(rng, in_split(REVERSE_FORMS, split, "reverse"), t=" ".join(words)), " ".join(reversed(words)))


@kind("open", "I sort by the first letters.", weight=6)
def sort_words(rng: Random, split: Split) -> Dialogue:
    """Words in the order of the alphabet."""

    def make() -> list[str]:
        maker = rng.choice((wordlists.word, wordlists.noun, wordlists.name))
        return list(dict.fromkeys(maker(rng) for _ in range(rng.randint(2, 7))))

    items = draw(make, split, lambda one: f"sort {one}")
    return ask(one_of(rng, in_split(SORT_FORMS, split, "sort"), l=", ".join(items)), ", ".join(sorted(items)))


@kind("open", "I number the items.", weight=3)
def item_count(rng: Random, split: Split) -> Dialogue:
    """How many items a list has, by way of numbering them."""
    items = fresh_list(rng, split, 1, 10)
    numbered = ", ".join(f"{number} {item}" for number, item in enumerate(items, 1))
    prompt = one_of(rng, in_split(COUNT_FORMS, split, "count"), l=", ".join(items))
    return ask(prompt, f"{numbered}: {len(items)} item{'s' * (len(items) != 1)}.")


@kind("open", "The user wants one text in place of another.", weight=6)
def replace_word(rng: Random, split: Split) -> Dialogue:
    """A text with one word replaced by another."""
    words = draw(lambda: [wordlists.word(rng) for _ in range(rng.randint(3, 9))], split, lambda one: f"swap {one}")
    old, new = rng.choice(words), wordlists.word(rng)
    prompt = one_of(rng, in_split(REPLACE_FORMS, split, "replace"), o=old, n=new, t=" ".join(words))
    return ask(prompt, " ".join(new if word == old else word for word in words))


@kind("open", "I look whether it is in the text.", weight=2)
def contains(rng: Random, split: Split) -> Dialogue:
    """Whether an item is in a list."""
    items = fresh_list(rng, split, 2, 8)
    inside = rng.random() < 0.5
    asked = rng.choice(items) if inside else rng.choice((values.span, wordlists.word))(rng).replace(",", "")
    inside = asked in items
    prompt = one_of(rng, in_split(CONTAINS_FORMS, split, "contains"), x=asked, l=", ".join(items))
    return ask(loose(rng, prompt), f"Yes, {asked} is in the list." if inside else f"No, {asked} is not in the list.")
