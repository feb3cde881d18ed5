"""Facts that a system prompt tells among other things, and questions for them."""

# ruff: noqa: E501 - a line stands for many wordings

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from training import values, verbs, wordlists
from training.functions import spoken, text_value
from training.personas import with_article
from training.registry import Split, draw, in_split, lines, loose, wordings
from training.system_prompts import company, consonant_noun, grown, in_commas

Make = Callable[[Random], dict[str, str]]


@dataclass(frozen=True)
class Topic:
    """Sentences that tell values, questions for them and the answer, all with the values' names in braces.

    Without ``many`` values none are held out.
    """

    statements: tuple[str, ...]
    questions: tuple[str, ...]
    answer: str
    make: Make
    many: bool = True


@dataclass(frozen=True)
class Told:
    """One fact: a sentence without its end mark, a question, the answer, and texts that keep their letter case."""

    statement: str
    question: str
    answer: str
    values: tuple[str, ...]


def topic(make: Make, statements: str, questions: str, answer: str, *, many: bool = True) -> Topic:
    """A topic from patterns, one a line."""
    return Topic(lines(statements), wordings(questions), answer, make, many)


def one(make: Callable[[Random], str]) -> Make:
    """A maker of a single value, `v`."""
    return lambda rng: {"v": make(rng)}


def day_of_year(rng: Random) -> str:
    """A date with its year."""
    day, month, year = rng.randint(1, 28), rng.randint(1, 12), rng.randint(1990, 2035)
    name = values.MONTHS[month - 1]
    return rng.choice((f"{year}-{month:02}-{day:02}", f"{day} {name} {year}", f"{name} {day}, {year}",
                       f"{day:02}.{month:02}.{year}", f"{month}/{day}/{year}", f"{day} {name}"))  # fmt: skip


def hours(rng: Random) -> dict[str, str]:
    """When something opens and closes."""
    opens, closes = rng.randint(6, 11), rng.randint(1, 11)
    form = rng.randrange(3)
    if form == 0:
        return {"a": str(opens), "b": str(closes)}
    if form == 1:
        return {"a": f"{opens} am", "b": f"{closes} pm"}
    return {"a": f"{opens:02}:{rng.choice(('00', '30'))}", "b": f"{closes + 12}:{rng.choice(('00', '30'))}"}


def price(rng: Random) -> dict[str, str]:
    """A thing and what it costs."""
    amount = rng.choice((str(rng.randint(1, 900)), f"{rng.randint(1, 99)}.{rng.randint(10, 99)}"))
    form = rng.choice(("{a} euros", "{a} dollars", "${a}", "€{a}", "{a} USD", "{a} coins", "{a} pounds"))
    return {"t": thing(rng), "v": form.format(a=amount)}


def thing(rng: Random) -> str:
    """A thing, now and then with an adjective, that takes the article `a`."""
    noun = consonant_noun(rng)
    if rng.random() < 0.7:
        return noun
    adjective = rng.choice(wordlists.ADJECTIVES)
    return f"{adjective} {noun}" if with_article(adjective).startswith("a ") else noun


def field(rng: Random) -> dict[str, str]:
    """A named value of any sort."""
    form = rng.random()
    if form < 0.4:
        name = rng.choice(FIELD_NAMES)
        return {"f": name, "v": rng.choice((values.code, values.code, values.words))(rng)}
    if form < 0.7:
        parameter = rng.choice(PARAMETERS)
        return {"f": spoken(parameter), "v": text_value(rng, parameter)}
    kind = rng.choice(("code", "number", "name", "word", "color", "size", "limit", "address", "rate", "level"))
    first = wordlists.noun(rng) if rng.random() < 0.7 else rng.choice(wordlists.ADJECTIVES)
    made: dict[str, Callable[[Random], str]] = {
        "code": values.code, "number": lambda rng: str(rng.randrange(100_000)), "name": values.person,
        "word": wordlists.word, "color": wordlists.word, "address": values.email,
    }  # fmt: skip
    return {"f": f"{first} {kind}", "v": made[kind](rng) if kind in made else str(rng.randint(2, 999))}


# Other topics and kinds give these a meaning.
TAKEN: Final = frozenset(
    wordlists.listed(
        "name email phone role nickname language style format mood day city location place customer person"
    )
)
PARAMETERS: Final = tuple(one for one in verbs.TEXT_PARAMETERS if one not in TAKEN)
FIELD_NAMES: Final = in_commas("""
    order number, wifi password, Wi-Fi password, door code, customer number, version, current version, ticket
    number, project code, project name, room number, discount code, coupon code, secret word, password,
    reference number, invoice number, account number, flight number, tracking number, support code, login,
    product name, model number, release name, access code, team name, license key, favorite word, table number,
    booking code, serial number, backup folder, main branch, PIN
""")
POSTS: Final = wordings("""
    [manager|boss|director|founder|owner|CEO|president|doctor|chef|teacher|mayor|captain|coach|editor|secretary|lawyer|designer|guide]
    [sales|store|team|project|office|support|night|event|general] manager
    head of [sales|support|marketing|research|{n}]
""")
EVENTS: Final = wordings("""
    [next |weekly |team |annual |project |][meeting|party|deadline|launch|exam|concert|workshop|training|lunch|trip|conference|sale|release|interview]
""")


def event(rng: Random) -> dict[str, str]:
    """Something that takes place, and when."""
    name = rng.choice(EVENTS)
    if rng.random() < 0.3:
        name = f"{wordlists.noun(rng)} {rng.choice(('party', 'festival', 'meeting', 'day', 'fair', 'race', 'show'))}"
    if rng.random() < 0.6:
        return {"e": name, "v": f"on {day_of_year(rng) if rng.random() < 0.5 else rng.choice(values.DAYS)}"}
    return {"e": name, "v": f"at {values.clock(rng)}"}


def post(rng: Random) -> dict[str, str]:
    """A post and who has it."""
    return {"p": rng.choice(POSTS).replace("{n}", wordlists.noun(rng)), "v": values.person(rng)}


def stock(rng: Random) -> dict[str, str]:
    """A plural and a number."""
    return {"t": grown(rng, "{nouns}"), "v": str(rng.randint(2, 900))}


def duration(rng: Random) -> str:
    """Some days, hours or weeks."""
    return f"{rng.randint(2, 30)} {rng.choice(('days', 'hours', 'weeks'))}"


def telephone(rng: Random) -> str:
    """A telephone number."""
    digits = ["".join(rng.choice("0123456789") for _ in range(rng.randint(2, 4))) for _ in range(rng.randint(2, 4))]
    return rng.choice(("", "", "+", "0")) + rng.choice((" ", "-", "")).join(digits)


def postal_address(rng: Random) -> str:
    """A street with a number, and often a city."""
    street = (
        f"{rng.randint(1, 300)} {wordlists.word(rng).capitalize()} {rng.choice(('Street', 'Road', 'Lane', 'Avenue'))}"
    )
    return street if rng.random() < 0.6 else f"{street}, {values.city(rng)}"


DATE: Final = topic(one(day_of_year), """
    [The current|Today's|The|The present] date is {v}
    [Current date|Today's date]: {v}
    Today is {v}
    It is {v} today
    Today is {w}, {v}
""", """
    [what|and what|which] is [the date|today's date|the date today|the current date|the date of today]?
    [what's|tell me|give me|say] [the date|today's date|the current date][?|]
    [do you know|can you tell me|could you tell me] [the date|today's date|the date of today]?
    [what|which] date [is it|is it today|is today|do we have|do we have today]?
""", "The date is {v}.")  # fmt: skip
USER: Final = topic(one(values.person), """
    The user is called {v}
    The [user's name|name of the user|customer's name|name of the customer] is {v}
    [User|User name|Name of the user|Customer]: {v}
    You are [talking|speaking|chatting] [to|with] {v}
    The user is {v}
    The [person you talk to|one who asks] is [called |named |]{v}
    Your user is called {v}
""", """
    [what is|what's|do you know|tell me|say|can you tell me] my name[?|]
    who am I?
    what am I called?
    do you know [who I am|what I am called]?
    [and what|what] is my name?
    [tell me|say] who I am
""", "Your name is {v}.")  # fmt: skip
TOPICS: Final = (
    DATE, DATE, USER, USER,
    topic(one(lambda rng: rng.choice(values.DAYS)), """
        Today is {v}
        It is {v}[ today|]
        [Current day|Day of the week|Weekday]: {v}
        Today is {v}, {d}
        Today is a {v}
    """, """
        [what|which] day is [it|it today|today]?
        [what|which] day of the week is [it|it today|today]?
        [what|which] weekday is [it|it today|today]?
        [tell me|say|do you know] [what|which] day it is[?|]
        what day do we have today?
    """, "Today is {v}.", many=False),
    topic(one(values.clock), """
        The [current |local |]time is {v}
        It is {v}[ now| right now]
        [Current time|Local time]: {v}
    """, """
        [what|and what] time is it[| now| right now]?
        what is the [current time|time|time now]?
        [what's|tell me|give me|say|do you know] the time[?|]
        how late is it?
    """, "The time is {v}."),
    topic(hours, """
        We are open from {a} to {b}
        [Opening hours|Our hours|Business hours|Hours]: {a} to {b}
        Our [opening |business |]hours are [from |]{a} to {b}
        [The shop|The store|The office|Our shop|The museum] is open from {a} to {b}
        We open at {a} and close at {b}
    """, """
        when are you open[| today]?
        [what|which] are [your|the] [opening hours|hours|business hours]?
        [tell|give] me [your|the] opening hours
        [at|during] which hours are you open?
        when do you open and close?
        from when to when are you open?
        [what times|which hours] are you open?
    """, "We are open from {a} to {b}."),
    topic(one(lambda rng: rng.choice(values.DAYS)), """
        We are closed on {v}s
        [The shop|The store|The office|Our shop] is closed on {v}s
        Closed on {v}s
        We do not work on {v}s
    """, """
        [on which day|on what day|when|which day] are you closed?
        [when is|on which day is] [the shop|the store|the office] closed?
        on which day of the week are you closed?
        [which|what] day do you not work?
    """, "We are closed on {v}s.", many=False),
    topic(price, """
        [A|One|Each] {t} costs {v}
        [The|Our] price of a {t} is {v}
        A {t} is {v}
        We sell a {t} for {v}
        You can buy a {t} for {v}
    """, """
        [how much|what] [does a {t} cost|is a {t}|would a {t} cost]?
        [what is|what's|tell me|give me] the price [of|for] a {t}[?|]
        how much is [one {t}|the {t}]?
        how much do [you want|you ask|I pay] for a {t}?
        [what|how much] does one {t} cost?
    """, "A {t} costs {v}."),
    topic(one(telephone), """
        [Our|The] [phone|telephone] number is {v}
        [Phone|Telephone|Hotline]: {v}
        [Customers|Users|You|People] can call us at {v}
        Our hotline is {v}
        Call us at {v}
    """, """
        [what is|what's|give me|tell me] [your|the] [phone number|telephone number][?|]
        [which|what] [phone number|number] can I call?
        how can I call you?
        [which|what] number do I [call|dial]?
        [do you have|can I have|can I get] a phone number?
    """, "The phone number is {v}."),
    topic(one(values.email), """
        [Our|The] [email|e-mail|email address] is {v}
        [Email|E-mail|Contact|Mail]: {v}
        [Customers|Users|You|People] can [write|send a mail] to {v}
        Write to us at {v}
    """, """
        [what is|what's|give me|tell me] your [email|email address|e-mail address|mail address][?|]
        [which|what] email address can I write to?
        [do you have|can I have|can I get] an email address?
        where can I send [an email|a mail]?
    """, "The email address is {v}."),
    topic(one(postal_address), """
        [Our|The] [address|office address|shop address] is {v}
        [Address|Our address]: {v}
        [Our office|Our shop|The store|The office] is at {v}
        You can find us at {v}
        We are at {v}
    """, """
        [what is|what's|give me|tell me] your address[?|]
        where [are you|can I find you|is your shop|is your office|is your store]?
        [at which|what] address are you?
    """, "The address is {v}."),
    topic(one(company), """
        [Our|The|This] company is called {v}
        [Company|Company name]: {v}
        The name of [our|the] company is {v}
        [This is|We are] the company {v}
        The company's name is {v}
    """, """
        [what is|what's|tell me|say] the name of [the|your] company[?|]
        [what|how] is [the|your] company called?
        [what|which] company is this?
        [what is|what's] the company's name?
    """, "The company is called {v}."),
    topic(one(values.city), """
        We are based in {v}
        Our [office|shop|store|company|headquarters|team] is [based |]in {v}
        The company is based in {v}
        [Location|City|Based in]: {v}
    """, """
        where [are you|is the company|is your company|is your team] based?
        in [which|what] city are you[| based]?
        [what|which] city [are you|is the company] [in|based in]?
        [tell|say] me where you are based
    """.replace("[tell|say] me", "tell me"), "We are based in {v}."),
    topic(event, """
        The {e} is {v}
        The {e} takes place {v}
        We have the {e} {v}
        {E}: {v}
    """, """
        [when|when exactly] is the {e}?
        [tell me|do you know] when the {e} is[?|]
        when does the {e} take place?
        when do we have the {e}?
        what is the date of the {e}?
    """.replace("what is the date of the {e}?", "when will the {e} be?"), "The {e} is {v}."),
    topic(post, """
        [Our|The] {p} is {v}
        {v} is [our|the] {p}
        The name of [our|the] {p} is {v}
        The {p} is called {v}
    """, """
        who is [the|your|our] {p}?
        [tell me|do you know] who the {p} is[?|]
        [what is|what's|tell me|give me] the name of the {p}[?|]
        what is the {p} called?
        who's the {p}?
    """, "The {p} is {v}."),
    topic(stock, """
        We have {v} {t}[ in stock|]
        There are {v} {t} [in stock|left|here|in the shop]
        [Stock|In stock]: {v} {t}
    """, """
        how many {t} [do you have|are there|are left|do we have|are in stock|are available|have you got]?
        [tell me|do you know] how many {t} you have[?|]
        what number of {t} do you have?
    """, "We have {v} {t}."),
    topic(one(duration), """
        [Delivery|Shipping] takes {v}
        [Delivery|Shipping|Delivery time]: {v}
        [Parcels|Orders|Packages] arrive after {v}
        The delivery time is {v}
    """, """
        how long does [delivery|shipping|the delivery] take?
        [what is|what's|tell me] the delivery time[?|]
        how long do I [wait|have to wait] for [my order|my parcel]?
        how long until my [order|parcel] arrives?
    """, "Delivery takes {v}.", many=False),
    *(topic(field, """
        The {f} is {v}
        The {f} is {v}
        [Our|The current] {f} is {v}
        {v} is the {f}
        The {f} [of today|for now|to use|for {people}] is {v}
    """, """
        [what|and what|which] is the {f}?
        what's the {f}?
        [tell me|do you know|can you tell me|could you tell me|please tell me|give me] the {f}[?|]
        [what|which] {f} [do you have|do you know|do I need]?
        [I need|I forgot] the {f}
        what {f} [should|can|do] I use?
        [and|so] the {f}?
    """, "The {f} is {v}."),) * 4,
)  # fmt: skip
# Topics of which a prompt may have several, and those with questions in common.
NAMED: Final = frozenset(
    ("A {t} costs {v}.", "The {f} is {v}.", "The {e} is {v}.", "The {p} is {v}.", "We have {v} {t}.")
)
PLACES: Final = frozenset(("The address is {v}.", "We are based in {v}."))
WORKPLACES: Final = PLACES | {"The company is called {v}."}
QUIET_TOPICS: Final = tuple(one for one in TOPICS if one.answer not in ("The time is {v}.", "Today is {v}."))
PLACELESS_TOPICS: Final = tuple(one for one in QUIET_TOPICS if one.answer not in WORKPLACES)


def fact(rng: Random, split: Split, chosen: Topic) -> Told:
    """A fact of the topic, new to the split."""
    made = chosen.make(rng)
    if chosen.many:
        made = draw(lambda: chosen.make(rng), split, lambda one: f"system fact {chosen.answer} {one}")
    given = {**made, "E": made.get("e", "").capitalize(), "d": day_of_year(rng), "w": rng.choice(values.DAYS)}
    question = rng.choice(in_split(chosen.questions, split, "system fact"))
    question = filled(question, made)
    return Told(
        grown(rng, rng.choice(chosen.statements), given),
        loose(rng, question[0].upper() + question[1:]) if rng.random() < 0.8 else question,
        filled(chosen.answer, made),
        tuple(made.values()),
    )


def filled(pattern: str, given: dict[str, str]) -> str:
    """The pattern with its values."""
    for name, value in given.items():
        pattern = pattern.replace(f"{{{name}}}", value)
    return pattern


def several(rng: Random, split: Split, topics: tuple[Topic, ...], fewest: int, most: int) -> list[Told]:
    """Facts of different topics, of which the first may be asked for."""
    first = rng.choice(topics)
    made = [fact(rng, split, first)]
    for _ in range(rng.randint(fewest, most) - 1):
        other = rng.choice(topics)
        if {first.answer, other.answer} <= PLACES or (other.answer == first.answer and first.answer not in NAMED):
            continue
        more = fact(rng, split, other)
        if not set(more.values) & set(made[0].values):
            made.append(more)
    return made
