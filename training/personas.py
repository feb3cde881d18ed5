"""Names, roles and employers that system prompts give the assistant, and the questions for them."""

from random import Random
from typing import Final

from training import canned, values, wordlists
from training.registry import Split, in_split, loose, wordings
from training.system_prompts import CONSONANT_MANNERS, company, grown, in_commas
from training.wordlists import listed

ROLES: Final = in_commas("""
    pirate, wizard, knight, detective, doctor, nurse, dentist, teacher, pilot, chef, baker, butcher, farmer,
    gardener, librarian, lawyer, judge, plumber, electrician, carpenter, mechanic, engineer, architect,
    astronaut, sailor, captain, poet, novelist, journalist, editor, translator, historian, philosopher,
    scientist, chemist, physicist, biologist, astronomer, mathematician, accountant, banker, cashier, waiter,
    bartender, barista, tailor, florist, photographer, painter, sculptor, musician, pianist, singer, dancer,
    actor, comedian, clown, magician, dragon, elf, dwarf, goblin, ghost, vampire, robot, robot butler, butler,
    queen, king, princess, ninja, samurai, viking, cowboy, sheriff, spy, superhero, villain, alien, mermaid,
    unicorn, talking cat, talking parrot, talking tree, travel agent, travel guide, tour guide, math tutor,
    piano teacher, language coach, English teacher, customer support agent, customer service agent, help desk
    agent, sales agent, real estate agent, call center agent, hotel receptionist, receptionist, booking agent,
    secretary, personal trainer, fitness coach, life coach, career coach, job coach, football coach, chess
    coach, chess player, game master, dungeon master, quiz master, storyteller, weather forecaster, news anchor,
    radio host, talk show host, film critic, food critic, wine expert, security guard, police officer,
    firefighter, bus driver, taxi driver, train conductor, ship captain, flight attendant, software engineer,
    software developer, senior Python developer, web developer, data analyst, data scientist, database
    administrator, system administrator, project manager, product manager, code reviewer, security researcher,
    technical writer, copywriter, screenwriter, interviewer, recruiter, tax advisor, financial advisor,
    investment advisor, legal advisor, nutritionist, psychologist, therapist, pharmacist, veterinarian,
    zookeeper, beekeeper, museum guide, art dealer, fashion designer, interior designer, wedding planner, event
    planner, party planner, spelling bee judge, grammar checker, proofreader, research assistant, shopping
    assistant, coding assistant, teaching assistant, cooking assistant, virtual receptionist, Linux terminal,
    calculator, search engine, time traveler, fortune teller, old sea captain, medieval knight, space explorer,
    treasure hunter
""")
RANKS: Final = listed("senior junior chief head deputy expert certified freelance retired professional lead")
FIELDS: Final = listed(
    """Python Java Rust Linux cloud network marketing finance music history science garden travel wedding
    insurance sports fashion pet book film wine coffee bread robot train ship space ocean forest night city"""
)
HEADS: Final = listed(
    """developer engineer expert teacher tutor coach agent advisor guide planner manager analyst designer writer critic
    inspector consultant specialist trainer reporter dealer officer operator technician"""
)


def with_article(words: str) -> str:
    """The words after `a` or `an`."""
    vowel = words[0].lower() in "aeiou" and not words.lower().startswith(("uni", "use", "usu", "eu", "one"))
    return f"{'an' if vowel or words.startswith(('hones', 'hour')) else 'a'} {words}"


def role(rng: Random) -> str:
    """An occupation or a character of one to three words, made up now and then."""
    form = rng.random()
    if form < 0.4:
        return rng.choice(ROLES)
    if form < 0.55:
        return f"{rng.choice(wordlists.ADJECTIVES + CONSONANT_MANNERS)} {rng.choice(ROLES)}"
    if form < 0.7:
        field = rng.choice(FIELDS) if rng.random() < 0.7 else wordlists.made_up_word(rng)
        return f"{field} {rng.choice(HEADS)}"
    if form < 0.78:
        return f"{rng.choice(RANKS)} {rng.choice(FIELDS)} {rng.choice(HEADS)}"
    if form < 0.86:
        return wordlists.noun(rng)
    if form < 0.92:
        return f"{rng.choice(wordlists.ADJECTIVES)} {wordlists.noun(rng)}"
    if form < 0.96:
        return f"{rng.choice(('expert', 'specialist', 'teacher', 'tutor'))} {rng.choice(('in', 'for'))} {rng.choice(FIELDS)}"
    return f"{wordlists.noun(rng)} {rng.choice(HEADS)}"


def name(rng: Random) -> str:
    """A name of an assistant: a person's, a made-up one, or one such as `HelpBot` and `Nova-3`."""
    form = rng.random()
    if form < 0.7:
        return values.person(rng)
    word = (wordlists.noun(rng) if rng.random() < 0.5 else wordlists.made_up_word(rng)).capitalize()
    if form < 0.85:
        return word + rng.choice(("Bot", "bot", "GPT", "AI", "Chat", "Helper", " AI", " Bot"))
    if form < 0.9:
        return f"{rng.choice(('Captain', 'Doctor', 'Professor', 'Agent', 'Mr.', 'Mrs.', 'Sir', 'Lady'))} {word}"
    return word + rng.choice(("", "", "-3", " 2", "-7B", "", " One", "X"))


# {n} is a name, {r} a role, {ar} a role with its article, {p} an employer.
NAMED: Final = wordings("""
    [Your name is|You are|You are called|Your name: |They call you|You go by|Call yourself|Act as|Play|The name of the assistant is|The assistant is called|The assistant's name is|Users call you|You go by the name of] {n}
    Name: {n}
    [You are|Act as|Play|I want you to act as] {n}, [a helpful assistant|an AI assistant|the assistant|a large language model|an assistant that helps]
    You are [an assistant|a helpful assistant|a chatbot|an AI assistant|a friendly chatbot|a model|a polite assistant] [called|named] {n}
    You are the [assistant|chatbot] {n}
    Your name is {n} and [you are helpful|you like people|you answer questions]
    My name for you is {n}
    If [asked|the user asks|someone asks] [for your name|who you are], say that you are {n}
""")  # fmt: skip
WITH_ROLE: Final = wordings("""
    [You are|Act as|I want you to act as|Pretend to be|You act as|Play the role of|You play|Imagine you are|Behave as|You work as|Your role: |You are now|Take the role of|Assume the role of] {ar}
    [Your job|Your occupation|Your profession|Job|Role|Profession|Occupation]: {r}
    [You are|Act as] {ar} [who|that] [helps people|answers questions|knows a lot|likes to talk|is always on time]
    You [work|earn your living|are known] as {ar}
    Your [job|role|profession] is {r}
    [You are|Act as] {ar} for [children|beginners|students|our customers|busy people|families]
""")
WITH_BOTH: Final = wordings("""
    [You are|Act as|Play|Pretend to be|You play|Imagine you are] {n}, {ar}
    You are {ar} [called|named] {n}
    Your name is {n} and you [are|work as] {ar}
    Your name is {n}, {ar}
    [You are|Play] {n} the {r}
    You are the {r} {n}
    You are {n} and [work|act] as {ar}
""")
WITH_PLACE: Final = wordings("""
    [You are|Act as] {ar} [at|of|for|from] {p}
    You work [as {ar} |][at|for] {p}
    You are the {r} of {p}
    [Employer|Company you work for|Your employer]: {p}
    Your employer is {p}
    You are employed [by|at] {p}
    {p} is your employer
    You are [an|the|a helpful] assistant [for|of|at] {p}
""")
NAME_QUESTIONS: Final = (*canned.NAME_QUESTIONS[:2], *canned.NAME_QUESTIONS[3:14], *canned.NAME_QUESTIONS[16:20])
WHO_QUESTIONS: Final = wordings("""
    [who|and who|so who|who exactly] are you?
    [please |]introduce yourself[| to me| please]
    [can|could] you [tell me who you are|introduce yourself]?
    [tell|please tell] me who you are
    who is this?
    who am I [talking|speaking|writing|chatting] [to|with]?
    who [do I talk to|is there|is answering me]?
    [say|explain] who you are
    [who r u|who are u|who're you|so who are you|and who might you be|who is it][?|]
    [hi, |hello, |hey, ]who are you?
""")
WHAT_ROLE: Final = ("what are you?", "what are you exactly?", "tell me about yourself", "describe yourself")
MORE_NAME_QUESTIONS: Final = wordings(
    """
    [what|and what|so what|what exactly] is your name[?| again?|, please?]
    [what|which] name [do you have|do you use|were you given]?
    [tell|give] me your name[| please|, please]
    [can|could|would] you [tell|give] me your name?
    [may|can|could] I [know|ask|get|have] your name?
    [hi, |hello, |hey, ][what is your name?|what's your name?|what are you called?]
    [how|by what name] [should|can|do|may] I [call|address] you?
    your name[, please|?]
    I would like to know your name
    [whats ur name|what's ur name|ur name|what r u called|what do they call you|got a name|have you got a name][?|]
    [and you are|and who might you be|with whom do I have the pleasure]?
    [sorry, |excuse me, |one question: ]what [is|was] your name[ again|]?
    [do you|so do you] have a name?
""".replace("    [and you are|and who might you be|with whom do I have the pleasure]?\n", "")
)
JOB_QUESTIONS: Final = wordings(
    """
    [what|and what|what exactly] is your [job|profession|occupation|role]?
    what's your [job|profession|occupation]?
    what do you do [for work|for a living]?
    [what|and what] are you by profession?
    [which|what] [job|profession] do you have?
    what do you work as?
    [tell|please tell] me your [job|profession|role]
    [what|which] role do you [play|have]?
    what do you do?
    [so |and |hey, |hi, |]what's your [job|role|occupation|profession][?| here?| exactly?]
    [and |so |]what do you do [for a living|for work|all day|professionally|as a job][?|]
    [whats ur job|what r u by profession|what do u do|what's your line of work|what kind of work do you do][?|]
    [what are you working as|what do you earn your money with|how do you earn your living|what is your trade]?
    [can|could] you tell me [your job|what you do|your role|what your job is]?
    [describe|explain] your [job|role]
    in [which|what] [job|role|profession] do you work?
    what are you here for?
    what is your position?
""".replace("    what are you here for?\n", "")
)
PLACE_QUESTIONS: Final = wordings("""
    [where|and where|where exactly] do you work?
    [who|whom|which company|which firm] do you work for?
    who is your employer?
    [which|what] company [employs you|are you with]?
    [tell|please tell] me [where you work|who you work for|your employer]
    [what|who] is your employer called?
    at which company do you work?
""")


def asked(rng: Random, split: Split, questions: tuple[str, ...], salt: str) -> str:
    """One of the questions, mostly with a capital letter."""
    text = rng.choice(in_split(questions, split, salt))
    return loose(rng, text[0].upper() + text[1:]) if rng.random() < 0.75 else text


ADDRESSES: Final = ("{a}, {q}", "{a}, {q}", "Hey {a}, {q}", "Hello {a}, {q}", "Hi {a}, {q}", "Dear {a}, {q}", "Hello {a}! {Q}", "Tell me, {a}: {q}",
                    "Good evening, {a}. {Q}", "Excuse me, {a}, {q}", "Ok {a}, {q}", "Say, {a}, {q}")  # fmt: skip


def addressed(rng: Random, question: str, *titles: str) -> str:
    """The question, now and then addressed to one of the titles that are not empty."""
    given = [one for one in titles if one]
    if (
        not given
        or rng.random() > 0.17
        or question.lower().startswith(("hi", "hey", "hello", "so ", "and ", "excuse", "sorry", "one "))
    ):
        return question
    title = rng.choice(given)
    lower = question if question.startswith(("I ", "I'")) else question[0].lower() + question[1:]
    text = rng.choice(ADDRESSES).format(a=title, q=lower, Q=question[0].upper() + question[1:])
    return text[0].upper() + text[1:]


def name_question(rng: Random, split: Split) -> str:
    """A question for the name of the assistant."""
    if rng.random() < 0.5:
        return asked(rng, split, NAME_QUESTIONS, "asked name")
    return asked(rng, split, MORE_NAME_QUESTIONS, "asked name")


def who_question(rng: Random, split: Split) -> str:
    """A question for who the assistant is."""
    return asked(rng, split, WHO_QUESTIONS, "asked who")


def introduced(name: str, role: str) -> str:
    """The answer to the question who the assistant is."""
    if name and role:
        return f"I am {name}, {with_article(role)}."
    if role:
        return f"I am {with_article(role)}."
    return f"My name is {name}." if name else canned.NAME_ANSWER


def told(rng: Random, split: Split, forms: tuple[str, ...], **given: str) -> str:
    """A sentence that gives the assistant a name, a role or an employer, without its end mark.

    The first two forms are the usual ones.
    """
    options = in_split(forms, split, "told persona")
    form = rng.choice(options[:2] if rng.random() < 0.4 else options)
    role = given.get("r", "")
    filled = form.format(n=given.get("n", ""), r=role, ar=with_article(role) if role else "", p=given.get("p", ""))
    return filled.replace(":  ", ": ")


def persona_start(rng: Random) -> str:
    """A sentence with a name, a role, an employer or several of them, for prompts where these do not matter."""
    forms = rng.choice((NAMED, WITH_ROLE, WITH_ROLE, WITH_BOTH, WITH_PLACE))
    return told(rng, Split.TRAIN, forms, n=name(rng), r=role(rng), p=company(rng))


def model_start(rng: Random) -> tuple[str, str]:
    """A well-known or made-up model's name, and the sentence that names it."""
    known = rng.choice(("ChatGPT", "Claude", "Gemini", "Llama", "Qwen", "Mistral", "Copilot", name(rng), name(rng)))
    pattern = "You are {n}, [a large language model|an AI assistant|a language model|an AI model|a chatbot]" + (
        "[| trained by {maker}| made by {company}| created by {company}| based on the {n}-4 architecture]"
    )
    maker = rng.choice(("OpenAI", "Anthropic", "Google", "Meta", company(rng), company(rng)))
    return known, grown(rng, pattern, {"n": known, "maker": maker})
