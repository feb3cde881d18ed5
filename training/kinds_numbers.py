"""Kinds about numbers: counting, arithmetic, order and parity."""

from random import Random

from training.facts import NUMBER_WORDS
from training.registry import Dialogue, Split, ask, casual, draw, kind, lines, loose, one_of, polite, wordings


def joined(numbers: range | list[int]) -> str:
    """Numbers separated by commas."""
    return ", ".join(map(str, numbers))


def operand(rng: Random) -> int:
    """A number from 0 to 100, half of the time below 21."""
    return rng.randint(0, 20) if rng.random() < 0.5 else rng.randint(0, 100)


def operands(rng: Random, split: Split, operation: str) -> tuple[int, int]:
    """An ordered pair of the split; the same pair may belong to the other split for another operation."""
    return draw(lambda: (operand(rng), operand(rng)), split, lambda pair: f"{operation} {pair[0]} {pair[1]}")


def integer(rng: Random, split: Split, purpose: str) -> int:
    """A number from 0 to 999, shorter ones more often than their share."""
    return draw(lambda: rng.randrange(10 ** rng.choice((1, 2, 2, 3, 3))), split, lambda value: f"{purpose} {value}")


@kind("open", "The user wants me to count up.", weight=2.5)
def count_up(rng: Random, split: Split) -> Dialogue:
    """Counting up to thirty numbers, by ones."""

    def make() -> tuple[int, int]:
        first = 1 if rng.random() < 0.35 else rng.randint(0, 70)
        return first, first + rng.randint(2, 29)

    first, last = draw(make, split, lambda pair: f"count {pair[0]} {pair[1]}")
    forms = lines("""
        count from {a} to {b}
        count up from {a} to {b}
        list the numbers from {a} to {b}
        count {a} to {b}
        write the numbers from {a} to {b}
        count from {a} up to {b}
        give me the numbers {a} to {b}
    """)
    if first == 1:
        forms += ("count to {b}", "count up to {b}") * 2
    spoken = last < len(NUMBER_WORDS) and rng.random() < 0.25
    shown = (NUMBER_WORDS[first], NUMBER_WORDS[last]) if spoken else (first, last)
    request = one_of(rng, forms, a=shown[0], b=shown[1]).capitalize()
    return ask(polite(rng, request), joined(range(first, last + 1)))


@kind("open", "The user wants me to count down.", weight=3)
def count_down(rng: Random, split: Split) -> Dialogue:
    """Counting down up to twenty-five numbers, by ones."""

    def make() -> tuple[int, int]:
        last = rng.choice((0, 1, 1, rng.randint(2, 40)))
        return last + rng.randint(2, 24), last

    first, last = draw(make, split, lambda pair: f"count {pair[0]} {pair[1]}")
    forms = lines("""
        Count down from {a} to {b}
        Count backwards from {a} to {b}
        Count back from {a} to {b}
        Count from {a} to {b}
        Count from {a} down to {b}
        Count from {a} to {b}
        List the numbers from {a} down to {b}
    """)
    if last == 1:
        forms += ("Count down from {a}", "Count backwards from {a}")
    return ask(polite(rng, one_of(rng, forms, a=first, b=last)), joined(range(first, last - 1, -1)))


@kind("open", "The user wants me to count in steps.")
def count_steps(rng: Random, split: Split) -> Dialogue:
    """Counting by a step of two to ten."""

    def make() -> tuple[int, int, int]:
        step = rng.choice((2, 2, 3, 4, 5, 5, 10, 10))
        first = rng.choice((0, step, rng.randint(0, 20)))
        return step, first, first + step * rng.randint(3, 12)

    step, first, last = draw(make, split, lambda value: f"steps {value}")
    forms = ("Count by {s} from {a} to {b}", "Count in steps of {s} from {a} to {b}", "Count from {a} to {b} by {s}")
    return ask(polite(rng, one_of(rng, forms, s=step, a=first, b=last)), joined(range(first, last + 1, step)))


SUM_FORMS = wordings("""
    [What is|What's|How much is|Calculate|Compute|Tell me|Can you add|Add|Please add|Sum|Add up|Add together] {a} [and|plus] {b}[?|]
    [What do you get if you add|What is the total of|What is the sum of|How much do you get if you add|What do I get when I add] {a} and {b}?
    {a} plus {b} [is|equals|makes|is what|makes what|equals what]?
    [Solve|Math|Math question|Calculate|Quick|Quick one|Easy one|Sum]: {a} [+|plus|add|and] {b}[?|]
    {a} add {b}[?|]
""")
DIFFERENCE_FORMS = wordings("""
    [What is|What's|How much is|Calculate|Compute|Tell me|Solve] {a} [minus|less|take away|-] {b}[?|]
    [What do you get if you subtract|What is left if you take|How much is left if you take] {b} from {a}?
    [What is|What's] the difference [between|of] {a} and {b}?
    {a} minus {b} [is|equals|makes|is what|equals what]?
""")
PRODUCT_FORMS = wordings("""
    [What is|What's|How much is|Calculate|Compute|Tell me|Solve] {a} [times|multiplied by|x|*] {b}[?|]
    [Can you multiply|Please multiply|Multiply|What do you get if you multiply] {a} [by|and|with] {b}?
    {a} times {b} [is|equals|makes|is what|equals what]?
""")


@kind("open", "The user wants a sum. I add the numbers.", weight=3)
def add(rng: Random, split: Split) -> Dialogue:
    """The sum of two numbers up to a hundred."""
    a, b = operands(rng, split, "add")
    forms = lines("""
        What is {a} + {b}?
        What is {a} plus {b}?
        What's {a} + {b}?
        {a} + {b} = ?
        {a} + {b}
        {a}+{b}
        Add {a} and {b}.
        How much is {a} plus {b}?
        Calculate {a} + {b}.
        Please add {a} and {b}.
        What is the sum of {a} and {b}?
        Compute {a} + {b}
        what's {a} plus {b}
        {a} plus {b}?
        {a}+{b}=
    """)
    prompt = casual(rng, loose(rng, one_of(rng, (*forms, *SUM_FORMS), a=a, b=b)))
    if max(a, b) <= 12 and rng.random() < 0.2:
        prompt = f"What is {NUMBER_WORDS[a]} plus {NUMBER_WORDS[b]}?"
    return ask(prompt, f"{a} + {b} = {a + b}.")


@kind("open", "The user wants a difference. I subtract.", weight=4.5)
def subtract(rng: Random, split: Split) -> Dialogue:
    """The difference of two numbers up to a hundred, negative now and then."""

    def make() -> tuple[int, int]:
        low, high = sorted((operand(rng), operand(rng)))
        return (high, low) if rng.random() < 0.9 else (low, high)

    a, b = draw(make, split, lambda pair: f"subtract {pair[0]} {pair[1]}")
    forms = lines("""
        What is {a} - {b}?
        What is {a} minus {b}?
        What's {a} - {b}?
        {a} - {b} = ?
        {a} - {b}
        {a}-{b}
        Subtract {b} from {a}.
        How much is {a} minus {b}?
        Calculate {a} - {b}.
        Take {b} away from {a}.
    """)
    return ask(casual(rng, loose(rng, one_of(rng, (*forms, *DIFFERENCE_FORMS), a=a, b=b))), f"{a} - {b} = {a - b}.")


def product(rng: Random, a: int, b: int) -> Dialogue:
    """A request for the product of two numbers."""
    forms = lines("""
        What is {a} times {b}?
        What is {a} x {b}?
        What is {a} * {b}?
        {a} * {b}
        {a} x {b} = ?
        {a}*{b}
        Multiply {a} by {b}.
        How much is {a} times {b}?
        What is the product of {a} and {b}?
        {a} times {b}?
    """)
    return ask(casual(rng, loose(rng, one_of(rng, (*forms, *PRODUCT_FORMS), a=a, b=b))), f"{a} x {b} = {a * b}.")


@kind("open", "The user wants a product. I multiply.", weight=2)
def multiply(rng: Random, split: Split) -> Dialogue:
    """The product of two numbers up to twelve; the mirrored pair may be in the other split."""
    a, b = draw(lambda: (rng.randint(0, 12), rng.randint(0, 12)), split, lambda p: f"multiply {p[0]} {p[1]}")
    return product(rng, a, b)


@kind("open", "The user wants a larger product. I multiply.", weight=9)
def multiply_two_digits(rng: Random, split: Split) -> Dialogue:
    """The product of a number from 13 to 99 and a number up to nine."""

    def make() -> tuple[int, int]:
        pair = (rng.randint(13, 99), rng.randint(0, 9))
        return pair if rng.random() < 0.7 else (pair[1], pair[0])

    return product(rng, *draw(make, split, lambda p: f"multiply {p[0]} {p[1]}"))


@kind("open", "The user wants the bare result.", weight=3)
def bare_result(rng: Random, split: Split) -> Dialogue:
    """A sum or a difference, answered with the number alone."""
    a, b = operands(rng, split, "bare")
    sign, value = rng.choice((("+", a + b), ("plus", a + b), ("-", a - b), ("minus", a - b)))
    forms = lines("""
        What is {a} {s} {b}? Answer with the number only.
        What is {a} {s} {b}? Reply with just the number.
        What is {a} {s} {b}? Only the number.
        Answer with a number only: {a} {s} {b}
        {a} {s} {b}? Just the number.
    """)
    return ask(one_of(rng, forms, a=a, b=b, s=sign), str(value))


@kind("open", "The user wants me to compare two numbers.", weight=3.5)
def compare(rng: Random, split: Split) -> Dialogue:
    """Which of two different numbers below a thousand is larger or smaller, or whether a claim about them holds."""

    def make() -> tuple[int, int]:
        digits = 10 ** rng.choice((1, 2, 2, 3))
        a, b = rng.randrange(digits), rng.randrange(digits)
        return (a, b) if a != b else (a, b + 1)

    a, b = draw(make, split, lambda pair: f"compare {pair[0]} {pair[1]}")
    form = rng.random()
    if form < 0.4:
        more = rng.choice(("larger", "bigger", "greater"))
        forms = ("Which is {m}, {a} or {b}?", "Which number is {m}: {a} or {b}?", "What is {m}, {a} or {b}?")
        return ask(loose(rng, one_of(rng, forms, m=more, a=a, b=b)), f"{max(a, b)} is {more}.")
    if form < 0.65:
        less = rng.choice(("smaller", "less"))
        forms = ("Which is {m}, {a} or {b}?", "Which number is {m}: {a} or {b}?", "What is {m}, {a} or {b}?")
        return ask(loose(rng, one_of(rng, forms, m=less, a=a, b=b)), f"{min(a, b)} is {less}.")
    if form < 0.85:
        more = rng.choice(("larger", "bigger", "greater", "more"))
        answer = f"Yes, {a} is {more} than {b}." if a > b else f"No, {a} is not {more} than {b}."
        return ask(loose(rng, f"Is {a} {more} than {b}?"), answer)
    less = rng.choice(("smaller", "less"))
    answer = f"Yes, {a} is {less} than {b}." if a < b else f"No, {a} is not {less} than {b}."
    return ask(loose(rng, f"Is {a} {less} than {b}?"), answer)


@kind("open", "The last digit says whether the number is even.", weight=2)
def parity(rng: Random, split: Split) -> Dialogue:
    """Whether a number is even or odd."""
    value = integer(rng, split, "parity")
    actual = "odd" if value % 2 else "even"
    if rng.random() < 0.5:
        forms = ("Is {n} even or odd?", "Is {n} odd or even?", "Is the number {n} even or odd?", "Even or odd: {n}?")
        return ask(loose(rng, one_of(rng, forms, n=value)), f"{value} is {actual}.")
    claim = rng.choice(("even", "odd"))
    answer = f"Yes, {value} is {claim}." if claim == actual else f"No, {value} is {actual}."
    forms = ("Is {n} {c}?", "Is {n} {c}?", "Is the number {n} {c}?", "Is {n} an {c} number?")
    return ask(loose(rng, one_of(rng, forms, n=value, c=claim)), answer)


@kind("open", "The user wants the number one higher.")
def next_number(rng: Random, split: Split) -> Dialogue:
    """The successor of a number."""
    value = integer(rng, split, "next")
    forms = lines("""
        What number comes after {n}?
        What comes after {n}?
        Which number follows {n}?
        What is the next number after {n}?
    """)
    return ask(loose(rng, one_of(rng, forms, n=value)), f"{value + 1} comes after {value}.")


@kind("open", "The user wants the number one lower.", weight=1.5)
def previous_number(rng: Random, split: Split) -> Dialogue:
    """The predecessor of a number above one."""
    value = draw(lambda: rng.randint(2, 10 ** rng.choice((1, 2, 3))), split, lambda number: f"previous {number}")
    forms = ("What number comes before {n}?", "What comes before {n}?", "Which number is just before {n}?")
    return ask(loose(rng, one_of(rng, forms, n=value)), f"{value - 1} comes before {value}.")


def number_list(rng: Random, split: Split, purpose: str) -> list[int]:
    """Three to six different numbers below a hundred."""

    def make() -> list[int]:
        return rng.sample(range(rng.choice((10, 100))), rng.randint(3, 6))

    return draw(make, split, lambda numbers: f"{purpose} {numbers}")


RISING = wordings("""
    [Sort|Order|Arrange|Put|List] [these|the|these numbers|the numbers|this list of numbers] [from small to large|from smallest to largest|from low to high|from the smallest to the largest|from least to greatest|in ascending order|in rising order|smallest first|in increasing order|ascending]: {l}
    [Sort|Order|Arrange] {l} [from small to large|from smallest to largest|from low to high|in ascending order|smallest first]
    {l} - [sort them|sort these|in order, please|sort from small to large|smallest first]
    [Smallest first|Ascending|From small to large|In order|Sorted]: {l}
""")
FALLING = wordings("""
    [Sort|Order|Arrange|Put|List] [these|the|these numbers|the numbers|this list of numbers] [from large to small|from largest to smallest|from high to low|from the largest to the smallest|from greatest to least|in descending order|in falling order|largest first|biggest first|in decreasing order|descending]: {l}
    [Sort|Order|Arrange] {l} [from large to small|from largest to smallest|from high to low|in descending order|largest first]
    {l} - [largest first|biggest first|sort from large to small]
    [Largest first|Descending|From large to small|Biggest first]: {l}
""")


@kind("open", "The user wants the numbers in order.", weight=6)
def sort_numbers(rng: Random, split: Split) -> Dialogue:
    """Numbers from the smallest to the largest, or the other way round."""
    numbers = number_list(rng, split, "sort")
    if rng.random() < 0.75:
        forms = lines("""
            Sort these numbers: {l}
            Sort: {l}
            Put these numbers in order: {l}
            Sort {l} from smallest to largest
        """)
        forms += RISING
        return ask(one_of(rng, forms, l=joined(numbers)), joined(sorted(numbers)))
    falling = ("Sort these numbers from largest to smallest: {l}", "Sort {l} in descending order", *FALLING)
    return ask(one_of(rng, falling, l=joined(numbers)), joined(sorted(numbers, reverse=True)))


@kind("open", "I look for the extreme of the list.", weight=3.5)
def extreme(rng: Random, split: Split) -> Dialogue:
    """The largest or the smallest of a list of numbers."""
    numbers = number_list(rng, split, "extreme")
    largest = rng.random() < 0.5
    word = rng.choice(("largest", "biggest", "highest") if largest else ("smallest", "lowest"))
    forms = lines("""
        What is the {w} number in {l}?
        Which is the {w}: {l}?
        Find the {w} of these numbers: {l}
        What is the {w} of {l}?
    """)
    answer = max(numbers) if largest else min(numbers)
    return ask(loose(rng, one_of(rng, forms, w=word, l=joined(numbers))), f"The {word} is {answer}.")


@kind("open", "The numbers rise by the same step.", weight=2)
def continue_sequence(rng: Random, split: Split) -> Dialogue:
    """The next term of an arithmetic sequence of three to five terms."""

    def make() -> tuple[int, int, int]:
        return rng.randint(0, 50), rng.choice((1, 1, 2, 2, 3, 4, 5, 10)), rng.randint(3, 5)

    first, step, length = draw(make, split, lambda value: f"sequence {value[0]} {value[1]}")
    shown = joined([first + step * index for index in range(length)])
    forms = lines("""
        Complete the sequence: {l},
        Continue: {l}, ...
        What comes next: {l}?
        What number comes next? {l}, ...
    """)
    return ask(one_of(rng, forms, l=shown), f"Each number is {step} more. The next number is {first + step * length}.")
