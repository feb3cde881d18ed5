"""Kinds that follow a system prompt, and turns that refer to earlier ones."""

from random import Random
from typing import Final

from training import canned, kinds_facts, personas, values, wordlists
from training.functions import spoken, text_value
from training.kinds_chat import varied
from training.kinds_copy import PLACES, fresh_list
from training.kinds_lookup import FIELD_FORMS, fields, laid_out
from training.registry import (
    Dialogue,
    Split,
    ask,
    assistant,
    draw,
    in_split,
    kind,
    lines,
    loose,
    one_of,
    system,
    user,
    wordings,
)

GREETINGS: Final = {
    "French": "Bonjour ! Comment puis-je vous aider ?", "German": "Hallo! Wie kann ich Ihnen helfen?",
    "Spanish": "¡Hola! ¿En qué puedo ayudarle?", "Italian": "Ciao! Come posso aiutarla?",
    "Portuguese": "Olá! Como posso ajudar?", "Dutch": "Hallo! Hoe kan ik u helpen?",
    "Polish": "Cześć! Jak mogę pomóc?", "Swedish": "Hej! Hur kan jag hjälpa till?",
    "English": "Hello! How can I help you?", "Danish": "Hej! Hvad kan jeg hjælpe med?",
    "Finnish": "Hei! Miten voin auttaa?", "Turkish": "Merhaba! Nasıl yardımcı olabilirim?",
    "Japanese": "こんにちは！ご用件は何でしょうか。", "Latin": "Salve! Quomodo te adiuvare possum?",
}  # fmt: skip
LANGUAGE_RULES: Final = lines("""
    Answer in {l}.
    Always answer in {l}.
    You speak only {l}.
    You are a helpful assistant. Reply in {l}.
    Greet the user in {l}.
    Speak {l}.
    Use {l} in all answers.
    You are an assistant who answers in {l}.
    The user wants answers in {l}.
    Write in {l}.
    Respond in {l}, please.
    Your language is {l}.
    All replies must be in {l}.
    Talk to the user in {l}.
""")
PERSONAS: Final = lines("""
    You are {n}, {ar} at {p}.
    You are {n}, the {r} of {p}.
    Your name is {n}. You work as {ar} for {p}.
    Act as {n}, {ar} from {p}.
    You are {ar} called {n} who works at {p}.
    Play {n}, the {r} of {p}.
    You are the {r} {n}. You work at {p}.
    Name: {n}. Job: {r}. Employer: {p}.
""")
EARLIER_FORMS: Final = wordings("""
    [What|Which] was the {p} [one|item|thing|entry]?
    [Tell me|Say|Repeat|Give me] the {p} [one|item|of them|of my list][ again|, please|][.|]
    [And the|What about the|The] {p}[ one| item|]?
    [What|Which one] did I [name|say|list|mention] {p}?
    [Which|What] [came|was|is] {p} [in my list|in the list|on my list]?
""")
TOLD_FORMS: Final = wordings("""
    [What|Which] [is|was] the {f}[?| again?]
    Which {f} did I [give|tell|name|mention][ you|]?
    [Tell me|Say|Repeat|Remind me of|Give me] the {f}[ again|, please|][.|]
    The {f}?
    What did I say [the {f} is|about the {f}]?
    Do you [remember|know|have|still know] the {f}?
""")
ALWAYS_FORMS: Final = wordings(
    """
    [Answer|Reply to|Respond to] [every question|everything|every message|all questions] with ["{t}"|{t}][.|]
    Whatever the user [says|asks|wants|writes], [answer|say|reply|respond] ["{t}"|{t}][.|]
    [Always|Only|Just] [say|answer|reply|respond]: {t}
    Your only [answer|reply|response|words] [is|are] "{t}".
    Say [nothing but|only|just] {t}
    If [somebody|someone|anybody|a customer] [asks anything|asks something|writes anything], [say|answer] ["{t}"|{t}]
    If [people|users|customers] ask [anything|something], [say|reply with] ["{t}"|{t}]
    [Only|You may only|You can only] ever [answer|reply|respond] with ["{t}"|: {t}]
    To [every|each|any] [question|message|request] [reply|answer|say|respond]: {t}
    [No matter|Regardless of] what [is asked|the user says|you are asked|comes], [answer|say|reply] "{t}"
    [Your answer|The answer|Your reply] to [everything|all questions|each message] is [|always ]"{t}"
    [Give|Use|Repeat] the same [answer|reply] [to everyone|every time|to all]: "{t}"
""".replace("If people asks", "If people ask")
)
LOUD_FORMS: Final = wordings("""
    [Write|Say|Put|Type] everything in {c} letters[.|]
    [Always|Only|You must|Please] [answer|reply|respond|write] in {c} letters[.| only.|]
    [Answer|Reply|Respond] in {c} letters[.| only.| always.]
    Use [only |]{c} letters[, always|].
    Your [answers|replies] are in {c} letters.
    You are a helpful assistant who [writes|answers|replies] in {c} letters.
""")


HELLOS: Final = wordings("""
    [hi|hello|hey|hello there|hi there|good morning|good evening|good afternoon|good day|hey there|greetings|howdy][,|!|.|] [how are you?|how are you today?|can you help me?|can you help me please?|nice to meet you|nice to meet you!|is anyone there?|I have a question|I need some help|could you help me?|are you there?|how is it going?|how do you do?|glad to meet you|I'm new here|my friend|what's up?|who is there?|hope you are well|pleased to meet you|I need your help]
""")


def greeting(rng: Random) -> str:
    """A greeting, alone or with a few more words of politeness."""
    return varied(rng, HELLOS if rng.random() < 0.5 else canned.GREETINGS[:16])


@kind("closed", "The system prompt names the language.", weight=1.5, standalone=True)
def greeting_language(rng: Random, split: Split) -> Dialogue:
    """A greeting in the language that the system prompt or the user names."""
    language = rng.choice(list(GREETINGS))
    if rng.random() < 0.3:
        forms = ("Greet me in {l}.", "Say hello in {l}.", "Say hi in {l}", "Hello in {l}, please.",
                 "Greet the user in {l}.",
                 "How do you say hello in {l}?", "Welcome me in {l}.")  # fmt: skip
        return ask(loose(rng, one_of(rng, in_split(forms, split, "greet"), l=language)), GREETINGS[language])
    rule = one_of(rng, in_split(LANGUAGE_RULES, split, "language"), l=language)
    return Dialogue((system(rule), user(greeting(rng))), (GREETINGS[language],))


@kind("open", "The system prompt says who I am.", weight=2.5, standalone=True)
def persona(rng: Random, split: Split) -> Dialogue:
    """The name, job or employer that the system prompt gives."""

    def make() -> tuple[str, str, str]:
        role = wordlists.noun(rng) if rng.random() < 0.5 else personas.role(rng)
        return values.person(rng), role, wordlists.made_up_word(rng).capitalize()

    name, role, place = draw(make, split, lambda one: f"persona {one}")
    a_role = personas.with_article(role)
    more = rng.choice(("", "", " Be brief.", " Be polite.", f" {wordlists.sentence(rng)}."))
    told = one_of(rng, in_split(PERSONAS, split, "persona"), n=name, r=role, ar=a_role, p=place) + more
    form = rng.random()
    if form < 0.35:
        asked, answer = personas.name_question(rng, split), f"My name is {name}."
    elif form < 0.45:
        asked, answer = personas.who_question(rng, split), personas.introduced(name, role)
    elif form < 0.75:
        asked, answer = rng.choice(("what is your job?", "what do you do for work?", "what are you by profession?",
                                    "which job do you have?", "what do you work as?")), f"I am {a_role}."  # fmt: skip
    else:
        asked, answer = rng.choice(("where do you work?", "who do you work for?", "who is your employer?",
                                    "which company do you work for?")), f"I work at {place}."  # fmt: skip
    asked = asked[0].upper() + asked[1:] if rng.random() < 0.7 else asked
    return Dialogue((system(told), user(asked)), (answer,))


@kind("open", "The system prompt has the answer.", weight=4, standalone=True)
def told_by_system(rng: Random, split: Split) -> Dialogue:
    """A field that the system prompt gives as data; a sentence of it would be answered with a sentence."""
    data = fields(rng, split, 1, 6)
    name = rng.choice(list(data))
    before = rng.choice(("You are a helpful assistant. ", "", "Use this data:\n", "Facts:\n", "Context: ",
                         "The user's data:\n", "You know this: "))  # fmt: skip
    wish = rng.choice(in_split(FIELD_FORMS, split, "field")).replace("{f}", spoken(name))
    return Dialogue((system(before + laid_out(rng, data, sentences=False)), user(wish)), (data[name],))


@kind("open", "I must answer in capital letters.", weight=4, standalone=True)
def loud_copy(rng: Random, split: Split) -> Dialogue:
    """A text in capital or small letters, as the system prompt asks."""
    text = draw(lambda: values.words(rng, 1, 7), split, lambda one: f"loud {one.lower()}")
    upper = rng.random() < 0.75
    called = rng.choice(("capital", "upper-case", "uppercase")) if upper else rng.choice(("small", "lower-case"))
    rule = one_of(rng, in_split(LOUD_FORMS, split, "loud"), c=called)
    asked = rng.choice(("Say: {t}", "Repeat: {t}", "Repeat after me: {t}", "Say {t}", "Echo {t}")).replace("{t}", text)
    return Dialogue((system(rule), user(asked)), (text.upper() if upper else text.lower(),))


@kind("open", "I must always say the same.", weight=1, standalone=True)
def fixed_answer(rng: Random, split: Split) -> Dialogue:
    """A text that the system prompt orders for every question, or for one."""
    text = draw(lambda: values.words(rng, 1, 5), split, lambda one: f"always {one}")
    question = kinds_facts.any_question(rng).text
    return Dialogue(
        (system(rng.choice(in_split(ALWAYS_FORMS, split, "always")).replace("{t}", text)), user(question)), (text,)
    )


CHANGES: Final = {
    "upper": ("Now in capital letters.", "Make that upper case.", "The same in capitals, please.", "Shout it.",
              "In uppercase, please.", "Write that in capital letters.", "Again, in all caps."),
    "lower": ("Now in small letters.", "Make that lower case.", "The same in lowercase, please.",
              "Write that in small letters."),
    "reverse": ("Now the other way round.", "Reverse that.", "Backwards, please.", "Now in reverse order.",
                "The words in reverse order, please."),
    "again": ("Say that again.", "Once more, please.", "Repeat your last answer.", "Again.", "Repeat that."),
    "first": ("Only the first word.", "What was the first word?", "The first word of that, please."),
    "last": ("Only the last word.", "What was the last word?", "The last word of that, please."),
}  # fmt: skip


@kind("open", "The user means my last answer.", weight=5)
def change_answer(rng: Random, split: Split) -> Dialogue:
    """The last answer once more, in another form."""
    text = draw(
        lambda: " ".join(wordlists.word(rng) for _ in range(rng.randint(2, 7))), split, lambda one: f"last {one}"
    )
    change = rng.choice(list(CHANGES))
    words = text.split(" ")
    answer = {"upper": text.upper(), "lower": text.lower(), "reverse": " ".join(reversed(words)), "again": text,
              "first": words[0], "last": words[-1]}[change]  # fmt: skip
    shown = text.upper() if change == "lower" else text
    asked = rng.choice(("Say: {t}", "Repeat: {t}", "Repeat after me: {t}", "Echo this: {t}", "Copy: {t}"))
    wish = rng.choice(in_split(CHANGES[change], split, "change"))
    return Dialogue((user(asked.replace("{t}", shown)), assistant(shown), user(wish)), (answer,))


@kind("open", "The user means the list from before.", weight=2.5)
def earlier_list(rng: Random, split: Split) -> Dialogue:
    """An item of a list that was told some turns ago."""
    items = fresh_list(rng, split, 2, 6)
    told = rng.choice(("My list: {l}", "I have these: {l}", "Remember: {l}", "Here are my things: {l}.", "Note: {l}"))
    turns = [
        user(told.replace("{l}", ", ".join(items))),
        assistant(rng.choice(("OK.", "Noted.", "I will remember that."))),
    ]
    for _ in range(rng.choice((0, 0, 1, 2))):
        question = kinds_facts.any_question(rng)
        turns += [user(question.text), assistant(question.full)]
    place = rng.randrange(len(items))
    name = "last" if place + 1 == len(items) and rng.random() < 0.5 else PLACES[place]
    return Dialogue((*turns, user(one_of(rng, in_split(EARLIER_FORMS, split, "earlier"), p=name))), (items[place],))


@kind("open", "The user told me this before.", weight=2.5)
def earlier_field(rng: Random, split: Split) -> Dialogue:
    """One of several values that were told in turns of their own; a later value takes an earlier one's place."""
    data = fields(rng, split, 1, 4)
    turns = []
    for name, value in data.items():
        told = rng.choice(("The {f} is {v}.", "My {f} is {v}.", "{f}: {v}", "Our {f} is {v}", "Set the {f} to {v}."))
        turns += [user(told.replace("{f}", spoken(name)).replace("{v}", value)),
                  assistant(rng.choice(("OK.", "Noted.", "Got it.")))]  # fmt: skip
    name = rng.choice(list(data))
    if rng.random() < 0.25:
        data[name] = text_value(rng, name)
        changed = rng.choice(
            ("No, the {f} is {v}.", "The {f} is {v} now.", "Change the {f} to {v}.", "Sorry, the {f} is {v}.")
        )
        turns += [user(changed.replace("{f}", spoken(name)).replace("{v}", data[name])), assistant("OK.")]
    asked = rng.choice(in_split(TOLD_FORMS, split, "told")).replace("{f}", spoken(name))
    return Dialogue((*turns, user(loose(rng, asked))), (data[name],))
