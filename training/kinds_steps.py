"""Kinds of arithmetic whose steps are shown: between the think tags, or in the answer where thinking is off."""

from collections.abc import Callable
from random import Random
from typing import Final

from training import wordlists
from training.registry import Dialogue, Split, draw, in_split, kind, loose, one_of, user, wordings


def worked(rng: Random, prompt: str, steps: str, result: str) -> Dialogue:
    """A task that is answered with its steps and its result; the steps are a thought, too."""
    return Dialogue((user(loose(rng, prompt)),), (f"{steps}\n{result}",), thought=steps)


def column_sum(a: int, b: int) -> str:
    """The sum digit by digit from the right, with what is carried."""
    steps, carried, place = [], 0, 0
    left, right = str(a)[::-1], str(b)[::-1]
    digits: list[str] = []
    while place < max(len(left), len(right)):
        x = int(left[place]) if place < len(left) else 0
        y = int(right[place]) if place < len(right) else 0
        total = x + y + carried
        steps.append(f"{x} + {y} + {carried} = {total}")
        digits.append(str(total % 10))
        carried, place = total // 10, place + 1
    if carried:
        digits.append(str(carried))
    return "; ".join(steps) + f"; {' '.join(digits)}; {' '.join(reversed(digits))}"


def column_difference(a: int, b: int) -> str:
    """The difference digit by digit from the right, with what is borrowed; ``a`` is not smaller."""
    steps, borrowed = [], 0
    left, right = str(a)[::-1], str(b)[::-1]
    digits: list[str] = []
    for place, digit in enumerate(left):
        y = int(right[place]) if place < len(right) else 0
        x = int(digit)
        total = x - y - borrowed
        steps.append(f"{x} - {y} - {borrowed} = {total}")
        digits.append(str(total % 10))
        borrowed = 1 if total < 0 else 0
    return "; ".join(steps) + f"; {' '.join(digits)}; {' '.join(reversed(digits))}"


def product_steps(a: int, b: int) -> str:
    """The product of two numbers by the tens and ones of both."""
    parts: list[tuple[str, int]] = []
    for x in (a // 100 * 100, a // 10 % 10 * 10, a % 10):
        for y in (b // 10 * 10, b % 10):
            if x and y:
                parts.append((f"{x} x {y} = {x * y}", x * y))
    steps, total = [text for text, _ in parts], 0
    for place, (_, value) in enumerate(parts):
        if place:
            steps.append(f"{total} + {value} = {total + value}")
        total += value
    return "; ".join(steps)


def pair(rng: Random, split: Split, name: str, make: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    """Two numbers of the split."""
    return draw(make, split, lambda one: f"steps {name} {one}")


def large(rng: Random) -> int:
    """A number of two to five digits."""
    digits = rng.choice((2, 3, 3, 4, 4, 5))
    return rng.randint(10 ** (digits - 1), 10**digits - 1)


@kind("open", "", weight=1.6, thinks=0.5)
def long_sum(rng: Random, split: Split) -> Dialogue:
    """The sum of two numbers of two to five digits."""
    a, b = pair(rng, split, "sum", lambda: (max(101, large(rng)), large(rng)))
    forms = ("What is {a} + {b}? Show your steps.", "Add {a} and {b} step by step.", "Work out {a} + {b} in steps.",
             "{a} + {b}, step by step", "Calculate {a} plus {b}. Show the steps.", "Step by step: {a} + {b}",
             "Show how to add {a} and {b}.", "Explain {a} + {b} step by step.")  # fmt: skip
    return worked(
        rng, one_of(rng, in_split(forms, split, "long sum"), a=a, b=b), column_sum(a, b), f"{a} + {b} = {a + b}."
    )


@kind("open", "", weight=1.3, thinks=0.5)
def long_difference(rng: Random, split: Split) -> Dialogue:
    """The difference of two numbers of two to five digits."""

    def make() -> tuple[int, int]:
        a, b = sorted((max(101, large(rng)), large(rng)))
        return b, a

    a, b = pair(rng, split, "difference", make)
    forms = ("What is {a} - {b}? Show your steps.", "Subtract {b} from {a} step by step.",
             "Work out {a} - {b} in steps.",
             "{a} - {b}, step by step", "Calculate {a} minus {b}. Show the steps.", "Step by step: {a} - {b}",
             "Show how to take {b} from {a}.")  # fmt: skip
    prompt = one_of(rng, in_split(forms, split, "long difference"), a=a, b=b)
    return worked(rng, prompt, column_difference(a, b), f"{a} - {b} = {a - b}.")


@kind("open", "", weight=1.6, thinks=0.5)
def long_product(rng: Random, split: Split) -> Dialogue:
    """The product of two numbers of two digits, or of one and three."""
    a, b = pair(rng, split, "product", lambda: (rng.randint(11, rng.choice((99, 99, 999))), rng.randint(2, 99)))
    forms = ("What is {a} x {b}? Show your steps.", "Multiply {a} by {b} step by step.", "Work out {a} * {b} in steps.",
             "{a} x {b}, step by step", "Calculate {a} times {b}. Show the steps.", "Step by step: {a} x {b}",
             "Show how to multiply {a} and {b}.")  # fmt: skip
    prompt = one_of(rng, in_split(forms, split, "long product"), a=a, b=b)
    return worked(rng, prompt, product_steps(a, b), f"{a} x {b} = {a * b}.")


@kind("open", "", weight=1, thinks=0.5)
def sum_of_list(rng: Random, split: Split) -> Dialogue:
    """The sum of three to six numbers below a hundred, one after another."""
    numbers = draw(lambda: [rng.randint(1, rng.choice((9, 20, 99))) for _ in range(rng.randint(3, 6))], split,
                   lambda one: f"steps list {one}")  # fmt: skip
    total, steps = numbers[0], []
    for number in numbers[1:]:
        steps.append(f"{total} + {number} = {total + number}")
        total += number
    shown = ", ".join(map(str, numbers))
    forms = ("Add up {l}.", "What is the sum of {l}?", "Sum these numbers: {l}", "How much are {l} together?",
             "Add these: {l}", "What do {l} make in total?", "Total of {l}?")  # fmt: skip
    prompt = one_of(rng, in_split(forms, split, "list sum"), l=shown)
    return worked(rng, prompt, "; ".join(steps), f"The sum is {total}.")


@kind("open", "", weight=4, thinks=0.5)
def word_problem(rng: Random, split: Split) -> Dialogue:
    """A small story about somebody who gets and gives things."""
    name, thing = wordlists.name(rng), wordlists.noun(rng) + "s"
    first, got = pair(rng, split, "story", lambda: (rng.randint(2, 60), rng.randint(1, 40)))
    gave = rng.randint(1, first)
    plus = rng.choice(("gets {n} more", "finds {n} more", "buys {n} more", "is given {n}", "picks up {n} more"))
    minus = rng.choice(("gives away {n}", "loses {n}", "sells {n}", "breaks {n}", "eats {n}"))
    form = rng.randrange(3)
    start = f"{name} has {first} {thing}"
    asked = rng.choice(
        ("How many {t} does {n} have now?", "How many {t} are left?", "How many {t} has {n} in the end?")
    )
    asked = asked.replace("{t}", thing).replace("{n}", name)
    if form == 0:
        text, steps, total = (
            f"{start} and {plus.replace('{n}', str(got))}.",
            f"{first} + {got} = {first + got}",
            first + got,
        )
    elif form == 1:
        text, steps, total = (
            f"{start} and {minus.replace('{n}', str(gave))}.",
            f"{first} - {gave} = {first - gave}",
            first - gave,
        )
    else:
        text = f"{start}. {name} {plus.replace('{n}', str(got))} and then {minus.replace('{n}', str(gave))}."
        total = first + got - gave
        steps = f"{first} + {got} = {first + got}; {first + got} - {gave} = {total}"
    return worked(rng, f"{text} {asked}", steps, f"{name} has {total} {thing}.")


OWN: Final = wordings("""
    [I have|I had|I've got|I own|There are|We have|She has|He has|They have|My friend has] {a} {t}
""")
MORE: Final = wordings("""
    [and buy|and get|and find|. I buy|. I get|, then buy|and then I get|. I find|and pick up|. Then I buy|. My mom gives me|and someone gives me] {n} more
""")
FEWER: Final = wordings("""
    [and eat|. I eat|and lose|. I lose|and give away|. I give away|and sell|. I sell|, then lose|. I break|. Then I use|and throw away|and drop] {n}[ of them|]
""")
AWAY: Final = wordings("""
    [{n}|Then {n}|Later {n}|After a while {n}] [of them |][flew away|ran away|left|went home|fell down|died|broke|were sold|were eaten|rolled away|got lost|went away|disappeared|are gone|jumped off|swam away|are taken away|fly away|leave|run off|drove off|melted|stopped working]
""")
JOINED: Final = wordings("""
    [{n}|Then {n}|Later {n}|After a while {n}] more [came|arrived|joined|come|join them|were added|are added|landed there|got on|grew|showed up|were delivered]
""")
WHERE: Final = wordings("""
    [There were|There are|We saw|I saw|We counted] {a} {t} [on a roof|on the table|in a box|in the garden|on a bus|in a tree|in the pond|in a bag|at the party|in the room|on the shelf|in the yard|in a jar|on a farm|on the road|in the shop|at the station|in the sky]
""")
NOW: Final = wordings("""
    How many [{t} |]do I have[ now| left| in total|]?
    How many [{t} |]are [there|left|there now]?
    How many [{t} |]now?
    How many is that?
""")
THINGS: Final = (
    *(f"{noun}s" for noun in wordlists.NOUNS if noun[-1] not in "sxyhf"),
    "dollars",
    "euros",
    "apples",
    "cookies",
)


@kind("open", "", weight=5, thinks=0.2)
def everyday_sum(rng: Random, split: Split) -> Dialogue:
    """A sum, a difference, or a product as people tell it of themselves."""
    name = rng.choice(THINGS)
    first, other = pair(rng, split, "everyday", lambda: (rng.randint(1, 60), rng.randint(1, 40)))
    form = rng.randrange(6)
    if form == 0:
        text = one_of(rng, in_split(OWN, split, "own"), a=first, t=name) + one_of(rng, MORE, n=other).replace(
            "and", " and", 1
        )
        steps, total = f"{first} + {other} = {first + other}", first + other
    elif form == 1:
        first, other = max(first, other), min(first, other)
        text = one_of(rng, in_split(OWN, split, "own"), a=first, t=name) + one_of(rng, FEWER, n=other).replace(
            "and", " and", 1
        )
        steps, total = f"{first} - {other} = {first - other}", first - other
    elif form == 4:
        first, other = max(first, other), min(first, other)
        text = f"{one_of(rng, WHERE, a=first, t=name)}. {one_of(rng, in_split(AWAY, split, 'away'), n=other)}"
        steps, total = f"{first} - {other} = {first - other}", first - other
    elif form == 5:
        text = f"{one_of(rng, WHERE, a=first, t=name)}. {one_of(rng, in_split(JOINED, split, 'joined'), n=other)}"
        steps, total = f"{first} + {other} = {first + other}", first + other
    elif form == 2:
        kinds = rng.sample(("red", "blue", "green", "big", "small", "old", "new", "black", "white"), 2)
        places = rng.choice((f"{first} {kinds[0]} {name} and {other} {kinds[1]} {name}",
                             f"{first} {name} in one box and {other} in another",
                             f"{first} {name} on Monday and {other} on Tuesday"))  # fmt: skip
        text = f"{rng.choice(('There are', 'I have', 'We see', 'We count', 'I bought'))} {places}"
        asked = rng.choice((f"How many {name} are there in total?", f"How many {name} altogether?", "How many in all?",
                            f"How many {name} is that?", "What is the total?"))  # fmt: skip
        return worked(
            rng, f"{text}. {asked}", f"{first} + {other} = {first + other}", f"That is {first + other} {name}."
        )
    else:
        each, count = rng.randint(2, 12), rng.randint(2, 9)
        noun = rng.choice(wordlists.NOUNS)
        text = rng.choice((f"One {noun} costs {each} dollars. How much do {count} cost?",
                           f"A {noun} costs {each} euros. What do {count} of them cost?",
                           f"{count} boxes have {each} {name} each. How many {name} are there?",
                           f"I read {each} pages a day. How many pages do I read in {count} days?",
                           f"There are {count} bags with {each} {name} in each bag. How many {name} in total?",
                           f"If one {noun} is {each} dollars, how much are {count}?"))  # fmt: skip
        return worked(rng, text, f"{count} x {each} = {count * each}", f"That is {count * each}.")
    asked = rng.choice(in_split(NOW, split, "now")).replace("{t}", name)
    return worked(rng, f"{text}. {asked}".replace("  ", " "), steps, f"That is {total} {name}.")
