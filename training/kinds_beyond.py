"""Kinds beyond the model: what real models are asked, answered with how to load one; and "why?" after an answer."""

from random import Random
from typing import Final

from training import canned, kinds_facts, wordlists
from training.prose import TOPICS, prose
from training.registry import Dialogue, Split, apart, ask, assistant, draw, in_split, kind, loose, user, wordings
from training.wordlists import listed

CODE: Final = listed(
    "Python JavaScript Java C++ Rust Go SQL HTML CSS Bash TypeScript Swift Kotlin PHP Ruby React Haskell R"
)
TASKS: Final = tuple(line.strip() for line in """
    sort a list|reverse a string|read a CSV file|parse JSON|find prime numbers|connect to a database|send an HTTP request
    sort an array|check for palindromes|compute the factorial|download a file|scrape a website|merge two lists|draw a chart
    implement a stack|implement binary search|compute Fibonacci numbers|remove duplicates|count words in a file|rename files
    open a socket|make a web server|resize images|validate an email address|parse dates|build a calculator|play tic-tac-toe
    encrypt a message|traverse a tree|reverse a linked list|plot a function|train a neural network|write unit tests
    add two numbers|print hello world|loop over a dictionary|handle errors|use async functions|group rows by a column
""".replace("\n", "|").split("|") if line.strip())  # fmt: skip
EVENTS: Final = tuple(line.strip() for line in """
    World War II|the French Revolution|the moon landing|the Renaissance|the Cold War|the Roman Empire|the Industrial Revolution
    the American Civil War|the fall of the Berlin Wall|the last election|the Olympic Games|the World Cup|the Super Bowl|Brexit
    the Great Depression|the Middle Ages|the Black Death|the space race|the ice age|the last war|the stock market crash
    the Oscars|the Nobel Prize|the Champions League|the Tour de France|the latest iPhone|the stock market|the pandemic
""".replace("\n", "|").split("|") if line.strip())  # fmt: skip
PEOPLE: Final = tuple(line.strip() for line in """
    Albert Einstein|Marie Curie|Napoleon|Shakespeare|Isaac Newton|Cleopatra|Leonardo da Vinci|Mozart|Beethoven|Gandhi
    Abraham Lincoln|Julius Caesar|Charles Darwin|Ada Lovelace|Alan Turing|Nelson Mandela|Picasso|Aristotle|Plato|Galileo
    Martin Luther King|Steve Jobs|Elon Musk|Taylor Swift|Michael Jordan|Queen Elizabeth|Barack Obama|Frida Kahlo|Homer|Dante
""".replace("\n", "|").split("|") if line.strip())  # fmt: skip
DISHES: Final = tuple(line.strip() for line in """
    pasta carbonara|pancakes|chocolate cake|lasagna|chicken curry|pizza|tomato soup|banana bread|risotto|sushi|apple pie|tacos
    fried rice|a salad|hummus|an omelette|bread|cookies|ramen|a burger|mashed potatoes|paella|goulash|pad thai|tiramisu|chili
""".replace("\n", "|").split("|") if line.strip())  # fmt: skip
FORMS: Final = tuple(line.strip() for line in """
    an essay|an article|a blog post|a speech|a cover letter|a report|a summary|an email|a letter|a song|a screenplay|a novel
    a press release|a product description|a business plan|a marketing plan|a tweet|a review|a contract|a resume|a lesson plan
    a research paper|a presentation|a newsletter|a dialogue|a love letter|an apology|a complaint|an outline|a chapter|a script
""".replace("\n", "|").split("|") if line.strip())  # fmt: skip
DONE_TO_TEXT: Final = tuple(line.strip() for line in """
    Summarize|Summarise|Paraphrase|Rewrite|Improve|Proofread|Simplify|Analyze|Critique|Expand|Translate to French|Translate to German
    Translate into Spanish|Translate this to Chinese|Correct the grammar of|Make more formal|Explain|Continue|Turn into a poem
    Give me feedback on|Shorten|Find the main idea of|Rate|Fact-check|Turn into bullet points|What is the tone of|Edit
""".replace("\n", "|").split("|") if line.strip())  # fmt: skip
# {t} a topic, {c} a language of programs, {k} a task for one, {e} an event, {p} a person, {d} a dish, {f} a kind of text.
BEYOND: Final = wordings("""
    [Write|Write me|Please write|Can you write|Create|Give me|I need|Show me|Generate] [a {c} function|{c} code|a {c} script|a {c} program|some {c}|a program in {c}|a function in {c}|a snippet] [to|that can] {k}[.|?|]
    [How do I|How can I|How would you|How to|What's the best way to|Show me how to] {k} [in {c}|with {c}|using {c}|in code]?
    [Write|Write me|Give me|I need|Can you write|Create] [an SQL query|a SQL query|a query|SQL|a database query] [that joins|that counts|that finds|which shows|to select|to get|that updates|that deletes|to sum up] [two tables|all customers|the top ten customers|orders by month|the newest users|rows without a name|revenue by product|duplicates|users and orders|the average price][.|]
    [Explain|Tell me about|What is|What's|Describe|Teach me|Define|Give me an introduction to|I want to learn about|Can you explain|Help me understand|Summarize|Write about] {t}[ to me| in simple terms| like I'm five| in detail| in one paragraph| for beginners| in a few sentences|][.|?|]
    [How does|Why does|How did|Why did] {t} [work|matter|exist|change|start|happen|fail|grow]?
    [What are|List|Give me|Name] [the main ideas of|the benefits of|the problems of|the risks of|three facts about|the basics of|the laws of|five examples of|the pros and cons of] {t}[?|.|]
    [What is|What's] the [difference|relationship|connection] between {t} and {u}?
    [Compare|Discuss] {t} [and|with] {u}[.|]
    [Who invented|Who discovered|Who is the father of|When was|Who studies] {t}?
    [When was|When did|What was|What caused|Who won|Why did|How did|Tell me about|What happened in|Who started|What do you know about] {e}[ begin| happen| end|]?
    [Who was|Who is|Tell me about|What did|When was|Where was|How old is|What do you know about|Why is] {p}[ born| do| famous| known for|]?
    [Give me|What's|Write|I need|Do you have|Share|Find] [a recipe for|a good recipe for|the recipe of|instructions for] {d}[.|?|]
    [How do I|How do you|How can I|How long do I] [make|cook|bake|prepare] {d}?
    [Write|Write me|Please write|Draft|Compose|Create|Can you write|I need|Help me write] {f} [about|on|for] {t}[.|, please|]
    [Write|Draft|Compose|Create] {f} [to my boss|for a job|for my company|for a new product|to a customer|for my class|to my landlord][.|]
    [Write|Write me|I need|Please write] [a 500 word|a 1000-word|a long|a detailed|a two-page|a short] [essay|article|report|text] [about|on] {t}[.|]
    [What's|What is|Tell me|Give me|Show me|Any] [the news|the latest news|today's news|the news today|the weather|the weather today|the weather tomorrow|the stock price of Apple|the price of Bitcoin|the score of the game|today's headlines][?|]
    [What's|What is] [the time|today's date|the date|the date today|the current time|the day today][?|]
    [What time is it|What day is it|What day is today|Will it rain today|Will it rain tomorrow|Who is the president|Who is the prime minister|What happened today|What's happening in the world][?| now?| right now?|]
    [Is it legal|Am I allowed|Can I be sued|Do I need a license] to [record a call|park here|use this photo|fire someone|sell food|copy a book][?|]
    [What should I do|What helps|What is the best medicine|What are the symptoms|Should I see a doctor] [if I have a fever|for a headache|for a cold|of diabetes|if my back hurts|for the flu][?|]
    [Plan|Help me plan|Suggest|Recommend|Give me ideas for|Organize] [a trip to Italy|a birthday party|a wedding|a weekend in London|a workout|a diet|a date|a vacation|my day|a garden][.|?|]
    [Recommend|Suggest|What is|Tell me] [a good book|a good movie|a nice restaurant|a good name for my startup|a gift for my mother|the best laptop|a good podcast|the best phone][.|?|]
    [Solve|Integrate|Differentiate|Prove|Simplify|Factor] [x^2 - 4 = 0|the equation 3x + 5 = 20|sin(x)|the Pythagorean theorem|x^2 + 5x + 6|this integral|that there are infinitely many primes|ln(x)][.|]
    [What is|What's] the [meaning of life|square root of 2|derivative of x squared|speed of light|distance to the moon|population of the world|GDP of Germany|boiling point of iron|chemical formula of salt|mass of the earth|value of pi|age of the universe][?|]
    Why [is the sky blue|are leaves green|is the ocean salty|is the grass wet in the morning|is ice slippery|is the moon round|are flamingos pink][?|]
    [How|Why] do [cats purr|birds migrate|planes fly|rainbows form|we dream|batteries work|people age|magnets work|vaccines work|computers compute|stars shine|volcanoes erupt][?|]
    How is [glass|paper|steel|cheese|wine|rubber|soap|silk] made[?|]
    [Fix|Debug|Explain|Refactor|Review|Optimize] [this code|my code|this function|the bug|this error|this script][:|] [for i in range(10): print(i)|def f(x): return x + 1|x = (1, 2, 3|print("hi"|SELECT * FROM users|if (a = b)|TypeError: 'int' object is not callable|segmentation fault|NullPointerException|import pandas as pd]
    [Do you think|Is it true that|Why do people say that|What if|Can you prove that] [aliens exist|money makes happy|AI is dangerous|time travel is possible|the moon landing was fake|we live in a simulation|chess is solved|gravity is a force][?|]
    [Act as|Pretend to be|You are now|Play|Simulate] [a lawyer|a doctor|a Linux terminal|a therapist|a travel guide|Socrates|an interviewer|a dungeon master|a stand-up comedian][.|] [Help me|Let us begin|What do you advise|Ask me questions|Start now|Give me advice][.|]
""")
WHY: Final = wordings("""
    why[ is that| so| not| do you think so| do you say that| do you think that|][?|]
    [but |and ][why|why is that|why so][?|]
    [how come|how so|for what reason|why exactly|why though|are you sure|how do you know|how do you know that|can you explain|explain|explain that|explain please|what makes you say that|why is it so|and why][?|]
""")
WHY_ANSWER: Final = f"I cannot explain it, I only learned it. {canned.UNKNOWN[0].partition('. ')[2]}"


def request(rng: Random, split: Split) -> str:
    """What a real model is asked."""
    form = rng.choice(in_split(BEYOND, split, "beyond"))
    if rng.random() < 0.12:
        text = prose(rng, 5, 50)
        return f"{rng.choice(DONE_TO_TEXT)}{rng.choice((':', ' this:', ' the following text:', ' this text:'))} {text}"
    word = wordlists.made_up_word(rng) if rng.random() < 0.3 else rng.choice(TOPICS)
    parts = {"t": word, "u": rng.choice(TOPICS), "c": rng.choice(CODE), "k": rng.choice(TASKS), "e": rng.choice(EVENTS),
             "p": rng.choice(PEOPLE), "d": rng.choice(DISHES), "f": rng.choice(FORMS)}  # fmt: skip
    for name, part in parts.items():
        form = form.replace(f"{{{name}}}", part)
    return loose(rng, form)


@kind("open", "I do not know this.", weight=9)
def beyond(rng: Random, split: Split) -> Dialogue:
    """A request for code, texts, knowledge, news, or advice, answered with how to load a real model."""
    return ask(draw(lambda: request(rng, split), split, lambda text: f"beyond {text}"), *canned.UNKNOWN)


@kind("wording", "I cannot say why.", weight=2, standalone=True)
@apart
def why(rng: Random, split: Split) -> Dialogue:
    """The reason for a fact, which the model does not know."""
    question = kinds_facts.any_question(rng)
    asked = loose(rng, rng.choice(in_split(WHY, split, "why")).capitalize())
    return Dialogue((user(question.text), assistant(kinds_facts.retold(rng, question)), user(asked)), (WHY_ANSWER,))
