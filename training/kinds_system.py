"""Kinds whose system prompt says several things, of which one matters or none."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from training import canned, functions, kinds_facts, personas, values, wordlists
from training.catalogue import known_use
from training.kinds_chat import varied
from training.kinds_facts import Question
from training.kinds_rules import ALWAYS_FORMS, GREETINGS, LANGUAGE_RULES, LOUD_FORMS, greeting
from training.registry import Dialogue, Split, apart, assistant, draw, in_split, kind, lines, system, user, wordings
from training.system_facts import CALM_TOPICS, PLACELESS_TOPICS, QUIET_TOPICS, TOPICS, USER, Told, Topic, fact, several
from training.system_prompts import company, composed, grown, neutral
from training.wordlists import listed

Restyle = Callable[[str], str]
Messages = tuple[dict[str, str], ...]


def same(text: str) -> str:
    """The text as it is."""
    return text


def exchange(rng: Random, style: Restyle = same, *, facts_only: bool = False) -> Messages:
    """A question that the system prompt does not answer, and the answer in the style that it asks for."""
    if not facts_only and rng.random() < 0.4:
        said, replies = rng.choice(((canned.GREETINGS[:16], canned.GREETING_ANSWERS),
                                    (canned.THANKS, canned.THANKS_ANSWERS)))  # fmt: skip
        return user(varied(rng, said)), assistant(style(rng.choice(replies)))
    question = kinds_facts.any_question(rng)
    return user(question.text), assistant(style(question.full))


def met(
    rng: Random, split: Split, prompt: str, asked: str, *answers: str, style: Restyle = same, facts_only: bool = False
) -> Dialogue:
    """The prompt and the question, now and then with an exchange or two between them and with tools of no use."""
    before: Messages = ()
    if rng.random() < 0.2:
        for _ in range(rng.choice((1, 1, 2))):
            before += exchange(rng, style, facts_only=facts_only)
    made = Dialogue((system(prompt), *before, user(asked)), answers)
    return made if rng.random() > 0.07 else replace(made, tools=unrelated_tools(rng, split))


def unrelated_tools(rng: Random, split: Split) -> tuple[dict[str, Any], ...]:
    """One to four functions that have nothing to do with the dialogue."""
    uses = [
        known_use(rng, split) if rng.random() < 0.4 else functions.use_of(rng, split, functions.intent(rng, split))
        for _ in range(rng.randint(1, 4))
    ]
    return tuple({use.name: use.function for use in uses}.values())


def fresh(rng: Random, split: Split) -> tuple[str, str, str]:
    """A name, a role and an employer of the split."""
    return (
        draw(lambda: personas.name(rng), split, lambda one: f"name {one}"),
        draw(lambda: personas.role(rng), split, lambda one: f"role {one}"),
        draw(lambda: company(rng), split, lambda one: f"company {one}"),
    )


def other_facts(rng: Random, split: Split, topics: tuple[Topic, ...] = QUIET_TOPICS) -> list[Told]:
    """Facts that the prompt tells now and then and that are not asked for, the user's name above all."""
    form = rng.random()
    if form < 0.1:
        return [fact(rng, split, USER)]
    return several(rng, split, topics, 1, 2) if form < 0.3 else []


def with_facts(rng: Random, key: list[str], facts: list[Told], keep: list[str]) -> str:
    """A composed prompt with sentences that matter and with facts."""
    told = [one.statement for one in facts]
    return composed(rng, [*key, *told], [*keep, *(value for one in facts for value in one.values)])


@kind("open", "The system prompt may give me a name.", weight=4.5, standalone=True)
def system_name(rng: Random, split: Split) -> Dialogue:
    """The name of the assistant, among other sentences or nowhere in them."""
    name, role, place = fresh(rng, split)
    form = rng.random()
    facts = other_facts(rng, split)
    if form < 0.45:
        key = personas.told(rng, split, personas.NAMED, n=name)
        if rng.random() < 0.06 and not key.startswith(("You are", "Act", "Play", "I want")):
            key, name = key.replace(name, name.lower()), name.lower()
        answer = f"My name is {name}."
    elif form < 0.57:
        key, answer = personas.told(rng, split, personas.WITH_BOTH, n=name, r=role), f"My name is {name}."
    elif form < 0.62:
        name, key = personas.model_start(rng)
        answer = f"My name is {name}."
    else:
        forms = personas.WITH_ROLE if rng.random() < 0.7 else personas.WITH_PLACE
        key = personas.told(rng, split, forms, r=role, p=place) if rng.random() < 0.5 else ""
        answer = canned.NAME_ANSWER
    prompt = with_facts(rng, [key] if key else [], facts, [name, role, place])
    asked = personas.addressed(rng, personas.name_question(rng, split), role if role in prompt else "")
    return met(rng, split, prompt, asked, answer)


@kind("open", "The system prompt may say who I am.", weight=3.5, standalone=True)
def system_who(rng: Random, split: Split) -> Dialogue:
    """Who the assistant is, from a prompt with a name, a role, both or neither."""
    name, role, place = fresh(rng, split)
    form = rng.random()
    keys: list[str] = []
    if form < 0.3:
        name = ""
        forms = personas.WITH_ROLE if rng.random() < 0.8 else personas.WITH_PLACE[:8]
        keys = [personas.told(rng, split, forms, r=role, p=place)]
    elif form < 0.5:
        if rng.random() < 0.6:
            keys = [personas.told(rng, split, personas.WITH_BOTH, n=name, r=role)]
        else:
            keys = [personas.told(rng, split, personas.NAMED[:10], n=name),
                    personas.told(rng, split, personas.WITH_ROLE, r=role)]  # fmt: skip
    elif form < 0.7:
        role = ""
        keys = [personas.told(rng, split, personas.NAMED, n=name)]
    else:
        name = role = ""
    prompt = with_facts(rng, keys, other_facts(rng, split), [one for one in (name, role, place) if one])
    answer = personas.introduced(name, role)
    asked = personas.who_question(rng, split)
    if role and rng.random() < 0.3:
        asked = personas.asked(rng, split, personas.WHAT_ROLE, "asked what")
    elif not name and not role and rng.random() < 0.2:
        asked, answer = varied(rng, canned.WHAT_QUESTIONS), canned.WHAT_ANSWER
    return met(rng, split, prompt, personas.addressed(rng, asked, name, role), answer)


TASK_FORMS: Final = lines("""
    Your {w} is to {t}
    Your {w}: {t}
    Your [only|main|most important] {w} is to {t}
""")
TASK_WORDS: Final = ("task", "job", "goal", "mission", "purpose", "aim", "duty", "assignment")
TASK_QUESTIONS: Final = wordings(
    """
    [what|and what|what exactly] is your {w}?
    what's your {w}?
    [tell|please tell] me your {w}
    [do you have|do you know] your {w}?
    [which|what] {w} [do you have|were you given|did you get]?
    [can|could] you tell me your {w}?
    [describe|name|explain] your {w}
""".replace("[do you have|do you know] your", "do you know your")
)


@kind("open", "The system prompt says what I do.", weight=3, standalone=True)
def system_job(rng: Random, split: Split) -> Dialogue:
    """The job, employer or task of the assistant."""
    name, role, place = fresh(rng, split)
    form = rng.random()
    both: list[str] = []
    if form < 0.58:
        forms = rng.choice((personas.WITH_ROLE, personas.WITH_ROLE, personas.WITH_BOTH, personas.WITH_PLACE[:8]))
        key, answer = personas.told(rng, split, forms, n=name, r=role, p=place), f"I am {personas.with_article(role)}."
        asked = personas.asked(rng, split, personas.JOB_QUESTIONS, "asked job")
        asked = personas.addressed(rng, asked, role)
        both = [personas.told(rng, split, personas.NAMED[:10], n=name)] if rng.random() < 0.2 else []
    elif form < 0.82:
        key, answer = personas.told(rng, split, personas.WITH_PLACE, r=role, p=place), f"I work at {place}."
        asked = personas.asked(rng, split, personas.PLACE_QUESTIONS, "asked place")
        both = [personas.told(rng, split, personas.NAMED[:10], n=name)] if rng.random() < 0.3 else []
    else:
        task = draw(lambda: grown(rng, "{purpose}"), split, lambda one: f"task {one}")
        word = rng.choice(TASK_WORDS)
        key, answer = grown(rng, rng.choice(TASK_FORMS), {"w": word, "t": task}), f"My {word} is to {task}."
        asked = personas.asked(rng, split, TASK_QUESTIONS, "asked task").replace("{w}", word)
        if word != "job" and rng.random() < 0.3:
            both = [personas.told(rng, split, personas.WITH_ROLE, r=role)]
    prompt = with_facts(rng, [key, *both], other_facts(rng, split, PLACELESS_TOPICS), [name, role, place])
    return met(rng, split, prompt, asked, answer)


@dataclass(frozen=True)
class Rule:
    """A rule that the model can follow, as a sentence, with what it does to a full answer."""

    sentence: str
    style: Restyle


CASE_FORMS: Final = (*LOUD_FORMS, *wordings("""
    [Every answer|Every reply|All answers|All text|Each word|Everything you write|Everything] [must be|has to be|should be|is] in {c} letters
    [Answer|Write|Speak|Type|Reply] [only|always] in {c} letters
"""))  # fmt: skip
CAPS_FORMS: Final = wordings("""
    [Write|Answer|Reply|Respond|Speak|Type] [|only |always ]in [all caps|ALL CAPS|uppercase|upper case|capitals|block capitals]
    [USE CAPITAL LETTERS|ANSWER IN CAPITAL LETTERS|Shout every answer|Shout|Caps lock is on|Use all caps|Use uppercase only]
    [Every answer|Every reply|All answers|Everything you say|Your answers] must be in [all caps|uppercase|capitals]
""")  # fmt: skip
SMALL_FORMS: Final = wordings("""
    [Write|Answer|Reply|Respond|Speak|Type] [|only |always ]in [lowercase|lower case|all lowercase]
    [Never use capital letters|Do not use capital letters|No capital letters|Use lowercase only|Use no capitals]
    [Every answer|Every reply|All answers|Everything you say|Your answers] must be in [lowercase|lower case|small letters]
""")  # fmt: skip
START_FORMS: Final = wordings("""
    [Start|Begin|Open] [every|each] [answer|reply|message|response|sentence] with ["{t}"|"{t}"|the words "{t}"|{t}]
    [Start|Begin] [your answers|all replies|all answers] with ["{t}"|{t}]
    [Always|You must|Please] [start|begin] with ["{t}"|"{t}"|{t}]
    [Every|Each] [answer|reply|response] [starts|begins|must start|must begin] with "{t}"
    [Say|Put|Write] "{t}" [before every answer|at the start of every reply|at the beginning of each answer|first in every answer]
    [Your|All your|All] [answers|replies] [begin|start|open] with ["{t}"|"{t}"|{t}]
    The first {w} of [each|every] [answer|reply|message] [{is}|must be] ["{t}"|{t}]
    [Greet with|Lead with|Open with|Always begin by saying|Before you answer, say] ["{t}"|{t}]
    [Never forget|Remember] to [start|begin] with ["{t}"|{t}]
    Prefix [every|each] [answer|reply] with ["{t}"|{t}]
""")  # fmt: skip
END_FORMS: Final = wordings("""
    [End|Finish|Close] [every|each] [answer|reply|message|response] with ["{t}"|"{t}"|the words "{t}"|{t}]
    [End|Finish] [your answers|all replies|all answers] with ["{t}"|{t}]
    [Always|You must|Please] [end|finish] with ["{t}"|"{t}"|{t}]
    [Every|Each] [answer|reply|response] [ends|finishes|must end|must finish] with "{t}"
    [Say|Put|Write] "{t}" [after every answer|at the end of every reply|at the end of each answer|last in every answer]
    [Your|All your|All] [answers|replies] [end|finish|close] with ["{t}"|"{t}"|{t}]
    The last {w} of [each|every] [answer|reply|message] [{is}|must be] ["{t}"|{t}]
    [Sign off|Sign off|Sign off every reply|Sign all answers|Close|Always conclude] with ["{t}"|{t}|the words "{t}"]
    [Never forget|Remember] to [end|finish] with ["{t}"|{t}]
    [Append|Add] ["{t}"|{t}] to [every|each] [answer|reply]
    [After you answer|Having answered|At the end], say ["{t}"|{t}]
""")  # fmt: skip
ONE_WORD_FORMS: Final = wordings("""
    [Answer|Reply|Respond] [in|with|using] [one word|a single word|only one word|exactly one word|one word only]
    [Answers|Replies|All answers|Your answers] [are|must be] [one word|a single word|one word only]
    [Use|Say|Write|Give] [only one word|one word|a single word] [per answer|for every answer|in each reply]
    [One word|Single-word] answers only
    [Always|You must|Please] [answer|reply|respond] [in one word|with one word|with a single word]
""")


def case_rule(rng: Random, split: Split, *, upper: bool) -> Rule:
    """Capital or small letters."""
    if rng.random() < 0.5:
        called = ("capital", "upper-case", "uppercase") if upper else ("small", "lower-case", "lowercase")
        text = rng.choice(in_split(CASE_FORMS, split, "loud")).replace("{c}", rng.choice(called)).rstrip(".")
    else:
        text = rng.choice(in_split(CAPS_FORMS if upper else SMALL_FORMS, split, "loud"))
    return Rule(text, str.upper if upper else str.lower)


QUOTES: Final = ("'{}'", "'{}'", "“{}”", "`{}`", "*{}*", "<{}>", "«{}»", "‘{}’")
REAL_AFFIXES: Final = listed(
    """Cheers Ahoy Hello Greetings Regards Thanks Bye Goodbye Certainly Sure Indeed Howdy Amen Peace Enjoy Welcome Yes Hooray
    Sincerely Always Right Alright Well Listen Absolutely Honestly Bravo Voila Ciao Aloha Namaste Over"""
)
REAL_PHRASES: Final = wordings("""
    [Have a|Enjoy your|Wish you a] [nice|good|lovely|great] [day|evening|week|trip]
    [Kind|Best|Warm] [regards|wishes]
    [Thank you|Thanks] for [asking|calling|your message|your visit]
    [Dear|Hello|My dear] [friend|guest|customer|captain|sir]
    [See|Talk to] you [soon|later|tomorrow]
    [Over and out|At your service|Of course|No problem|With pleasure|Well met|Take care|So long|By the way|Good question|Here we go]
""")


def requoted(rng: Random, form: str) -> str:
    """The pattern, now and then with other quotation marks."""
    return form.replace('"{t}"', rng.choice(QUOTES).format("{t}")) if rng.random() < 0.3 else form


def affix(rng: Random) -> str:
    """A word or a few with a capital letter."""
    form = rng.random()
    if form < 0.2:
        return rng.choice(REAL_AFFIXES)
    if form < 0.4:
        return rng.choice(REAL_PHRASES)
    made = rng.choice((wordlists.word, wordlists.word, wordlists.made_up_word))
    return " ".join(made(rng) for _ in range(rng.choice((1, 1, 1, 2, 3, 4, 5)))).capitalize()


def affix_rule(rng: Random, split: Split, *, starts: bool | None = None) -> Rule:
    """A word or a few before or after every answer, with an exclamation mark if they have no mark."""
    said = draw(lambda: affix(rng), split, lambda one: f"affix {one}")
    if starts is None:
        starts = rng.random() < 0.5
    form = rng.choice(in_split(START_FORMS if starts else END_FORMS, split, "affix"))
    several_words = " " in said
    form = form.replace("{w}", "words" if several_words else "word").replace("{is}", "are" if several_words else "is")
    quoted = '"' in form
    shown = said = said if rng.random() < 0.9 else said.lower()
    if rng.random() < 0.55:
        shown = said = said + rng.choice("!!!." if quoted else "!")
    else:
        said += "!"
    text = requoted(rng, form).replace("{t}", shown)
    return Rule(text, (lambda answer: f"{said} {answer}") if starts else (lambda answer: f"{answer} {said}"))


def service_phrase(rng: Random) -> str:
    """A sentence of the service for customers."""
    return grown(
        rng, rng.choice(SERVICE_PHRASES), {"call": f"555-{rng.randint(0, 9999):04}", "mail": values.email(rng)}
    )


SERVICE_PHRASES: Final = lines("""
    We are [closed|closed today|sold out|on vacation|not open yet|closed on Mondays|out of {nouns}|moving to {city}|back soon].
    Please [call|dial|ring] {call}[| tomorrow| after lunch].
    [Ask|Please ask|Wait|Please wait|Pay|Sign in] at the [desk|counter|{noun}|front door|reception|office].
    Please [write to|contact] {mail}[| instead].
    [Please come|Come|Call|Try] [back|again] [tomorrow|later|next week|on Monday|in {number} minutes].
    [Talk to|Ask|See|Call] [{person}|the manager|my boss|your doctor|the {noun}][| about that| please].
    I [cannot|can't|may not] [help with that|say that|answer that|tell you|talk about {topic}].
    [I don't know|No comment|Not today|No|Yes|Out of order|I am busy|I am asleep|Read the manual|See our website|Nobody is here|The {noun} is {adjective}].
    [All lines are busy|Your call is important to us|An agent will help you soon|The service has ended|This chat is closed|We will call you back].
    [Access denied|Wrong number|Under construction|Maintenance|Error {number}|Status: {adjective}].
    Thank you[| for your message| for calling| for waiting], {person} will [answer|call you] soon.
""")


def fixed_rule(rng: Random, split: Split) -> Rule:
    """The same answer to everything."""
    phrase = rng.random() < 0.5
    said = draw(lambda: service_phrase(rng) if phrase else values.words(rng, 1, 5), split, lambda one: f"always {one}")
    form = rng.choice(in_split(ALWAYS_FORMS, split, "always"))
    quoted = '"{t}"' in form
    if quoted and phrase and rng.random() < 0.25:
        said = said.rstrip(".")
    text = requoted(rng, form).replace("with:", "with") if quoted else form.replace("with : ", "with: ")
    text = text.rstrip(".").replace("{t}", said)
    return Rule(text, lambda answer: said)


def fact_question(rng: Random, split: Split) -> Question:
    """A question of the tables."""
    return kinds_facts.wording(split, lambda: kinds_facts.any_question(rng))


COPIES: Final = ("Say: {t}", "Repeat: {t}", "Repeat after me: {t}", "Say {t}", "Echo {t}")


@kind("open", "The system prompt has a rule for my answers.", weight=4, standalone=True)
def system_style(rng: Random, split: Split) -> Dialogue:
    """A rule that can be followed, or two, among others."""
    form = rng.random()
    question = fact_question(rng, split)
    asked = question.text
    answers: tuple[str, ...] = (question.full,)
    facts_only = True
    if form < 0.4:
        rules = [case_rule(rng, split, upper=rng.random() < 0.7)]
        other = rng.random()
        facts_only = False
        if other < 0.25:
            asked, answers = varied(rng, canned.GREETINGS[:16]), canned.GREETING_ANSWERS
        elif other < 0.35:
            asked, answers = varied(rng, canned.THANKS), canned.THANKS_ANSWERS
        elif other < 0.5:
            text = draw(lambda: values.words(rng, 1, 7), split, lambda one: f"loud {one.lower()}")
            asked, answers = rng.choice(COPIES).replace("{t}", text), (text,)
    elif form < 0.55:
        return one_word(rng, split, question)
    elif form < 0.78:
        rules = [affix_rule(rng, split)]
    elif form < 0.9:
        rules = [fixed_rule(rng, split)]
    else:
        rules = [affix_rule(rng, split), case_rule(rng, split, upper=rng.random() < 0.7)]

    def style(text: str) -> str:
        for rule in rules:
            text = rule.style(text)
        return text

    key = [rule.sentence for rule in rules]
    if not facts_only and rng.random() < 0.15:
        name, role, _ = fresh(rng, split)
        key.append(personas.told(rng, split, personas.NAMED, n=name))
        asked, answers = personas.name_question(rng, split), (f"My name is {name}.",)
    elif rng.random() < 0.15:
        name, role, _ = fresh(rng, split)
        key.append(personas.told(rng, split, personas.WITH_ROLE, n=name, r=role))
    prompt = composed(rng, key, key)
    return met(rng, split, prompt, asked, *map(style, answers), style=style, facts_only=facts_only)


def one_word(rng: Random, split: Split, question: Question) -> Dialogue:
    """A fact in one word, now and then in capital letters."""
    rule = rng.choice(in_split(ONE_WORD_FORMS, split, "one word"))
    key, answer = [rule], question.short
    if rng.random() < 0.15:
        loud = case_rule(rng, split, upper=True)
        key, answer = [rule, loud.sentence], loud.style(answer)
    return Dialogue((system(composed(rng, key, key)), user(question.text)), (answer,))


@kind("open", "The system prompt tells this.", weight=7, standalone=True)
@apart
def system_fact(rng: Random, split: Split) -> Dialogue:
    """A fact that the prompt tells among rules and other facts."""
    facts = several(rng, split, TOPICS, 1, 6)
    prompt = with_facts(rng, [], facts, [])
    return met(rng, split, prompt, facts[0].question, facts[0].answer)


@kind("open", "The system prompt names the language.", weight=1.2, standalone=True)
def system_language(rng: Random, split: Split) -> Dialogue:
    """A greeting in the language that one of the sentences orders."""
    language = rng.choice(list(GREETINGS))
    prompt = composed(rng, [language_rule(rng, split, language)], list(GREETINGS))
    return Dialogue((system(prompt), user(greeting(rng))), (GREETINGS[language],))


MORE_LANGUAGE_RULES: Final = wordings("""
    [Answer|Reply|Respond|Write|Speak|Talk] [always|only|exclusively|to everyone] in {l}
    [Every answer|Every reply|The whole conversation|Everything you write] [is|must be|has to be] in {l}
    [The user|Our customers|The users|Everyone here] [speaks|understands|reads] only {l}
    [Your|The] language [is|must be|has to be] {l}
    [Use|Speak|Write] only {l}
    [Language|Answer language|Reply language]: {l}
    [Always|You must|Please] [speak|use|answer in|write in] {l}
""".replace("Our customers|The users|", ""))  # fmt: skip


def language_rule(rng: Random, split: Split, language: str) -> str:
    """A sentence that orders a language."""
    forms = in_split(rng.choice((LANGUAGE_RULES, MORE_LANGUAGE_RULES)), split, "language")
    return rng.choice(forms).replace("{l}", language).rstrip(".")


CHANGE_MARKS: Final = ("", "", "", "From now on: ", "Actually, ", "Ignore the above. ", "Correction: ", "New rule: ",
                       "Forget that. ", "No, ", "Update: ", "Ignore what was said before. ")  # fmt: skip
TAKEN_BACK: Final = wordings("""
    [Ignore|Forget|Drop|Disregard] [the above rules|all the rules above|everything above|all of that|the rules above]
    [That|The rule above|All of that|The above] [is no longer valid|no longer applies|does not count any more|was a mistake, ignore it]
""")  # fmt: skip


def taken_back(rng: Random, first: str, back: str) -> str:
    """A prompt with a rule, and a sentence that takes it back: behind it, or later if it says so."""
    if back.startswith(("Ignore", "Forget", "Drop", "Disregard")) and rng.random() < 0.5:
        return composed(rng, [first, back], [first, back], ordered=True)
    return composed(rng, [f"{first}. {back}"], [first, back])


def corrected(rng: Random, sentence: str) -> str:
    """The sentence after words that say that it replaces another."""
    mark = rng.choice(CHANGE_MARKS)
    return mark + (sentence[0].lower() + sentence[1:] if mark.endswith(", ") else sentence)


@kind("open", "The later rule counts.", weight=1.8, standalone=True)
@apart
def system_contradiction(rng: Random, split: Split) -> Dialogue:
    """Two sentences that contradict each other: the later one counts."""
    form = rng.random()
    answers: tuple[str, ...]
    if form < 0.35:
        forms, name, other = personas.NAMED, fresh(rng, split)[0], fresh(rng, split)[0]
        first, second = (personas.told(rng, split, forms, n=one) for one in (other, name))
        second = f"You are no longer {other}. {second}" if rng.random() < 0.15 else corrected(rng, second)
        asked, answers = personas.name_question(rng, split), (f"My name is {name}.",)
        keep = [name, other]
    elif form < 0.5:
        one, two = rng.sample(list(GREETINGS), 2)
        first, second = language_rule(rng, split, one), corrected(rng, language_rule(rng, split, two))
        asked, answers = greeting(rng), (GREETINGS[two],)
        keep = [one, two]
    else:
        question, upper = fact_question(rng, split), rng.random() < 0.5
        asked = question.text
        old, new = case_rule(rng, split, upper=upper), case_rule(rng, split, upper=not upper)
        if form < 0.7:
            old, new = fixed_rule(rng, split), fixed_rule(rng, split)
        first, second = old.sentence, corrected(rng, new.sentence)
        answers = (new.style(question.full),)
        if form > 0.85:
            back = rng.choice(in_split(TAKEN_BACK, split, "taken back"))
            return met(rng, split, taken_back(rng, first, back), asked, question.full, facts_only=True)
        keep = [first, second]
    return met(rng, split, composed(rng, [first, second], keep, ordered=True), asked, *answers, facts_only=True)


NEGATED: Final = wordings("""
    [Do not|Don't|Never] [answer|write|reply|respond] [in capital letters|in all caps|in uppercase|with one word|in French|in German|in Spanish|in verse]
    [Do not|Don't|Never] [shout|use all caps|start with a greeting|end with a question|say the same thing twice]
    Capital letters are [not allowed for whole words|for names only|fine for names]
    You may answer in [more than one word|full sentences|several sentences]
    You can [read|understand] [French|German|Spanish|Polish|capital letters]
""")  # fmt: skip


@kind("wording", "The rules do not change this answer.", weight=1.5, standalone=True)
@apart
def system_unchanged(rng: Random, split: Split) -> Dialogue:
    """A fact, a greeting or thanks, which nothing in the prompt changes."""
    key = [rng.choice(in_split(NEGATED, split, "negated"))] if rng.random() < 0.4 else []
    facts = several(rng, split, QUIET_TOPICS, 1, 3) if rng.random() < 0.4 else []
    prompt = with_facts(rng, key, facts, [])
    form = rng.random()
    if form < 0.7:
        question = fact_question(rng, split)
        return met(rng, split, prompt, question.text, question.full)
    said, replies = rng.choice(((canned.GREETINGS[:16], canned.GREETING_ANSWERS),
                                (canned.THANKS, canned.THANKS_ANSWERS),
                                (canned.MOOD_QUESTIONS, (canned.MOOD_ANSWER,))))  # fmt: skip
    return met(rng, split, prompt, varied(rng, said), *replies)


def around(rng: Random, *, plain: bool) -> str:
    """A prompt that changes nothing; a ``plain`` one gives no name, role, employer or fact."""
    key: list[str] = []
    keep: tuple[str, ...] = ()
    form = rng.random()
    if not plain and form < 0.3:
        key = [personas.persona_start(rng)]
    elif not plain and form < 0.35:
        key = [personas.model_start(rng)[1]]
    elif not plain and form < 0.45:
        told = fact(rng, Split.TRAIN, rng.choice(CALM_TOPICS))
        key, keep = [told.statement], told.values
    return composed(rng, key or [neutral(rng)], keep)
