"""Kinds about the text of the prompt itself: repeating, spelling, casing, reversing and counting."""

from random import Random

from training import wordlists
from training.registry import Dialogue, Split, ask, draw, kind, lines, loose, one_of, polite

TIMES = {
    2: ("twice", "two times", "2 times"),
    3: ("three times", "3 times"),
    4: ("four times", "4 times"),
    5: ("five times",),
}


def fresh_word(rng: Random, split: Split) -> str:
    """A lower-case word of the split."""
    return draw(lambda: wordlists.word(rng), split, lambda word: f"word {word}")


def fresh_phrase(rng: Random, split: Split, longest: int = 10) -> str:
    """A phrase of the split; letter case and end mark don't make a phrase new."""
    return draw(
        lambda: wordlists.phrase(rng, longest=longest), split, lambda text: "text " + text.lower().rstrip(".!?")
    )


def fresh_items(rng: Random, split: Split, fewest: int, most: int) -> list[str]:
    """Words as a list, new to the split as a whole."""

    def make() -> list[str]:
        return [wordlists.word(rng) for _ in range(rng.randint(fewest, most))]

    return draw(make, split, lambda items: "text " + " ".join(items))


@kind("open", "The user wants the same text back.", weight=5)
def repeat_phrase(rng: Random, split: Split) -> Dialogue:
    """A phrase of random words or characters, given back unchanged."""
    text = fresh_phrase(rng, split, longest=rng.choice((4, 8, 12, 16)))
    forms = lines("""
        Repeat after me: {t}
        Repeat this: {t}
        Repeat: {t}
        Please repeat: {t}
        Say this back to me: {t}
        Repeat the following sentence: {t}
        Echo: {t}
        Echo this: {t}
        Copy this text: {t}
        Say: {t}
        Reply with exactly: {t}
        Repeat the phrase: {t}
        repeat after me: {t}
    """)
    forms += ("Repeat exactly:\n{t}",)
    if '"' not in text:
        forms += ('Repeat "{t}"', 'Say "{t}"', 'Please say "{t}"', 'Repeat after me: "{t}"', 'Write "{t}".')
        forms += ('Reply with "{t}" and nothing else.', 'Repeat the phrase "{t}".')
    if "'" not in text:
        forms += ("Say '{t}'", "Repeat '{t}'", "Repeat after me: '{t}'", "Please say '{t}'.")
    return ask(rng.choice(forms).replace("{t}", text), text)


@kind("open", "The user wants one word back.", weight=1.5)
def echo_word(rng: Random, split: Split) -> Dialogue:
    """A single word, given back with its casing."""
    word = rng.choice((str, str, str.capitalize, str.upper))(fresh_word(rng, split))
    forms = lines("""
        Say {w}.
        Say {w}
        Say the word {w}.
        Repeat the word {w}.
        Repeat: {w}
        Echo {w}
        Say "{w}".
        Reply with only the word {w}.
        Answer with exactly: {w}
        Respond with just {w}.
        Write the word {w}.
        Reply with exactly one word: {w}
        Please say {w}.
        Reply with the word {w} and nothing else.
        say {w}
        Say '{w}'
        Reply with the single word: {w}
        Reply with one word: {w}
        Respond with the word '{w}'.
        Say '{w}'.
    """)
    return ask(one_of(rng, forms, w=word), word)


@kind("open", "The user wants a word several times.", weight=2)
def say_times(rng: Random, split: Split) -> Dialogue:
    """A word or a two-word phrase, two to five times in a row."""
    word = fresh_word(rng, split) if rng.random() < 0.7 else " ".join(fresh_items(rng, split, 2, 2))
    count = rng.choice((2, 2, 3, 3, 4, 5))
    forms = lines("""
        Say {w} {n}
        Say "{w}" {n}
        Repeat {w} {n}
        Repeat "{w}" {n}
        Write {w} {n}
        Say the word {w} {n}
    """)
    request = one_of(rng, forms, w=word, n=rng.choice(TIMES[count]))
    return ask(polite(rng, request), " ".join([word] * count))


@kind("open", "The user wants the letters one by one.", weight=6)
def spell(rng: Random, split: Split) -> Dialogue:
    """The letters of a word with hyphens between them."""
    word = fresh_word(rng, split)
    forms = ("Spell the word {w}", "Spell {w}", 'Spell "{w}"', "Spell out {w}", "Spell the word {w} letter by letter")
    request = one_of(rng, forms, w=word)
    prompt = rng.choice((polite(rng, request), f"How do you spell {word}?", f"how do you spell {word}"))
    return ask(prompt, "-".join(word))


@kind("open", "The user wants one letter of a word.", weight=2)
def letter_of_word(rng: Random, split: Split) -> Dialogue:
    """The first or the last letter of a word."""
    word = fresh_word(rng, split)
    place, letter = rng.choice((("first", word[0]), ("last", word[-1])))
    forms = lines("""
        What is the {p} letter of {w}?
        What is the {p} letter of the word {w}?
        Which letter is {p} in {w}?
        What is the {p} letter in "{w}"?
        Tell me the {p} letter of {w}.
        Give me the {p} letter of {w}.
    """)
    return ask(loose(rng, one_of(rng, forms, p=place, w=word)), f"The {place} letter of {word} is {letter}.")


@kind("open", "The user wants the number of letters.", weight=3)
def letter_count(rng: Random, split: Split) -> Dialogue:
    """How many letters a word has, by way of its spelling."""
    word = fresh_word(rng, split)
    forms = lines("""
        How many letters are in {w}?
        How many letters does {w} have?
        How many letters are in the word {w}?
        Count the letters in {w}.
        How many letters does the word "{w}" have?
        How long is the word {w}?
    """)
    return ask(loose(rng, one_of(rng, forms, w=word)), f"{'-'.join(word)}: {len(word)} letter{'s' * (len(word) != 1)}.")


@kind("open", "The user wants to know how often a letter occurs.", weight=4)
def letter_occurrences(rng: Random, split: Split) -> Dialogue:
    """How often a letter occurs in a word, by way of numbering it in the spelling."""
    word = fresh_word(rng, split)
    doubled = [letter for letter in word if word.count(letter) > 1]
    letter = rng.choice(rng.choice((doubled or list(word), list(word), list(wordlists.LETTERS))))
    marked = "-".join(
        f"{found}{word[:place].count(found)}" if found == letter else found for place, found in enumerate(word, 1)
    )
    forms = lines("""
        How many {l}'s are in {w}?
        How many {l} are in {w}?
        How often does {l} occur in {w}?
        Count the letter {l} in {w}.
        How many times does the letter {l} appear in {w}?
        How many {l} are in the word "{w}"?
        How many {l}'s are there in {w}?
    """)
    return ask(loose(rng, one_of(rng, forms, l=letter, w=word)), f"{marked}: {word.count(letter)} times {letter}.")


@kind("open", "The user wants the word backwards.", weight=5)
def reverse_word(rng: Random, split: Split) -> Dialogue:
    """The letters of a word of at most six letters in reverse order, by way of its spelling."""
    word = draw(lambda: wordlists.word(rng)[:6], split, lambda text: f"word {text}")
    forms = ("Reverse the word {w}", "Spell {w} backwards", "Write {w} backwards", "Reverse the letters of {w}")
    return ask(polite(rng, one_of(rng, forms, w=word)), f"{'-'.join(word)} backwards is {'-'.join(reversed(word))}.")


@kind("open", "The user wants the list the other way round.", weight=1.5)
def reverse_list(rng: Random, split: Split) -> Dialogue:
    """Two to six words or numbers in reverse order."""
    items = fresh_items(rng, split, 2, 6)
    if rng.random() < 0.3:
        items = draw(lambda: [str(rng.randrange(100)) for _ in items], split, lambda texts: "text " + " ".join(texts))
    forms = lines("""
        Reverse this list: {l}
        Reverse the list: {l}
        Reverse: {l}
        Write these in reverse order: {l}
        Give me this list backwards: {l}
        Please reverse this list: {l}
        Reverse the order of {l}
    """)
    return ask(one_of(rng, forms, l=", ".join(items)), ", ".join(reversed(items)))


@kind("open", "The user wants capital letters.", weight=4.5)
def uppercase(rng: Random, split: Split) -> Dialogue:
    """One to four words in capital letters."""
    text = " ".join(fresh_items(rng, split, 1, 4))
    forms = lines("""
        Write {t} in capital letters
        Write {t} in uppercase
        Put "{t}" in uppercase
        Capitalise {t}
        Convert {t} to uppercase
        Write "{t}" in all caps
        Make this uppercase: {t}
        Uppercase: {t}
    """)
    return ask(one_of(rng, forms, t=text), text.upper())


@kind("open", "The user wants small letters.", weight=5)
def lowercase(rng: Random, split: Split) -> Dialogue:
    """One to four capitalised words in small letters."""
    text = " ".join(fresh_items(rng, split, 1, 4))
    shown = text.upper() if rng.random() < 0.7 else text.title()
    forms = lines("""
        Write {t} in lowercase
        Write {t} in small letters
        Put "{t}" in lowercase
        Convert {t} to lowercase
        Make this lowercase: {t}
        Lowercase: {t}
    """)
    return ask(one_of(rng, forms, t=shown), text)


@kind("open", "I count the words.", weight=2)
def word_count(rng: Random, split: Split) -> Dialogue:
    """How many words there are in a run of one to nine words, by way of numbering them."""
    items = fresh_items(rng, split, 1, 9)
    forms = ("How many words are in this: {t}", "Count the words: {t}", 'How many words are in "{t}"?')
    numbered = ", ".join(f"{number} {item}" for number, item in enumerate(items, 1))
    return ask(one_of(rng, forms, t=" ".join(items)), f"{numbered}: {len(items)} word{'s' * (len(items) != 1)}.")


@kind("open", "I look for one word of the text.", weight=1.5)
def word_of_text(rng: Random, split: Split) -> Dialogue:
    """The first, second or last of several words."""
    items = fresh_items(rng, split, 3, 8)
    place, index = rng.choice((("first", 0), ("last", -1), ("second", 1)))
    forms = ("What is the {p} word of: {t}", 'What is the {p} word in "{t}"?', "Give me the {p} word of this: {t}")
    return ask(one_of(rng, forms, p=place, t=" ".join(items)), f"The {place} word is {items[index]}.")


@kind("open", "The user wants two words put together.")
def join_words(rng: Random, split: Split) -> Dialogue:
    """Two words written as one."""
    first, second = fresh_items(rng, split, 2, 2)
    forms = ("Join the words {a} and {b}", "Put {a} and {b} together", "Combine {a} and {b} into one word")
    return ask(polite(rng, one_of(rng, forms, a=first, b=second)), first + second)


@kind("open", "The user wants the items as a list.")
def bullet_list(rng: Random, split: Split) -> Dialogue:
    """Two to six words as a numbered or a bullet list."""
    items = fresh_items(rng, split, 2, 6)
    if rng.random() < 0.5:
        forms = ("Make a numbered list of {l}", "Write {l} as a numbered list", "Turn this into a numbered list: {l}")
        answer = "\n".join(f"{number}. {item}" for number, item in enumerate(items, 1))
    else:
        forms = ("Make a bullet list of {l}", "Write {l} as a bullet list", "Turn this into a bullet list: {l}")
        answer = "\n".join(f"- {item}" for item in items)
    return ask(one_of(rng, forms, l=", ".join(items)), answer)
