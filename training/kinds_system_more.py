"""Rules of system prompts that hold for any turn of the user, and what else the prompt tells the assistant of itself."""

from random import Random
from typing import Final

from training import canned, kinds_beyond, kinds_numbers, personas, values, wordlists
from training.facts import CAPITALS
from training.kinds_chat import noise, strange_question, varied
from training.kinds_system import (
    ONE_WORD_FORMS,
    Rule,
    affix_rule,
    case_rule,
    corrected,
    fact_question,
    fixed_rule,
    fresh,
    met,
    other_facts,
    with_facts,
)
from training.registry import Dialogue, Split, draw, in_split, kind, lines, system, user, wordings
from training.system_facts import casual
from training.system_prompts import composed, grown, listing, neutrals

Turn = tuple[str, tuple[str, ...]]

COPIES: Final = wordings(
    """
    [Say|Please say|Repeat|Please repeat|Repeat after me|Please repeat after me|Echo|Now say|Write|Please write|Say this|Repeat this|Just say|Say it: |Can you say|Copy|Type]: {t}
    [say|Say|please say|Please say|repeat|Repeat|Please repeat|echo|Echo|just say|Now say|Can you say|Could you say|write|Repeat the words] {t}
    [Say|Repeat|Echo|Please say|Write|Type|Can you say] "{t}"
    [Say|Repeat|Please echo] the [words|text|sentence]: {t}
""".replace("|Say it: |", "|")
)
SCENES: Final = lines("""
    the {noun} is {adjective}
    the {noun} is [red|blue|green|old|new|here|gone|cold|warm]
    [we|they|you|I] [love|like|need|see|have] {nouns}
    {person} [has|sees|likes|sells] a {noun}
    [all|some|many|two|three] {nouns} are {adjective}
    a {noun} and a {noun}
    the {noun} [runs|falls|sleeps|sings|opens|stops]
    {adjective} {nouns}
    [welcome|goodbye|good luck] {person}
""")


def copied(rng: Random, split: Split, *, one_word: bool = False) -> Turn:
    """A text to repeat."""

    def make() -> str:
        if one_word:
            return wordlists.word(rng)
        if rng.random() < 0.4:
            return values.words(rng, 1, 6)
        text = grown(rng, rng.choice(SCENES))
        return text if rng.random() < 0.6 else text[0].upper() + text[1:]

    text = draw(make, split, lambda one: f"loud {one.lower()}")
    return rng.choice(in_split(COPIES, split, "copies")).replace("{t}", text), (text,)


def computed(rng: Random, split: Split) -> Turn:
    """A sum, a difference or a product."""
    make = rng.choice((kinds_numbers.add, kinds_numbers.add, kinds_numbers.subtract, kinds_numbers.multiply))
    made = make(rng, split)
    return made.messages[-1]["content"], made.answers


def any_turn(rng: Random, split: Split) -> Turn:
    """Something that the user says, and the plain answers."""
    form = rng.random()
    if form < 0.27:
        return computed(rng, split)
    if form < 0.52:
        question = fact_question(rng, split)
        return question.text, (question.full,)
    if form < 0.74:
        return copied(rng, split)
    if form < 0.86:
        return varied(rng, canned.GREETINGS[:16]), canned.GREETING_ANSWERS
    return varied(rng, canned.THANKS), canned.THANKS_ANSWERS


CUSTOMER: Final = lines("""
    [Do you have|Do you sell|Have you got|Do you rent|Can I buy|Where do I find] [{nouns}|{adjective} {nouns}|a {noun}|vegan food|gift cards|a table outside][?|| here?| in stock?| today?]
    [Can|Could|May] I [book|reserve|get|have] [a table|a table for two|a table for {number}|a room|a taxi|a {noun}|tickets|a seat][| for tonight| for tomorrow| at noon| on Monday| near the {noun}]?
    My [{noun}|heater|phone|car|sink|laptop|key|door|bike|fridge|internet|printer] [is broken|does not work|is lost|makes noise|is too {adjective}|leaks|won't start|is gone][, what now?|. What should I do?|, can you help?|.|]
    [Where is|Where's|Where do I find|How do I get to] the [nearest|next|closest|] [shop|station|bank|hospital|toilet|{noun}|bus stop|hotel]?
    How much [is|are] [a {noun}|the {nouns}|delivery|a ticket|the {adjective} {noun}|it][| today| for students| in {city}]?
    What does [a {noun}|the {noun}|delivery|a ticket|the {adjective} {noun}] cost[| today| for two| now]?
    [When|At what time|Until when] [do you open|do you close|are you open|is dinner|can I come|does the {noun} start][| today| tomorrow| on Sunday]?
    I [want|need|would like|am looking for|lost|forgot] [a {noun}|my {noun}|a refund|some help|my password|{nouns}|an appointment|to cancel|to talk to a person|to complain][.|, please.|!|]
    [Is|Are] [the {noun}|my order|your shop|the pool|breakfast|the {nouns}] [open|ready|included|free|{adjective}|still there][| today]?
    [Can you|Could you|Please] [send|bring|show|give|sell|repair|reserve|find] me [a {noun}|the {noun}|{nouns}|the bill|the menu|an invoice][?|, please|.|]
    [Why|When] [is|was] [my {noun}|my order|the {noun}|my bill] [late|so {adjective}|so high|cancelled|moved]?
    [Who|Which person|Which of you] [can help me|do I call|is in charge|repairs {nouns}|knows {person}|sold me this {noun}]?
    [Do you|Can you|Will you] [deliver to {city}|accept cards|speak English|repair {nouns}|know {person}|take {nouns} back|allow {nouns}|open on Sunday]?
    [What do you think of|What is the best|Tell me about|What about|Any news about|Do you like] [{nouns}|{city}|{person}|the {noun}|the weather]?
    [Am I|Are children|Are dogs|Is my {noun}|Are {nouns}] allowed [here|inside|in the {noun}|to come]?
    [Hello, |Hi, |]I [have a question about|have a problem with|am calling about|want to return|want to change] [my {noun}|my order|the {noun}|a bill|the {nouns}][.|]
    [What|Which] [{noun}|size|color|room|dish] [do you recommend|should I take|is the best|fits me]?
    [Should I|Do I have to|Must I] [wait|pay now|call first|bring {nouns}|sign the {noun}|come to {city}]?
""")


def customer(rng: Random, split: Split) -> str:
    """What customers ask."""
    text = draw(lambda: grown(rng, rng.choice(CUSTOMER)), split, lambda one: f"customer {one}")
    return casual(rng, " ".join(text.split()))


def anything(rng: Random, split: Split) -> str:
    """Any turn of the user, those included that the model has no answer to."""
    form = rng.random()
    if form < 0.38:
        return customer(rng, split)
    if form < 0.53:
        return draw(lambda: kinds_beyond.request(rng, split), split, lambda text: f"beyond {text}")
    if form < 0.6:
        return draw(lambda: noise(rng), split, lambda text: f"unknown {text}")
    if form < 0.68:
        return draw(lambda: strange_question(rng), split, lambda text: f"unknown {text}")
    if form < 0.73:
        return personas.name_question(rng, split)
    return any_turn(rng, split)[0]


def prompted(rng: Random, key: list[str], *, ordered: bool = False) -> str:
    """A prompt with the rules, alone or among other sentences, as a list more often than elsewhere."""
    if rng.random() < 0.2:
        sentences = [*neutrals(rng, 0, 2), *key, *(neutrals(rng, 0, 1) if not ordered else [])]
        if not ordered:
            rng.shuffle(sentences)
        start = rng.choice(("Rules:\n", "Follow these rules:\n", "You are a helpful assistant.\n\n", "Instructions:\n", "",
                            "# Rules\n\n", "You are an assistant. Rules:\n", "Your rules are:\n"))  # fmt: skip
        return start + listing(rng, sentences)
    return composed(rng, key, key, ordered=ordered)


def styled(rules: list[Rule], text: str) -> str:
    """The text after all rules."""
    for rule in rules:
        text = rule.style(text)
    return text


@kind("open", "The system prompt has a rule for my answers.", weight=4, standalone=True)
def system_style_any(rng: Random, split: Split) -> Dialogue:
    """Words before or after the answer, or its letter case, for any turn of the user; the later of two rules counts."""
    form = rng.random()
    ordered = False
    if form < 0.52:
        rules = [affix_rule(rng, split)]
    elif form < 0.8:
        rules = [case_rule(rng, split, upper=rng.random() < 0.65)]
    elif form < 0.86:
        rules = [affix_rule(rng, split, starts=True), affix_rule(rng, split, starts=False)]
    elif form < 0.91:
        rules = [affix_rule(rng, split), case_rule(rng, split, upper=rng.random() < 0.65)]
    else:
        starts, ordered = rng.random() < 0.5, True
        rules = [affix_rule(rng, split, starts=starts), affix_rule(rng, split, starts=starts)]
    key = [rule.sentence for rule in rules]
    asked, answers = any_turn(rng, split)
    if ordered:
        key, rules = [key[0], corrected(rng, key[1])], rules[1:]
    elif rng.random() < 0.12:
        name = fresh(rng, split)[0]
        key.append(personas.told(rng, split, personas.NAMED, n=name))
        asked, answers = personas.name_question(rng, split), (f"My name is {name}.",)
    prompt = prompted(rng, key, ordered=ordered)
    return met(
        rng, split, prompt, asked, *(styled(rules, one) for one in answers), style=lambda one: styled(rules, one)
    )


@kind("open", "I answer with one word.", weight=0.7, standalone=True)
def system_one_word(rng: Random, split: Split) -> Dialogue:
    """One word for a fact, a sum, a text or a greeting."""
    key, form = [rng.choice(in_split(ONE_WORD_FORMS, split, "one word"))], rng.random()
    if form < 0.35:
        asked, answers = computed(rng, split)
        answers = tuple(one.rpartition("= ")[2].rstrip(".") for one in answers)
    elif form < 0.6:
        asked, answers = copied(rng, split, one_word=True)
    elif form < 0.75:
        asked, answers = varied(rng, canned.GREETINGS[:16]), ("Hello!",)
    else:
        question = fact_question(rng, split)
        asked, answers = question.text, (question.short,)
    if rng.random() < 0.1:
        loud = case_rule(rng, split, upper=True)
        key, answers = [*key, loud.sentence], tuple(map(loud.style, answers))
    return Dialogue((system(prompted(rng, key)), user(asked)), answers)


@kind("open", "I must always say the same.", weight=1.6, standalone=True)
def system_fixed(rng: Random, split: Split) -> Dialogue:
    """The same answer to whatever the user says; a later answer replaces it."""
    rule = fixed_rule(rng, split)
    asked = anything(rng, split)
    if rng.random() < 0.2:
        old = fixed_rule(rng, split)
        mark = rng.choice(("This has changed. ", "That has changed. ", "This changed today. ", "That was yesterday. ", "New: ",
                           "", "", "", ""))  # fmt: skip
        later = mark + rule.sentence if mark else corrected(rng, rule.sentence)
        return met(
            rng, split, prompted(rng, [old.sentence, later], ordered=True), asked, rule.style(""), style=rule.style
        )
    key = [rule.sentence]
    if rng.random() < 0.15:
        key.append(personas.told(rng, split, personas.WITH_ROLE, r=fresh(rng, split)[1]))
    return met(rng, split, prompted(rng, key), asked, rule.style(""), style=rule.style)


THINGS: Final = wordlists.listed(
    """boat ship dog cat horse dragon shop castle train car owner village sword planet robot parrot company house island
    restaurant hotel wife husband brother sister book band truck plane spaceship camel garden tower king captain crew"""
)
PEOPLE_THINGS: Final = wordlists.listed("dog cat horse dragon owner parrot wife husband brother sister robot camel")
LIVED: Final = wordlists.listed("boat ship train castle house island planet spaceship tower village truck")
THING_FORMS: Final = wordings("""
    Your {t} is [called|named] {n}
    [Your {t}'s name|The name of your {t}] is {n}
    You [have|own] a {t} [called|named] {n}
    You have a {t}, {n}
    {n} is your {t}
    Your {t}: {n}
""")
LIVED_FORMS: Final = wordings("""
    You [live|work|were born] on the {t} {n}
    You [live|work] on a {t} [called|named] {n}
    Your home is the {t} {n}
""")
THING_QUESTIONS: Final = wordings("""
    [what is|what's|whats|tell me|do you know|and what is|so what's] the name of your {t}[?|]
    [what is|what's|and what is|how is] your {t} called?
    [what's|what is] your {t}'s name?
    does your {t} have a name?
    [tell|give] me your {t}'s name
    what do you call your {t}?
    [which|what] name does your {t} have?
    [you have a {t}, right? What is it called|I heard of your {t}, what is it called|what was your {t} called again]?
""")
HOME_FORMS: Final = wordings("""
    You [come from|are from|were born in|grew up in] {n}
    Your [home town|hometown|home|birthplace] is {n}
    [Home town|Home|Hometown|Birthplace]: {n}
    {n} is your home town
""")
COUNTRY_FORMS: Final = wordings("""
    You [come from|are from|were born in|grew up in|are a citizen of] {n}
    Your home[| country] is {n}
    [Home|Country|Home country]: {n}
""")
HOME_QUESTIONS: Final = wordings("""
    [where|and where|so where|where exactly] are you from?
    [where|and where] do you come from?
    [what is|what's] your [home town|hometown|birthplace]?
    [which|what] place are you from?
    [tell|please tell] me where you are from
    where [were you born|did you grow up|is your home]?
    [where r u from|where u from|where are u from][?|]
""")


@kind("open", "The system prompt tells this of me.", weight=1.3, standalone=True)
def system_home(rng: Random, split: Split) -> Dialogue:
    """Where the assistant is from, or what a thing or a person of its life is called."""
    name, role, place = fresh(rng, split)
    if rng.random() < 0.4:
        country = rng.random() < 0.35
        value = draw(
            lambda: rng.choice(list(CAPITALS)) if country else values.city(rng), split, lambda one: f"home {one}"
        )
        key = personas.told(rng, split, COUNTRY_FORMS if country else HOME_FORMS, n=value)
        answer = f"I am from {value}."
        asked = personas.asked(rng, split, HOME_QUESTIONS, "asked home")
    else:
        thing = rng.choice(THINGS) if rng.random() < 0.8 else grown(rng, "{noun}")
        value = draw(lambda: personas.name(rng) if rng.random() < 0.4 else wordlists.made_up_word(rng).capitalize(), split,
                     lambda one: f"thing {one}")  # fmt: skip
        forms = LIVED_FORMS if thing in LIVED and rng.random() < 0.4 else THING_FORMS
        key = rng.choice(in_split(forms, split, "told thing")).replace("{t}", thing).replace("{n}", value)
        answer = f"My {thing} is called {value}."
        asked = personas.asked(rng, split, THING_QUESTIONS, "asked thing").replace("{t}", thing)
    keys = [key]
    form = rng.random()
    if form < 0.35:
        keys.insert(0, personas.told(rng, split, personas.WITH_ROLE, r=role))
        asked = personas.addressed(rng, asked, role)
    elif form < 0.6:
        keys.insert(0, personas.told(rng, split, personas.WITH_BOTH, n=name, r=role))
        asked = personas.addressed(rng, asked, role, name)
    elif form < 0.75:
        keys.insert(0, personas.told(rng, split, personas.NAMED[:10], n=name))
        asked = personas.addressed(rng, asked, name)
    facts = other_facts(rng, split) if rng.random() < 0.4 else []
    facts = [one for one in facts if not one.answer.startswith(("Your ", "You ", "We are based"))]
    return met(rng, split, with_facts(rng, keys, facts, [name, role, place, value]), asked, answer)
