"""Facts that a system prompt tells among other things, and questions for them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Final

from training import values, verbs, wordlists
from training.functions import spoken, text_value
from training.personas import with_article
from training.registry import Split, draw, in_split, lines, loose, wordings
from training.system_prompts import company, consonant_noun, grown, in_commas
from training.wordlists import listed

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


def amount(low: int, high: int, *units: str) -> Make:
    """A maker of a number with one of the units."""
    return one(lambda rng: f"{rng.randint(low, high)} {rng.choice(units)}")


def some(rng: Random, low: int = 2, high: int = 90) -> str:
    """A number."""
    return str(rng.randint(low, high))


def arrival(rng: Random) -> str:
    """When something comes."""
    return rng.choice((f"on {rng.choice(values.DAYS)}", f"on {day_of_year(rng)}", "tomorrow", "next week",
                       f"in {rng.randint(2, 20)} days", f"next {rng.choice(values.DAYS)}"))  # fmt: skip


def hour(rng: Random) -> str:
    """A full or half hour."""
    if rng.random() < 0.5:
        return f"{rng.randint(1, 12)} {rng.choice(('am', 'pm'))}"
    return f"{rng.randint(6, 23)}:{rng.choice(('00', '15', '30', '45'))}"


def from_to(rng: Random) -> dict[str, str]:
    """Two hours, and what they are for."""
    meal = rng.choice(("breakfast", "lunch", "dinner", "brunch", "happy hour", "the pool", "the sauna", "the library"))
    return {"t": meal, "a": hour(rng), "b": hour(rng)}


def doctor(rng: Random) -> str:
    """A doctor."""
    return f"{rng.choice(('Dr. ', 'Dr. ', 'Dr ', 'Doctor ', ''))}{values.person(rng)}"


def school_subject(rng: Random) -> dict[str, str]:
    """A subject and a day, room or task of it."""
    subject = rng.choice(("math", "history", "biology", "English", "French", "physics", "art", "music", "chemistry"))
    page = f"page {rng.randint(2, 200)}"
    task = rng.choice((f"read {page}", f"exercise {rng.randint(1, 30)}", page, f"write about {wordlists.noun(rng)}s",
                       f"learn {rng.randint(5, 60)} words", f"{page}, exercise {rng.randint(1, 9)}"))  # fmt: skip
    return {
        "t": subject,
        "v": task,
        "r": f"{rng.choice(('', 'A', 'B', 'C'))}{rng.randint(1, 400)}",
        "n": values.person(rng),
    }


def ingredient(rng: Random) -> dict[str, str]:
    """What a recipe needs, and how much of it."""
    what = rng.choice(("flour", "sugar", "butter", "milk", "rice", "salt", "oil", "honey", "cheese", "cream", "water"))
    unit = rng.choice(("grams", "g", "cups", "spoons", "ml", "ounces", "teaspoons"))
    dish = rng.choice(("cake", "bread", "soup", "sauce", "pie", "dough", "omelette", "risotto", "salad", "pudding"))
    return {"t": what, "v": f"{rng.randint(2, 900)} {unit}", "d": dish}


def dish(rng: Random) -> str:
    """Something to eat."""
    food = rng.choice(("soup", "curry", "pasta", "pizza", "salad", "stew", "risotto", "pie", "burger", "noodles"))
    return f"{rng.choice((wordlists.noun(rng), rng.choice(wordlists.ADJECTIVES), 'tomato', 'pumpkin', 'fish'))} {food}"


def pet(rng: Random) -> dict[str, str]:
    """A pet or relative and its name."""
    who = rng.choice(("dog", "cat", "horse", "parrot", "rabbit", "hamster", "turtle", "son", "daughter", "wife",
                      "husband", "sister", "brother", "boss", "neighbor", "teacher", "boat", "car"))  # fmt: skip
    return {"t": who, "v": rng.choice((wordlists.name(rng), wordlists.made_up_word(rng).capitalize()))}


def ride(rng: Random) -> dict[str, str]:
    """A vehicle, its goal and when it leaves and from where."""
    vehicle = rng.choice(("train", "bus", "ferry", "flight", "boat", "tram", "plane", "shuttle"))
    stop = rng.choice(("platform", "gate", "stop", "pier", "track"))
    return {
        "t": vehicle,
        "c": values.city(rng),
        "v": values.clock(rng),
        "g": f"{stop} {rng.choice(('', 'A', 'B', 'C'))}{rng.randint(1, 60)}",
    }


def software(rng: Random) -> dict[str, str]:
    """A program and its version."""
    name = rng.choice((wordlists.made_up_word(rng), wordlists.noun(rng))).capitalize()
    return {"t": name, "v": ".".join(str(rng.randint(0, 20)) for _ in range(rng.choice((2, 2, 3))))}


def money(rng: Random) -> str:
    """An amount of money."""
    number = rng.choice((str(rng.randint(1, 99)), f"{rng.randint(1, 900)}0", f"{rng.randint(2, 99)},000"))
    return rng.choice((f"{number} euros", f"{number} dollars", f"${number}", f"€{number}", f"{number} pounds"))


def ticket(rng: Random) -> dict[str, str]:
    """A sort of ticket or visitor, and the price."""
    return {
        "t": rng.choice(("adult", "child", "student", "family", "senior", "day", "season", "group")),
        "v": money(rng),
    }


def measured(rng: Random) -> dict[str, str]:
    """A place or thing with a height, length, weight, temperature, limit or capacity."""
    return {
        "t": rng.choice((wordlists.noun(rng), "pool", "village", "tower", "bridge", "hall", "lake", "oven", "room"))
    }


def belongings(rng: Random) -> dict[str, str]:
    """Things of an order."""
    return {"v": f"{rng.randint(2, 60)} {grown(rng, '{nouns}')}", "n": values.code(rng)}


def place_inside(rng: Random) -> str:
    """Where something is."""
    return grown(rng, rng.choice((
        "behind the {noun}", "next to the {noun}", "in front of the {noun}", "in {noun} street", "under the {noun}",
        "on the [first|second|third|ground] floor", "on level {number}", "opposite the {noun}", "in room {number}",
    )))  # fmt: skip


def facility(rng: Random) -> dict[str, str]:
    """A thing in a building and where it is."""
    things = ("toilet", "restroom", "elevator", "gym", "printer", "cafeteria", "pool", "bar", "first aid kit",
              "coffee machine", "meeting point", "bus stop", "library", "key", "spare key", "ticket office", "exit",
              "lost and found office", "reception", "nearest pharmacy", "nearest shop")  # fmt: skip
    return {"t": rng.choice(things), "v": place_inside(rng)}


def liked(rng: Random) -> dict[str, str]:
    """A sort of thing and which one is liked best."""
    choices = {
        "color": ("red", "blue", "green", "yellow", "purple", "orange", "pink", "black", "white", "brown"),
        "animal": ("dog", "cat", "horse", "owl", "fox", "whale", "tiger", "bear", "rabbit", "turtle"),
        "food": ("pizza", "soup", "rice", "bread", "cheese", "pasta", "fish", "cake", "salad", "curry"),
        "drink": ("tea", "coffee", "milk", "juice", "water", "cocoa", "lemonade", "cider", "wine", "beer"),
        "season": ("spring", "summer", "autumn", "winter"),
        "sport": ("football", "tennis", "chess", "golf", "rugby", "hockey", "swimming", "cricket", "judo"),
    }
    sort = rng.choice(list(choices))
    return {"t": sort, "v": rng.choice(choices[sort])}


HOBBIES: Final = in_commas("""
    chess, fishing, painting, running, swimming, sailing, cooking, baking, gardening, knitting, hiking, cycling,
    dancing, reading, singing, skiing, surfing, climbing, photography, pottery, yoga, archery, juggling, rowing
""")
LANGUAGES: Final = listed("French German Spanish Italian Dutch Polish Swedish English Danish Finnish Turkish Japanese")
MORE_TOPICS: Final = (
    topic(amount(2, 120, "days", "days", "weeks", "months"), """
        [Returns are|A return is|Returns are only] [possible|accepted|free] [within|for|up to] {v}
        [Customers|You|Buyers] [can|may] return [items|goods|products|everything|an item] within {v}
        [Return policy|Returns|Return period]: {v}
        We take back [items|goods|products] within {v}
    """, """
        [how long|how many days] [do I have to|can I|may I] [return it|return an item|send it back|return something|bring it back]?
        [what is|what's|tell me] [your|the] return [policy|period][?|]
        [until when|how long] are returns possible?
        can I [return|send back|bring back] [this|my order|the shoes|it]?
        I want to return [something|my order|an item][|, how long do I have?]
    """, "Returns are possible within {v}."),
    topic(one(arrival), """
        [The order|The parcel|The package|The customer's order|The delivery|The user's order] [arrives|comes|will arrive|will be delivered|is due] {v}
        [Delivery of the order|Arrival of the parcel|Order arrives]: {v}
    """, """
        when [will|does] my [order|parcel|package|delivery] [come|arrive|get here]?
        [where is|where's] my [order|parcel|package]?
        [when|on which day] do I get my [order|parcel|package]?
        has my [order|parcel] [arrived|come] yet?
        when can I expect my [order|parcel|delivery]?
    """, "Your order arrives {v}."),
    topic(belongings, """
        The [order|customer's order|user's order] [contains|has|consists of] {v}
        [Order contents|Contents of the order]: {v}
        The [user|customer] [ordered|bought|has ordered] {v}
    """, """
        what [did I order|have I ordered|is in my order|did I buy]?
        [tell me|can you tell me|do you know] what I ordered[?|]
        what does my order contain?
    """, "You ordered {v}."),
    topic(one(values.code), """
        The [user's|customer's] order number is {v}
        The order number of the [user|customer] is {v}
        Order no.: {v}
    """, """
        [what is|what's|tell me|give me] my order number[?|]
        [which|what] order number do I have?
        I [forgot|lost] my order number
    """, "Your order number is {v}."),
    topic(amount(2, 20, "years", "years", "months"), """
        [The|Our] warranty [is|lasts|covers|runs for] {v}
        [Warranty|Guarantee]: {v}
        [All products|Our products|All devices] have a warranty of {v}
    """, """
        how long is the [warranty|guarantee]?
        [what is|what's|tell me] [the|your] [warranty|guarantee][?|]
        [is there|do I get|do you give] a [warranty|guarantee]?
        how long does the [warranty|guarantee] last?
    """, "The warranty is {v}.", many=False),
    topic(one(money), """
        The minimum order is {v}
        [Minimum order|Minimum]: {v}
        [Customers|You] must order for at least {v}
        We deliver from {v}
    """, """
        [what is|what's|is there|do you have] [the|a] minimum order?
        how much must I order[| at least]?
        what is the smallest order[| possible]?
        [what|how much] do I have to order at least?
    """.replace("[what is|what's|is there|do you have] [the|a]", "[what is|what's|tell me] the"), "The minimum order is {v}."),
    topic(one(place_inside), """
        [Parking is|Guests can park|Customers park|Visitors park|You can park|The parking lot is|Park] {v}
        [Parking|Parking lot|Car park]: {v}
    """, """
        where [do I|can I|should I|may I] [park|park my car|leave my car]?
        [where is|where's] the [parking lot|car park|parking]?
        [do you have|is there|can I find] parking?
        [I come by car, where do I park|I have a car, where can I park]?
    """, "Parking is {v}."),
    topic(one(hour), """
        [Check-in is|Check-in starts|Guests can check in|Check in is] [at|from|after] {v}
        [Check-in|Check-in time]: {v}
    """, """
        when [can I|do I|is it possible to] check in?
        [when|what time|at what time] is check-in?
        from when can I [check in|have my room|get my key]?
        [what is|what's] the check-in time?
    """, "Check-in is at {v}."),
    topic(one(hour), """
        [Check-out is|Guests check out|Guests must leave|Check out is] [at|by|before] {v}
        [Check-out|Check-out time]: {v}
    """, """
        when [must I|do I have to|do I] [check out|leave my room]?
        [when|what time|at what time] is check-out?
        [until when|how long] can I stay in my room?
        [what is|what's] the check-out time?
    """, "Check-out is at {v}."),
    topic(from_to, """
        [{t}|{t}] is [served |open |]from {a} to {b}
        We [have|serve|open] {t} from {a} to {b}
        {T}: {a} to {b}
        {t} starts at {a} and ends at {b}
    """.replace("[{t}|{t}]", "{T}").replace("        {t} starts", "        {T} starts"), """
        when is {t}?
        [what time|at what time|from when to when] is {t}?
        [when|what time] does {t} [start|begin|end]?
        what are the hours of {t}?
        [when can I|how long can I|until when can I] [have|get|use] {t}?
    """.replace("[have|get|use] {t}", "enjoy {t}"), "{T} is from {a} to {b}."),
    topic(one(doctor), """
        [The doctor on duty is|On duty is|On duty tonight:|Doctor on duty:] {v}
        {v} is [on duty|on call][| tonight| today| this week]
        {v} has the [night shift|late shift] today
    """, """
        [who is|who's] [on duty|on call|the doctor on duty][| tonight| today]?
        [which|what] doctor is [on duty|there|working][| tonight| today]?
        which doctor can I see [today|tonight|now]?
    """, "{v} is on duty."),
    topic(one(arrival), """
        [The next free appointment|The next appointment|The first free appointment] is {v}
        [Next appointment|Next free appointment]: {v}
        We have the next free appointment {v}
    """, """
        when [can I|could I] [come in|see a doctor|get an appointment|have an appointment]?
        [when is|what is|when's] the next [appointment|free appointment]?
        [do you have|is there] a free appointment?
        [I need|can I get|can I make|I'd like] an appointment[?|]
    """.replace("an appointment[?|]", "an appointment, when?"), "The next appointment is {v}."),
    topic(lambda rng: {**school_subject(rng), "v": arrival(rng)}, """
        The {t} [exam|test|quiz] is {v}
        We [write|have] the {t} [exam|test] {v}
        {t} exam: {v}
    """, """
        when is [the|our|my|the next] {t} [exam|test]?
        when do [we|I] [have|write] the {t} [exam|test]?
        [what is|what's] the date of the {t} [exam|test]?
    """, "The {t} exam is {v}."),
    topic(school_subject, """
        The {t} homework is[:|] {v}
        [Homework in|Homework for] {t}: {v}
        The homework [in|for] {t} is {v}
    """, """
        what is [the|our|my] {t} homework?
        what's [the|our|my] homework [in|for] {t}?
        [what do I have to do|what must I do] for {t}?
        do we have homework [in|for] {t}?
    """, "The {t} homework is {v}."),
    topic(lambda rng: {"v": some(rng, 1, 500), "n": values.person(rng)}, """
        {n} [is|teaches|works|sits|can be found] in room {v}
        [The room of {n}|{n}'s room] is {v}
        {n}: room {v}
    """, """
        [where is|where's|where can I find|where do I find] {n}?
        in [which|what] room is {n}?
        [which|what] is {n}'s room?
        where does {n} [sit|work|teach]?
    """, "{n} is in room {v}."),
    topic(ingredient, """
        The {d} needs {v} of {t}
        [Use|Take|Add] {v} of {t} for the {d}
        The recipe for the {d} [has|needs|asks for] {v} of {t}
    """, """
        how much {t} [do I need|do I use|do I take|goes in|do I add][| for the {d}]?
        how much {t} [is in|goes into|for] the {d}?
        [what amount of|how much] {t} does the {d} need?
    """, "The {d} needs {v} of {t}."),
    topic(lambda rng: {"v": grown(rng, "{n} [tablets|pills|drops|spoons|capsules] [a day|per day|twice a day|every morning|every {m} hours|after each meal]", {"n": some(rng, 2, 20), "m": some(rng, 2, 12)})}, """
        The [dose|dosage] is {v}
        [Dose|Dosage]: {v}
        [Patients|Adults|Users|People] [take|should take] {v}
    """, """
        [what is|what's] the [dose|dosage|right dose]?
        how [many|much|often] [do I|should I|must I] take[| it]?
        how do I take [it|the medicine|them]?
        how much of [it|the medicine] [do I|should I] take?
    """.replace("how [many|much|often] [do", "how [much|often] [do"), "The dose is {v}."),
    topic(amount(3, 200, "km/h", "mph", "km per hour", "knots"), """
        The speed limit is {v}
        [Speed limit|Top speed allowed]: {v}
        [Nobody may|You may not|Drivers must not] [go|drive] faster than {v}
    """, """
        how fast [can I|may I|am I allowed to] [drive|go]?
        [what is|what's] the speed limit?
        how fast is allowed[| here]?
    """, "The speed limit is {v}."),
    topic(amount(3, 30, "years"), """
        [Visitors|Guests|Children|Players] must be [at least |]{v} old
        [Minimum age|Entry age|Age limit]: {v}
        [Entry is|Entrance is] from {v} of age
    """, """
        how old [must I|do I have to|must my child|does my son have to] be?
        [what is|what's] the [minimum age|age limit|entry age]?
        from what age can I [come in|enter|play|join]?
    """, "The minimum age is {v}.", many=False),
    topic(ticket, """
        [A|The|One] {t} ticket costs {v}
        [The price of|We charge for] a {t} ticket is {v}
        {t} tickets: {v}
        {t} tickets are {v}
    """.replace("[The price of|We charge for]", "The price of"), """
        how much is [a|one|the] {t} ticket?
        what does [a|one|the] {t} ticket cost?
        [what is|what's] the price [of|for] a {t} ticket?
        how much do I pay for a {t} ticket?
        I need a {t} ticket, how much is it?
    """, "The {t} ticket costs {v}."),
    topic(one(dish), """
        [Today's special|The special|The menu of the day|The dish of the day|Today's menu] is {v}
        [Special|Menu of the day|Today's dish]: {v}
        [Today we serve|The kitchen has] {v}[ today|]
    """, """
        [what is|what's] [the special|today's special|on the menu|the menu of the day|for lunch|the dish of the day][| today]?
        what can I eat [today|here]?
        [what do you|what does the kitchen] [serve|cook|have] today?
        do you have a [special|menu of the day]?
    """, "The special is {v}."),
    topic(one(values.person), """
        [Our|The] [chef|cook] is [called |]{v}
        {v} [cooks|is the chef|runs the kitchen][| today| here]
        The [chef's|cook's] name is {v}
    """, """
        who [is the chef|cooks|is cooking|makes the food|is in the kitchen][| here| today| tonight]?
        [what is|what's] the [chef|cook] called?
        [what is|what's] the name of the [chef|cook]?
    """, "The chef is {v}."),
    topic(lambda rng: {"v": some(rng, 1, 400), "c": values.city(rng)}, """
        [Bus|Bus line|Line] {v} goes to {c}
        [Take|Guests take] bus {v} to {c}
        To {c}: bus {v}
        You reach {c} by bus {v}
    """, """
        [which|what] [bus|line|bus line] goes to {c}?
        how [do I|can I] get to {c}?
        which bus [do I|should I|can I|must I] take to {c}?
        is there a bus to {c}?
    """, "Bus {v} goes to {c}."),
    topic(ride, """
        The {t} to {c} [leaves|departs|goes|starts] at {v}
        {t} to {c}: {v}
        The next {t} to {c} is at {v}
    """, """
        when does [the|my|our|the next] {t} to {c} [leave|go|depart|start]?
        [what time|when] is the {t} to {c}?
        at what time does the {t} to {c} leave?
        when [can I|do we] [go|travel] to {c}?
    """, "The {t} to {c} leaves at {v}."),
    topic(ride, """
        The {t} to {c} [leaves|departs|goes] from {g}
        {t} to {c}: {g}
        Passengers to {c} go to {g}
    """, """
        from where does the {t} to {c} [leave|go|depart]?
        where does [my|the|our] {t} to {c} [leave|start|depart]?
        [which|what] [gate|platform|stop] is the {t} to {c}?
        where do I [catch|find|take] the {t} to {c}?
    """, "The {t} to {c} leaves from {g}."),
    topic(one(lambda rng: f"{rng.randint(1, 60)}{rng.choice('ABCDEF')}"), """
        The [user's|passenger's|customer's|guest's] seat is {v}
        [Seat|Seat of the user|Seat number]: {v}
        The [user|passenger|guest] [has|sits in] seat {v}
    """, """
        where do I sit?
        [which|what] seat [do I have|is mine|am I in|did I book]?
        [what is|what's|tell me] my seat[?| number?]
    """, "Your seat is {v}."),
    topic(one(values.code), """
        The [wifi|Wi-Fi|wi-fi|WLAN] password is {v}
        [Guests use|Use] the wifi password {v}
        Password for the wifi: {v}
    """, """
        [what is|what's|tell me|give me|can I have] the [wifi|Wi-Fi|wi-fi|internet] password[?|]
        how do I [get online|connect to the wifi|use the wifi|get into the wifi|get wifi]?
        [is there|do you have|can I use the] wifi?
        I need the wifi[| password][|, please]
    """, "The wifi password is {v}."),
    topic(one(lambda rng: wordlists.made_up_word(rng).capitalize() + rng.choice(("", " Guest", "Net", "-5G", " Free", "_Wifi"))), """
        The [wifi|Wi-Fi|network] is called {v}
        [Wifi network|Network name|Wifi name]: {v}
        The [name of the wifi|name of the network|wifi's name] is {v}
    """, """
        [what is|what's] the [wifi|network] called?
        [what is|what's|tell me] the name of the [wifi|network][?|]
        [which|what] [network|wifi] [is it|do I use|should I use]?
    """, "The wifi is called {v}."),
    topic(one(lambda rng: values.date(rng) if rng.random() < 0.1 else day_of_year(rng)), """
        The [user's|customer's] birthday is [on |]{v}
        The user was born on {v}
        Birthday of the user: {v}
    """, """
        when is my birthday?
        when was I born?
        [what is|what's|tell me|do you know] my birthday[?|]
        [on which day|when] do I have my birthday?
    """, "Your birthday is {v}."),
    topic(pet, """
        The [user's|customer's] {t} is [called|named] {v}
        The user has a {t} [called|named] {v}
        The name of the user's {t} is {v}
        {v} is the user's {t}
    """, """
        what's my {t} called?
        [what is|what's|tell me|do you know|whats] the name of my {t}[?|]
        [what is|what's] my {t}'s name?
        what is my {t} called?
        do you [remember|know] my {t}'s name?
    """, "Your {t} is called {v}."),
    topic(one(values.city), """
        The user [comes from|is from|was born in|grew up in] {v}
        The user's [hometown|home town|home] is {v}
        Hometown of the user: {v}
    """, """
        where [am I|do I come] from?
        [what is|what's|do you know] my [hometown|home town]?
        [which|what] [town|city|place] am I from?
        where did I grow up?
    """, "You are from {v}."),
    topic(one(lambda rng: rng.choice(HOBBIES)), """
        The user's hobby is {v}
        [Hobby|Hobby of the user]: {v}
        The user [likes|loves|enjoys] {v}
    """, """
        [what is|what's|tell me|do you know] my hobby[?|]
        what do I [like|love|enjoy][| to do| doing]?
        which hobby do I have?
        what do I do in my free time?
    """, "Your hobby is {v}.", many=False),
    topic(liked, """
        The user's favorite {t} is {v}
        Favorite {t} of the user: {v}
        {v} is the user's favorite {t}
    """, """
        [what is|what's|tell me|do you know] my favorite {t}[?|]
        which {t} do I [like|love] [best|most]?
        do you know which {t} I like best?
    """, "Your favorite {t} is {v}.", many=False),
    topic(one(lambda rng: wordlists.made_up_word(rng).capitalize() + rng.choice((" FC", " United", " City", "", " Tigers", " Rovers"))), """
        The user's [favorite |]team is {v}
        [Team of the user|Favorite team]: {v}
        The user [is a fan of|plays for|supports] {v}
    """, """
        [what is|what's|tell me] my [|favorite ]team[?|]
        [which|what] team do I [like|support|play for|follow|belong to]?
        who do I [play for|support]?
    """, "Your team is {v}."),
    topic(one(lambda rng: rng.choice(LANGUAGES)), """
        The user's [native language|mother tongue|first language] is {v}
        Mother tongue of the user: {v}
    """, """
        [what is|what's|tell me] my [native language|mother tongue|first language][?|]
        which language did I grow up with?
        which is my [native language|mother tongue|first language]?
    """, "Your native language is {v}.", many=False),
    topic(software, """
        [The|The current|The latest|The newest] version of {t} is {v}
        {t} is [now |]at version {v}
        {t} version: {v}
        We use version {v} of {t}
    """, """
        [which|what] version of {t} [is it|do we use|do you have|is the latest|is current|do I need]?
        [what is|what's] the [|current |latest ]version of {t}?
        [which|what] version does {t} have?
    """, "The version of {t} is {v}."),
    topic(lambda rng: {"v": arrival(rng), "t": wordlists.noun(rng)}, """
        The deadline [of|for] the {t} [project|report|paper] is {v}
        The {t} [project|report|paper] is due {v}
        Deadline of the {t} [project|report|paper]: {v}
    """.replace("[project|report|paper]", "report"), """
        when is the {t} report due?
        [when is|what is|what's] the deadline [of|for] the {t} report?
        [when|by when|until when] [must I|do I have to] [finish|hand in|send] the {t} report?
        how much time do I have for the {t} report?
    """, "The {t} report is due {v}."),
    topic(one(money), """
        [The|Our|The total|The project's] budget is {v}
        [Budget|Our budget]: {v}
        We [can spend|may spend|have a budget of] {v}
    """, """
        [what is|what's|how big is|how high is] [the|our|my] budget?
        how much [can|may] [we|I] spend?
        how much money do we have?
    """, "The budget is {v}."),
    topic(lambda rng: {"v": rng.choice((some(rng, 1, 500), wordlists.noun(rng).capitalize(), wordlists.made_up_word(rng).capitalize()))}, """
        [We meet|The team meets|The meeting takes place|The meeting is held] in room {v}
        [Meeting room|Room of the meeting]: {v}
        The meeting room is {v}
    """, """
        where [is the meeting|do we meet|does the meeting take place|is our meeting]?
        [in which|in what|which|what] room is the meeting?
        [what is|what's|which is] the meeting room?
    """, "The meeting is in room {v}."),
    topic(one(values.email), """
        [Our|The] support [email|e-mail|address|email address] is {v}
        [Support|Help desk]: {v}
        [For support|For help|In case of trouble], [customers|users|people] write to {v}
    """, """
        [how|where] [do I|can I] [reach|contact|get] [support|the support|help]?
        [what is|what's|give me] the support [email|address|e-mail][?|]
        where can I [complain|get help|report a bug|report a problem]?
    """, "The support address is {v}."),
    topic(amount(2, 60, "days", "weeks", "hours", "working days"), """
        Refunds take {v}
        [Refund time|Refunds]: {v}
        [Customers get|You get|We send] the money back [after|within|in] {v}
    """, """
        [when|how soon] do I get my [money back|refund|money]?
        how long [does a refund take|do refunds take|does it take to get my money back|until I get my refund]?
        [where is|where's] my [refund|money]?
    """, "Refunds take {v}."),
    topic(one(lambda rng: rng.choice((values.code(rng), wordlists.word(rng).upper() + some(rng)))), """
        The [discount|coupon|promo] code is {v}
        [Customers|You] can use the [discount|coupon] code {v}
        Code for a discount: {v}
    """, """
        [do you have|is there|can I get|can I have] a [discount|coupon|discount code|coupon code|promo code]?
        [what is|what's] the [discount|coupon|promo] code?
        [which|what] code gives me a discount?
        [how do|how can] I [get a discount|save money]?
    """, "The discount code is {v}."),
    topic(one(arrival), """
        [We|The new shop|The museum|The new store] [open|opens]{o}{v}
        [Grand opening|Opening day]: {v}
        The opening day is {v}
    """.replace("[We|The new shop|The museum|The new store] [open|opens]{o}", "[The new shop|The new store|The new branch] opens "), """
        when does the new [shop|store|branch] open?
        [when is|what is] the opening day?
        when is the grand opening?
    """, "The opening day is {v}."),
    topic(lambda rng: {**measured(rng), "v": f"{some(rng, 2, 900)} {rng.choice(('people', 'guests', 'visitors', 'seats'))}"}, """
        The {t} [holds|has room for|is made for|can hold] {v}
        Capacity of the {t}: {v}
    """, """
        how many [people|guests] [fit in|can be in|fit into|may enter] the {t}?
        [what is|what's|tell me] the capacity of the {t}[?|]
        how big is the {t}?
    """, "The {t} holds {v}."),
    topic(lambda rng: {**measured(rng), "v": f"{some(rng, 2, 4000)} {rng.choice(('meters', 'feet', 'm'))}"}, """
        The {t} [is|lies] [at |]{v} [above the sea|above sea level|high|in height]
        Altitude of the {t}: {v}
        The altitude of the {t} is {v}
    """, """
        how high [is|lies] the {t}?
        [what is|what's] the [altitude|height] of the {t}?
        at [what|which] altitude is the {t}?
    """, "The altitude of the {t} is {v}."),
    topic(lambda rng: {**measured(rng), "v": f"{some(rng, 2, 240)} {rng.choice(('degrees', '°C', '°F'))}"}, """
        The {t} [has|is at|is kept at|is set to] {v}
        Temperature of the {t}: {v}
        The temperature of the {t} is {v}
    """, """
        how [warm|hot|cold] is the {t}?
        [what is|what's] the temperature [of|in] the {t}?
        [which|what] temperature does the {t} have?
    """, "The temperature of the {t} is {v}."),
    topic(facility, """
        The {t} is {v}
        [You find|Guests find|There is] the {t} {v}
        {t}: {v}
        Where is the {t}? {v}
    """.replace("[You find|Guests find|There is]", "[You find|Guests find]").replace("        Where is the {t}? {v}\n", ""), """
        [where is|where's|where do I find|where can I find] [the|your] {t}?
        [is there|do you have] a {t}?
        how do I [find|get to] the {t}?
        I am looking for the {t}
        [can|could] you tell me where the {t} is?
    """.replace("[is there|do you have] a {t}?", "do you know where the {t} is?").replace("[the|your] {t}", "the {t}"), "The {t} is {v}."),
    topic(one(lambda rng: some(rng, 1, 900)), """
        The [user's|guest's] room is [number |]{v}
        The [user|guest] [has|stays in|sleeps in] room {v}
        Room of the guest: {v}
    """, """
        [which|what] room [am I in|do I have|is mine|did I book]?
        [what is|what's|tell me] my room[?| number?]
        where [do I|will I] sleep?
    """, "Your room is {v}."),
    topic(one(lambda rng: rng.choice((values.code, wordlists.word, values.code))(rng)), """
        The [user's|customer's] password is {v}
        The password of the user is {v}
    """, """
        [what is|what's|tell me|do you know] my password[?|]
        I [forgot|lost|need] my password
        [which|what] password do I have?
    """, "Your password is {v}."),
    topic(one(lambda rng: some(rng, 3, 98)), """
        The user is {v} years old
        [Age of the user|User's age]: {v}
        The user's age is {v}
    """, """
        how old am I?
        [what is|what's|tell me|do you know] my age[?|]
        do you know how old I am?
    """, "You are {v} years old.", many=False),
    topic(lambda rng: {"v": rng.choice(in_commas("teacher, nurse, baker, pilot, farmer, lawyer, painter, student, gardener, plumber, dentist, carpenter, sailor, cook, driver, writer"))}, """
        The user [works as|is] a {v}
        [Job of the user|The user's job]: {v}
        The user's [job|profession] is {v}
    """, """
        [what is|what's|do you know] my [job|profession]?
        what do I do [for a living|for work]?
        what am I by profession?
    """, "You are a {v}.", many=False),
    topic(one(values.city), """
        The user [lives|has a house|is staying] in {v}
        Home of the user: {v}
        The user is in {v} now
    """.replace("        Home of the user: {v}\n        The user is in {v} now\n", "        City of the user: {v}\n"), """
        where do I live?
        [which|what] [city|town] do I live in?
        do you know where I live?
        [what is|what's] my city?
    """, "You live in {v}."),
    topic(lambda rng: {"v": grown(rng, "[credit card|cash|bank transfer|{noun} card|voucher|cheque|phone] [only|or cash|or {noun} card|]").strip()}, """
        [Customers|Guests|You] can pay [by|with|in] {v}
        [Payment|We accept]: {v}
    """, """
        how can I pay?
        [what|which] [payment|payments|cards] do you [accept|take]?
        can I pay [by card|with my phone|in cash]?
        how do I pay[| here| for it]?
    """, "You can pay with {v}.", many=False),
    topic(lambda rng: {"t": wordlists.noun(rng), "v": grown(rng, "[wood|steel|glass|leather|wool|cotton|gold|silver|paper|stone|plastic|bamboo|clay]")}, """
        The {t} is made of {v}
        Material of the {t}: {v}
        We make the {t} [of|from|out of] {v}
    """, """
        what is the {t} made of?
        [which|what] material is the {t}?
        [what is|what's] the material of the {t}?
    """, "The {t} is made of {v}.", many=False),
)  # fmt: skip
TOPICS: Final = (
    *((DATE, USER) * 4),
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
    """, "The {f} is {v}."),) * 8,
    *MORE_TOPICS,
)  # fmt: skip
# Topics of which a prompt may have several, and those with questions in common.
NAMED: Final = frozenset(
    (
        "A {t} costs {v}.",
        "The {f} is {v}.",
        "The {e} is {v}.",
        "The {p} is {v}.",
        "We have {v} {t}.",
        "The {d} needs {v} of {t}.",
        "Bus {v} goes to {c}.",
        "The {t} ticket costs {v}.",
        "Your {t} is called {v}.",
        "The {t} is {v}.",
        "{T} is from {a} to {b}.",
        "{n} is in room {v}.",
    )
)
PLACES: Final = frozenset(("The address is {v}.", "We are based in {v}."))
WORKPLACES: Final = PLACES | {"The company is called {v}."}
CLASHING: Final = listed(
    """deadline exam manager budget version chef wifi password support address team room order seat report leaves meeting
    discount code email birthday warranty doctor boss teacher parking homework lunch dinner breakfast"""
)


@cache
def subjects(topic: Topic) -> frozenset[str]:
    """The words of a topic that another's sentences might use as well; those of fields and events are of any subject."""
    if topic.answer in ("The {f} is {v}.", "The {e} is {v}.", "The {p} is {v}."):
        return frozenset(CLASHING)
    words = set(re.findall(r"\w+", " ".join((topic.answer, *topic.statements))))
    return frozenset(word for word in CLASHING if word in words)


def clash(first: Topic, other: Topic) -> bool:
    """Tell if the question for one topic might ask for the other."""
    if first.answer == other.answer:
        return False
    return {first.answer, other.answer} <= PLACES or not subjects(first).isdisjoint(subjects(other))


QUIET_TOPICS: Final = tuple(one for one in TOPICS if one.answer not in ("The time is {v}.", "Today is {v}."))
CALM_TOPICS: Final = tuple(one for one in QUIET_TOPICS if one not in MORE_TOPICS)
PLACELESS_TOPICS: Final = tuple(one for one in QUIET_TOPICS if one.answer not in WORKPLACES)


def fact(rng: Random, split: Split, chosen: Topic) -> Told:
    """A fact of the topic, new to the split."""
    made = chosen.make(rng)
    if chosen.many:
        made = draw(lambda: chosen.make(rng), split, lambda one: f"system fact {chosen.answer} {one}")
    made = {**made, "T": capital(made["t"])} if "t" in made else made
    given = {"d": day_of_year(rng), "w": rng.choice(values.DAYS), **made, "E": made.get("e", "").capitalize()}
    question = rng.choice(in_split(chosen.questions, split, "system fact"))
    question = capital(filled(question, made))
    statement = grown(rng, rng.choice(chosen.statements), given)
    return Told(
        capital(statement),
        casual(rng, question),
        capital(filled(chosen.answer, made)),
        tuple(made.values()),
    )


def capital(text: str) -> str:
    """The text with a capital letter."""
    return text[0].upper() + text[1:]


SHORT_FORMS: Final = {" you ": " u ", " are ": " r ", "What's": "Whats", "Who's": "Whos", "Where's": "Wheres",
                      "What is": "Whats", "Please": "Pls", "please": "pls", "You ": "U "}  # fmt: skip
OPENINGS: Final = ("Hi, ", "Hello! ", "Hey, ", "Excuse me, ", "Sorry, ", "Quick question: ", "Hello, ", "One question: ",
                   "Please: ", "And ", "So ", "Good evening, ", "Hi there! ", "Tell me: ", "Ok, ")  # fmt: skip


def casual(rng: Random, question: str) -> str:
    """A question as people type it: with a greeting before it, or with the short forms of messages."""
    form = rng.random()
    if form < 0.08:
        opening = rng.choice(OPENINGS)
        keep = opening[-2] in "!" or question.startswith(("I ", "I'"))
        return loose(rng, opening + (question if keep else question[0].lower() + question[1:]))
    if form < 0.14:
        for long, short in SHORT_FORMS.items():
            question = question.replace(long, short)
        return loose(rng, question)
    return question[0].lower() + question[1:] if form < 0.28 else loose(rng, question)


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
        if clash(first, other) or (other.answer == first.answer and first.answer not in NAMED):
            continue
        more = fact(rng, split, other)
        if not set(more.values) & set(made[0].values):
            made.append(more)
    return made
