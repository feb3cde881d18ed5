"""System prompts composed of sentences that change nothing, and of those that matter, in many layouts."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random
from typing import Final

from training import values, wordlists
from training.registry import lines
from training.wordlists import listed

Slot = Callable[[Random], str]


def in_commas(text: str) -> tuple[str, ...]:
    """Texts separated by commas, as a tuple."""
    return tuple(one.strip() for one in " ".join(text.split()).split(","))


def base_form(verb: str) -> str:
    """A verb without the ending of the third person."""
    if verb == "has":
        return "have"
    if verb.endswith("ies"):
        return verb[:-3] + "y"
    return verb[:-2] if verb.endswith(("ches", "shes")) else verb[:-1]


BASE_VERBS: Final = tuple(base_form(verb) for verb in wordlists.VERBS)
MANNERS: Final = listed(
    """accurate alert attentive brief bold calm careful caring casual charming cheerful clear clever concise confident
    consistent constructive cool cooperative creative critical curious detailed diplomatic direct dry easygoing
    elegant empathetic encouraging energetic enthusiastic exact factual fair firm formal frank friendly fun funny
    gentle gracious helpful honest humble impartial informal informative inspiring ironic jolly kind laconic lively
    logical loyal mature modest natural neutral nice objective open optimistic patient playful pleasant poetic
    polite positive practical precise professional quick quiet rational relaxed reliable respectful sarcastic
    sensible serious short silly simple sincere skeptical smart sober strict supportive tactful terse thorough
    thoughtful transparent truthful upbeat useful vivid warm welcoming wise witty"""
)
WAYS: Final = listed(
    """accurately briefly calmly carefully casually cheerfully clearly concisely directly exactly factually fairly
    firmly formally frankly gently gladly honestly kindly logically modestly naturally neutrally nicely objectively
    openly patiently plainly playfully politely positively precisely professionally promptly quickly quietly
    respectfully seriously simply sincerely thoroughly thoughtfully truthfully warmly wisely wittily"""
)
PEOPLE: Final = in_commas("""
    the user, users, customers, our customers, children, students, beginners, guests, visitors, patients,
    teachers, travelers, readers, players, developers, new members, older people, everyone, people in a hurry,
    parents, experts, clients, shoppers, employees, families
""")
TOPICS: Final = in_commas("""
    politics, religion, money, the weather, cooking, music, sports, homework, travel, health, history, math,
    science, gardening, movies, software, computers, legal matters, orders and returns, bills, books, art, old
    maps, train tickets, grammar, games, your own feelings, other companies, prices, these instructions
""")
AVOIDED: Final = listed(
    """jargon slang emojis markdown tables headings footnotes abbreviations acronyms filler clichés idioms sarcasm
    irony flattery hashtags exclamation-marks parentheses links quotes metaphors repetition apologies disclaimers
    ellipses nicknames swear-words buzzwords"""
)
BAD_DEEDS: Final = lines("""
    make things up
    lie
    guess
    swear
    invent facts
    break character
    reveal [this prompt|these instructions|your instructions|the system prompt]
    talk about {topic}
    mention {topic}
    joke about {topic}
    [give|offer] [legal|medical|financial|{adjective}] advice
    be [rude|unkind|bossy|mean|vague|{adjective}]
    share [personal data|private information|secrets|phone numbers]
    argue with {people}
    repeat yourself
    apologize too much
    use {avoided}
    {verb} [the|a|any] {noun}
    promise [anything|a refund|too much]
    ask [for passwords|more than one question|about {topic}]
    judge {people}
    pretend to [be human|know everything|{verb} {nouns}]
    interrupt {people}
    waste words
""")
DEEDS: Final = lines("""
    say so
    say that you don't know
    admit it
    ask for more details
    be honest about it
    explain why
    stay calm
    check twice
    refuse politely
    suggest [an alternative|a {noun}|something else]
    point to [the manual|the website|{topic}]
    {verb} the {noun}
    remain {manner}
    use your best judgment
    take your time
""")
CASES: Final = lines("""
    you are not sure
    you don't know something
    the question is [unclear|strange|{adjective}|too long|off topic]
    {people} [ask|want to know|complain] about {topic}
    there is no answer
    you make a mistake
    something [is missing|goes wrong|seems {adjective}]
    a request is [harmful|rude|impossible|{adjective}]
    a {noun} [is {adjective}|breaks|is lost]
    you need more information
    {person} calls
""")
PURPOSES: Final = lines("""
    help {people}[ with {topic}|]
    [answer|reply to] questions about {topic}
    explain {topic}[ to {people}|]
    make {people} [happy|feel welcome|smile|laugh]
    solve [problems|puzzles|tasks]
    give {manner} [advice|answers|explanations]
    [{verb}|{verb} and {verb}] {nouns}
    find [the best|a good|a {adjective}] {noun}[ for {people}|]
    [sell|rent|repair|describe|review|compare|test] {nouns}
    teach {people}[ about {topic}|]
    write [{adjective} |]{nouns}
    plan [trips|meals|meetings|parties|lessons]
    guide {people} through [{topic}|the {noun}]
    check [texts|code|facts|spelling|{nouns}]
    keep [notes|records|track of {nouns}]
""")
# Sentences that change no answer, without their end marks.
NEUTRAL: Final = lines("""
    [Be|Be|Be|Stay|Remain|Always be|Please be|Try to be|You must be|You should be] {manner}[| and {manner}|, {manner} and {manner}| at all times| with {people}| but {manner}| when you talk about {topic}]
    [Be|Be|Be|Stay|Remain|Always be|Please be|Try to be|You must be|You should be] {manner}[| and {manner}|, {manner} and {manner}| at all times| with {people}| but {manner}| when you talk about {topic}]
    [Be|Be|Stay|Please be|Always be] {manner}
    [Be|Be|Please be] {known_manner}
    [Be|Stay|Remain] [yourself|in character|on topic|on the subject|positive about {topic}|a good listener]
    [Keep|Make] [it|things|your answers|your replies|every answer|all replies|your tone|the conversation|sentences] {manner}[| and {manner}|, always| so that {people} understand]
    Keep [answers|it|replies|your answers|messages|responses] [short|brief|to the point|under {number} words|below {number} sentences|as short as possible]
    Keep [answers|it|replies|your answers|messages|responses] [short|brief|to the point|under {number} words|below {number} sentences|as short as possible]
    [Answer|Reply|Respond|Write|Speak|Help] {way}[| and {way}| to {people}|, please| whenever you can| and to the point]
    [Answer|Explain everything|Speak|Talk|Write] [like|as if you were] a [{adjective} |]{noun}
    [Answer|Respond|Reply] as {way} as [possible|you can]
    [Use|Choose|Prefer] [{adjective} words|{manner} language|{adjective} sentences|a {manner} tone|the active voice|plain language|everyday examples|simple words|short paragraphs|the metric system|examples with {nouns}]
    [Avoid|Do not use|Don't use|Never use|No|Stay away from|Leave out] [{avoided}|{avoided} and {avoided}|{adjective} words]
    [Never|Do not|Don't|You must not|You should never|You may not|Under no circumstances] {bad}[|| or {bad}]
    [If|When|Whenever|In case] {case}, {deed}
    Your [tone|style|voice|manner|attitude] is {manner}[| and {manner}]
    Your [tone|style|voice] [should|must] be {manner}[| but {manner}]
    You are [always |very |never |]{known_manner}[| and {manner}| to {people}]
    You [love|like|hate|enjoy|know a lot about|care about|are good at|know nothing about] [{topic}|{nouns}|{adjective} {nouns}]
    You [help|assist|support|advise|guide|work with] {people}[| with {topic}]
    You [can|may] use [tools|the tools|functions|the given tools|a calculator|{nouns}][| if needed| when they help| to {purpose}]
    [Only call|Call] a [function|tool] [if it is needed|when it is necessary|if the question needs one]
    [Think|Plan|Reason|Consider everything] [step by step|carefully|twice|{way}][| before you answer| first| before replying]
    [The audience is|You are talking to|Your readers are|You write for|Your users are|The readers are] {people}[| who like {nouns}| from {city}]
    [{People}|Most users|All visitors] [love|like|prefer|expect|want|hate|know|trust] [{manner} answers|{topic}|{nouns}|{company}|{person}|{city}]
    {person} [wrote|checks|made|reads|likes|approved|tests] [these rules|these instructions|the answers|all replies|this prompt|our {nouns}]
    Our [customers|guests|users|partners|{nouns}] [love|know|like|trust|visit] [{person}|{company}|{city}|our {nouns}]
    [Greet|Thank|Respect|Welcome|Encourage] {people}[| warmly| by name| with care]
    [Treat|Address] {people} with [respect|care|kindness|patience]
    [Always|Never|Please|Do not|You may|You should] {verb} [the|a|any|your] [{adjective} |]{noun}[| before lunch| when it rains| without asking| for {people}| in {city}]
    [Format|Write|Show] [dates|numbers|lists|prices|names|tables|code] {way}
    [Put|Place] [code|quotes|numbers|names] in [code blocks|the right order|context]
    [Double-check|Check|Verify] [your answers|facts|all numbers|names|the spelling|everything][| before you answer| twice]
    [Ask|Wait] [for permission|for confirmation] [before|when] [spending money|sharing data|buying {nouns}]
    [Follow|Remember|Obey|Respect] [the rules|these rules|all instructions|the law|the user's wishes|our values]
    [Safety|Honesty|Quality|Clarity|Speed|Privacy|{Noun}] [comes first|matters|is important|is everything]
    [Give|Offer|Provide] {manner} [answers|explanations|advice|examples|feedback][| to {people}| about {topic}]
    [Stick|Keep] to [the facts|the topic|the point|{topic}]
    [Respect|Protect] the [privacy|feelings|time|wishes] of {people}
    [Do not|Don't|Never] answer questions about [{topic}|{nouns}|{person}|{company}]
    [Knowledge cutoff|Training data]: [2023-10|2023-04|2024-06|20{number}|October 2023|early 2024|{number} months ago]
    [Mode|Style|Tone|Audience|Priority|Level|Format]: {manner}
    [{company}|Our {noun}|This {noun}|The {noun}] [is|was] {adjective}[| and {adjective}]
    [Have|Show] [fun|patience|humor|empathy|respect|a sense of humor|good manners]
    {boilerplate}
    {sentence}
""")  # fmt: skip
BOILERPLATE: Final = lines("""
    Answer as concisely as possible
    Answer the user's questions
    Answer the question to the best of your ability
    Help the user
    Help the user as well as you can
    Follow the instructions carefully
    Never make things up
    Do not hallucinate
    If you don't know the answer, just say that you don't know
    Use the following pieces of context to answer the question
    Take a deep breath
    Always be helpful and honest
    Your answers should not include any harmful content
    You can use tools
    You will be given a question
    You have access to a number of tools
    Be careful when executing tasks
    Aim to be as helpful as you can
    Respond to the user in a helpful way
    Do your best
    The conversation begins below
    Please ensure that your responses are unbiased
""")
PLAIN_STARTS: Final = lines("""
    You are a helpful assistant
    You are a helpful assistant
    You are a helpful assistant
    You are a helpful assistant
    You are a helpful assistant
    You are a helpful assistant
    You are a helpful AI assistant
    You are [a|our|the] {manner_c} [assistant|AI assistant|chatbot|AI|helper]
    You are a {manner_c} and {manner} [assistant|AI assistant|chatbot]
    You are an AI[| assistant| model| system]
    You are an assistant [for|who helps] {people}
    You are a chatbot[| for {people}| that helps {people}]
    Act as [a {manner_c} assistant|an assistant]
    This is a chat with {people}
    You will help {people}[| with {topic}]
    Assistant is {manner} and {manner}
""")


def either(*options: Sequence[str]) -> Slot:
    """A slot filled from one of several lists, each equally likely, whose entries may be patterns."""
    return lambda rng: grown(rng, rng.choice(rng.choice(options)))


def made_up(share: float, *options: Sequence[str], ending: str = "") -> Slot:
    """A slot filled from one of the lists, or with a made-up word."""
    known = either(*options)
    return lambda rng: wordlists.made_up_word(rng) + ending if rng.random() < share else known(rng)


def company(rng: Random) -> str:
    """The name of a company, made up."""
    name = wordlists.made_up_word(rng).capitalize()
    endings = ("", "", "", " Inc", " Bank", " Airlines", " Foods", " Labs", " Travel", " Hotel", " Media", " Group")
    return name + rng.choice(endings)


CONSONANT_MANNERS: Final = tuple(one for one in MANNERS if one[0] not in "aeiou" and one != "honest")
SLOTS: Final[dict[str, Slot]] = {
    "manner": made_up(0.08, MANNERS, MANNERS, wordlists.ADJECTIVES),
    "known_manner": either(MANNERS),
    "manner_c": made_up(0.08, CONSONANT_MANNERS),
    "adjective": made_up(0.08, wordlists.ADJECTIVES, CONSONANT_MANNERS),
    "way": made_up(0.08, WAYS, ending="ly"),
    "people": either(PEOPLE),
    "People": lambda rng: rng.choice(PEOPLE[1:]).capitalize(),
    "topic": lambda rng: wordlists.made_up_word(rng) if rng.random() < 0.1 else rng.choice(TOPICS),
    "avoided": lambda rng: rng.choice(AVOIDED).replace("-", " "),
    "bad": either(BAD_DEEDS),
    "deed": either(DEEDS),
    "case": either(CASES),
    "purpose": either(PURPOSES),
    "verb": made_up(0.1, BASE_VERBS),
    "noun": lambda rng: consonant_noun(rng),
    "Noun": lambda rng: consonant_noun(rng).capitalize(),
    "nouns": lambda rng: rng.choice(PLURALS) if rng.random() < 0.8 else wordlists.made_up_word(rng) + "s",
    "number": lambda rng: str(rng.randint(10, 90)),
    "person": values.person,
    "company": company,
    "city": values.city,
    "sentence": wordlists.sentence,
    "boilerplate": either(BOILERPLATE),
}
IRREGULAR: Final = listed(
    """child foot fish goose grass knife leaf mouse people person sheep tooth woman wolf bread butter cotton dinner
    earth food gold honey ice jelly lunch milk money music oil paper rain rice salt sand silver sky snow soap soup
    sugar summer sun tea water wood air fly family potato tomato city cherry berry baby body library party story
    butterfly"""
)
REGULAR_NOUNS: Final = tuple(one for one in wordlists.NOUNS if one not in IRREGULAR)
PLURALS: Final[tuple[str, ...]] = tuple(
    one + ("es" if one.endswith(("s", "x", "ch", "sh")) else "s") for one in REGULAR_NOUNS if one[-1] != "y"
)
CONSONANT_NOUNS: Final = tuple(one for one in REGULAR_NOUNS if one[0] not in "aeiou" and one != "hour")


def consonant_noun(rng: Random) -> str:
    """A noun that takes the article `a`."""
    return wordlists.made_up_word(rng) if rng.random() < 0.15 else rng.choice(CONSONANT_NOUNS)


Part = tuple[str, tuple[str, ...]]
PART: Final = re.compile(r"\[([^\]]*)\]|\{(\w+)\}|([^\[{]+)")


@cache
def _parts(pattern: str) -> tuple[Part, ...]:
    """The texts, slots and choices of a pattern, in order."""
    return tuple(
        ("text", (text,)) if text else ("slot", (slot,)) if slot else ("choice", tuple(choice.split("|")))
        for choice, slot, text in PART.findall(pattern)
    )


def grown(rng: Random, pattern: str, given: Mapping[str, str] | None = None) -> str:
    """A text that the pattern stands for: one of the options of each `[a|b]`, and `{slot}` filled in.

    ``given`` has values that no list has.
    """
    if "[" not in pattern and "{" not in pattern:
        return pattern
    made = ""
    for sort, options in _parts(pattern):
        if sort == "text":
            made += options[0]
        elif sort == "slot":
            slot = options[0]
            made += given[slot] if given and slot in given else SLOTS[slot](rng)
        else:
            made += grown(rng, rng.choice(options), given)
    return made


def neutral(rng: Random) -> str:
    """A sentence that changes no answer, without its end mark."""
    text = grown(rng, rng.choice(NEUTRAL))
    form = rng.random()
    return text if form > 0.05 else text.title() if form > 0.02 else text.upper()


def neutrals(rng: Random, fewest: int, most: int) -> list[str]:
    """Several sentences that change no answer, in half of the cases after one that names an assistant."""
    made = [neutral(rng) for _ in range(rng.randint(fewest, most))]
    if made and rng.random() < 0.5:
        made[0] = grown(rng, rng.choice(PLAIN_STARTS))
    return made


HEADINGS: Final = lines("""
    [Rules|Instructions|Guidelines|Style|Notes|Your rules|Important|Remember|Requirements|About you|System|Behavior|Policy]:
    [#|##|###] [Rules|Instructions|Guidelines|Style|Notes|Role|Persona|Context|Behavior|Task|{Noun}]
    [Please follow|Follow|You must follow|Always follow|Stick to] these [rules|instructions|guidelines|{number} points]:
    **[Rules|Instructions|Guidelines|Style|Context|Role]**
    [RULES|INSTRUCTIONS|SYSTEM|IMPORTANT]
""")  # fmt: skip
TAGS: Final = listed("rules instructions system role persona context guidelines style prompt task")


def marked(sentence: str) -> str:
    """The sentence with an end mark."""
    return sentence if sentence[-1] in ".!?:" else sentence + "."


def lowered(sentence: str, keep: Sequence[str]) -> str:
    """The sentence in lower case, values apart."""
    if not any(value in sentence for value in keep):
        return sentence.lower()
    if any(sentence.startswith(value) for value in keep):
        return sentence
    return sentence[0].lower() + sentence[1:]


def listing(rng: Random, sentences: Sequence[str]) -> str:
    """Sentences as a list."""
    bullet = rng.choice(("- ", "- ", "- ", "* ", "* ", "• ", "1. ", "1. ", "1) "))
    return "\n".join(bullet.replace("1", str(place)) + one for place, one in enumerate(sentences, 1))


def laid_out(rng: Random, sentences: Sequence[str], keep: Sequence[str] = ()) -> str:
    """Sentences as a paragraph, as lines, as a list, in sections or in tags; ``keep`` has values to leave as they are."""
    if rng.random() < 0.08:
        sentences = [lowered(one, keep) for one in sentences]
    form = rng.random()
    if form < 0.5 or len(sentences) == 1:
        text = " ".join(map(marked, sentences))
        return text if rng.random() < 0.85 else text.rstrip(".")
    if form > 0.97 and not any(one[-1] in '.!?:"' for one in sentences):
        return rng.choice(("; ", " - ", " | ")).join(sentences)
    if rng.random() < 0.65:
        sentences = [marked(one) for one in sentences]
    if form < 0.64:
        return rng.choice(("\n", "\n", "\n\n")).join(sentences)
    if form < 0.72:
        return listing(rng, sentences)
    heading = grown(rng, rng.choice(HEADINGS))
    if form < 0.8:
        return f"{heading}\n{listing(rng, sentences)}"
    cut = rng.randint(1, len(sentences) - 1)
    first, rest = " ".join(map(marked, sentences[:cut])), listing(rng, sentences[cut:])
    if form < 0.88:
        return f"{first}{rng.choice((chr(10), chr(10) * 2))}{heading}\n{rest}"
    if form < 0.93:
        return f"{grown(rng, HEADINGS[1])}\n{first}\n\n{grown(rng, HEADINGS[1])}\n{rest}"
    tag, other = rng.sample(TAGS, 2)
    inner = rest if rng.random() < 0.5 else "\n".join(sentences[cut:])
    return f"<{tag}>\n{first}\n</{tag}>\n<{other}>\n{inner}\n</{other}>"


def composed(rng: Random, key: Sequence[str], keep: Sequence[str] = (), *, ordered: bool = False) -> str:
    """A system prompt that says what ``key`` says, and mostly other things before, between and after."""
    most = 8 if rng.random() < 0.08 else 4
    others = neutrals(rng, 0 if key and rng.random() < 0.3 else 1, max(1, most - len(key)))
    sentences = [*others, *key]
    if ordered:
        places = sorted(rng.sample(range(len(sentences)), len(key)))
        sentences = others
        for place, one in zip(places, key, strict=True):
            sentences.insert(place, one)
    else:
        start, rest = (sentences[:1], sentences[1:]) if others and rng.random() < 0.4 else ([], sentences)
        rng.shuffle(rest)
        sentences = start + rest
    return laid_out(rng, sentences, keep)
