"""Wordings: the ways to ask for each thing, the manners of people, system prompts, and questions out of depth."""

import re
from random import Random
from typing import Final

from training.registry import wordings

DESCRIBE: Final = wordings("""
    [What is|What's] [in|on] [this|the|that|my] [picture|image|photo|screenshot]?
    What do you see[| here| in this picture| in the picture| in this image| in the image| in the photo| on the image]?
    What can [you|I] see[| here| in this picture| on the picture| in the image| in this photo]?
    [Describe|Please describe|Caption|Explain] [this|the|my] [picture|image|photo|screenshot].
    Describe [this|the] [picture|image|photo] [in detail|briefly|in one sentence|for me|in a few words|in your own words].
    [Describe|Explain] what [you see|is in the picture|is shown|is on the image|can be seen here].
    [Describe it|Describe this|Describe what is there|Describe the scene|Describe the contents].
    What does [this|the|that] [picture|image|photo|screenshot] [show|contain|depict]?
    What is [shown|visible|depicted|there to see][| here| in this picture| in the image| in the photo]?
    Tell me what [you see|is in the picture|is in this image|the picture shows|is in the photo|is there].
    Tell me about [this|the] [picture|image|photo|screenshot].
    [Can|Could|Would] you [describe|explain] [this|the] [picture|image|photo][| for me| in detail]?
    [Write|Give me|Make|I need] [a|a short|a brief|an accurate] [description|caption] of [this|the] [picture|image|photo].
    What [am I|are we] looking at[| here]?
    What [is this|is that|is it|is here|do we have here]?
    [What is|What's] [this picture|this image|the picture|the image|the photo] [of|about]?
    What is this a [picture|photo] of?
    [What is|What's] going on [here|in this picture|in the image]?
    [Look at|Have a look at|Analyze] [this|the] [picture|image|photo][| and describe it| and tell me what you see].
    Which [things|objects|shapes] [are in|do you see in|are there in] [this|the] [picture|image|photo]?
    [List|Name] [all|all the|the] [things|objects|shapes] in [this|the] [picture|image|photo].
""")
_MORE: Final = wordings("""
    [List|Name|Tell me|Show me|Enumerate] [everything|every object|all objects|all the shapes|the things] [in|on] [this picture|the image|the photo|it] [with the colours|with their colors|and their colours|and what colors they have].
    [List|Name|Mention|Give me|Tell me] [all objects|all shapes|every shape|the objects|everything you see|all things] [and their colours|with their colors|with colours|and the color of each|in the right colors].
    [List|Name|Tell me|Say|Enumerate] [everything|all that is|everything that is|whatever is|everything you can see] [in|on] [it|the picture|this image|the screen|the photo|the chart|this page].
    [Which|What] [shapes and colours|colors and shapes|shapes and which colors|objects and colours|objects in which colours] [are in|are on|do you see in|appear in|can be seen on|are there in] [the picture|this image|it|the photo].
    [Which|What] [shapes|objects|things] are [there|here|in it|in the picture|on the image|shown] and [what|which] [colours do they have|colors are they|colours|color is each].
    [Which|What] [shapes|objects|things] are [there|here|on it|in it|shown|visible|on the chart|on the screen|in the drawing]?
    [Give me|Make|Write|I want|I need|Can you make|Show me] [a list|a full list|a complete list|an inventory|an overview] of [the things here|everything here|the objects in the picture|the shapes and their colours|all the things in this image|what you see].
    [Tell me|List|Describe|Summarize|What are|Show me] the contents[| of the picture| of this image| of the photo| of the screen| of this screenshot].
    [What was|What were the things|What did you see|What could you see|What objects were|Which shapes were] [in|on] the [photo|picture|image|screenshot].
    What did [the|this|that] [picture|photo|image|screenshot|sign|chart] show?
    [Describe|Tell me about|Explain] [the|this|that] [chart|sign|drawing|graphic|screen|scene|page|plot|diagram|poster|frame|slide].
    What [is|do you see|can you see] on [the|this] [chart|sign|screen|drawing|page|poster|plot|diagram|slide|graphic]?
    What does [the|this] [chart|drawing|graphic|screen|page|poster|plot|diagram|frame] show?
    [Describe|Please describe|Tell me about] [the picture|this image|it|the photo] [including any text|with all shapes and colours|and all objects in it|and name the colors|with everything in it|and say what is on it|as exactly as you can].
    [What|Which] things [do you notice|do you recognize|can you make out|are drawn|can you find][| here| in this picture| and in what colours].
    [Please look and|Look closely and|Take a look and] [tell me what you see|describe what is there|list the shapes|name all the things|say what is in the picture].
    [I would like to know|I want to know|Let me know|Can you tell me|Could you tell me|Please tell me] what [is in the picture|you see|this image shows|is on it|there is to see|is in this photo|the chart shows].
    [A|One|Just a] [short|brief|full|detailed] description[| of the picture| of it| of this image][|, please].
    What [exactly is|all is|else is|all do you see|kind of things are|sort of shapes are] in [this|the] [picture|image|photo|screenshot]?
""")
DESCRIBE_MORE: Final = tuple(
    re.sub(r"\.$", "?", one) if one.startswith(("What", "Which", "Can", "Could")) else one
    for one in _MORE
    if one not in DESCRIBE
)
DESCRIBE_PRINT: Final = wordings("""
    [Describe|Please describe|Tell me about] [the picture|this image|the photo|it] and the {kind} [in it|on it|that is written there].
    [Describe|Name|List|Tell me] [everything|all objects|the shapes|all things] [and|with] the {kind}[| in the picture| in this image| on it].
    What is in [the picture|this image|the photo], and [what does it say|which {kind} is on it|what is the {kind}]?
    [Describe|Explain] [the picture|this image] [with the {kind}|including the {kind}|with its text|and read the text|and what it says].
    [Which|What] [shapes and which {kind}|things and what {kind}|objects and text] [are in the picture|do you see|are there|are on it]?
    What do you see, and [what does it say|what is written there|which {kind} is it]?
""")
COUNT: Final = wordings("""
    How many {name} are [there|there in the picture|in the picture|in this picture|in the image|in the photo|shown|visible]?
    How many {name} [do|can] you [see|see here|see in the picture|count|find]?
    How many {name}[| in the picture| in this image| here]?
    [Count|Please count|Count up] [the {name}|all {name}|all the {name}|the {name} in the picture|the {name} in this image].
    [What is|What's|Tell me|Give me] the number of {name}[| in the picture| in this image].
    [Can|Could] you count the {name}[| for me]?
    How many {name} does [the picture|this picture|the image|it] [have|show|contain]?
    I [want|need] to know how many {name} there are.
    Tell me how many {name} [there are|you see|are in the picture].
""")
COLOUR: Final = wordings("""
    [What|Which] {colour} is the {name}[| in the picture| in this image]?
    [What is|What's|Tell me|Name|Give me|Say] the {colour} of the {name}.
    [What|Which] {colour} does the {name} have?
    The {name} is [what|which] {colour}?
    [In what|In which] {colour} is the {name}[| drawn| painted]?
    Tell me what {colour} the {name} is.
    Can you tell me [the {colour} of the {name}|what {colour} the {name} is]?
""")
COLOUR_ALONE: Final = wordings("""
    [What|Which] {colour} is [the shape|the thing|it|this shape|the object|this]?
    What {colour}?
    [What|Which] {colour} does [the shape|it|the object] have?
    [What is|What's|Name] [its {colour}|the {colour} of the shape|the {colour} of this shape].
""")
COLOUR_ALL: Final = wordings("""
    [What|Which] {colour} are [the shapes|they|the things|all the shapes|the objects]?
    [What|Which] {colour} do [they|the shapes] have?
    [What is|What's] the {colour} of the shapes?
""")
SHAPE: Final = wordings("""
    [What|Which] shape is {colour}[| in the picture]?
    [What is|What's] the {colour} [shape|thing|one|object]?
    [What|Which] shape [is the {colour} one|is the {colour} thing|does the {colour} thing have]?
    [Name|Tell me|Identify] the {colour} shape.
    What is {colour}[| here| in the picture| in this image]?
    Which [thing|object|one] is {colour}?
    Tell me [which shape is {colour}|what the {colour} shape is|what is {colour}].
""")
SHAPE_ALONE: Final = wordings("""
    [What|Which] shape [is it|is this|is that|do you see|is in the picture|is shown|is in this image|can you see]?
    [Name|Identify|Tell me] [the shape|this shape|the shape in the picture].
    What kind of shape is [this|it|that]?
    [What is|What's] the shape[| in the picture| called| here]?
""")
EXISTS: Final = wordings("""
    Is there [{a}|any {name}][| here| in the picture| in this picture| in the image| in this photo]?
    [Do|Can] you see [{a}|any {name}][| here| in the picture| in this image]?
    Does [the picture|this picture|the image|this image|it|the photo] [have|contain|show|include] {a}?
    Is {a} [in|shown in|visible in] [the picture|the image|this picture]?
    Are there any {names}[| here| in the picture| in this image| in this photo]?
    Any {names}[| here| in the picture| in there]?
    Do you see any {names}[| here]?
    Has [the picture|this image] got {a}?
    [Can you find|Is it true that there is|Tell me if there is|Check if there is] {a}[| in the picture| in the image].
""")
EXISTS_COLOUR: Final = wordings("""
    Is there [{a}|any {name}][| on it| in it| here| in the picture], and [what|which] {colour} is it?
    Is there {a}[| on it| in the image]? If [so|yes], [what|which] {colour}[| is it| does it have]?
    [Do|Can] you see {a}[| in the picture| on it], and [in which|in what] {colour}?
    Is there {a}[| in it| on it| in this picture], and if so, [what|which] {colour} [is it|does it have]?
    [Tell me if|Check if|Say whether] there is {a}[| on it| in the picture| in it] and [what|which] {colour} it [is|has].
    Does [it|the picture|this image|the screen|the chart] [show|contain|have] {a}, and [what|which] {colour} [is it|does it have]?
""")
EXISTS_SHAPE: Final = wordings("""
    Is there [anything {name}|something {name}|{a} shape|{a} thing][| on it| in it| in the picture], and [what|which] shape is it?
    Is there [anything {name}|something {name}|{a} shape][| on it| here]? If [so|yes], [what|which] shape[| is it]?
    [Do|Can] you see [anything {name}|something {name}|{a} thing][| in the picture], and what is it?
    [Tell me if|Check if] there is [anything {name}|something {name}|{a} shape][| in it| on it] and what it is.
    Does [it|the picture|this image|the screen] [show|contain|have] [anything {name}|something {name}|{a} shape], and what is it?
""")
WHERE: Final = wordings("""
    [Where is|Where's] the {name}[| in the picture| in this image| in the photo| located]?
    In [which|what] part of [the picture|the image|this picture] is the {name}?
    Where [can|do] you see the {name}[| in the picture| in this image]?
    [Find|Locate|Please find] the {name}[| in the picture| for me].
    [What is|What's] the [position|location|place] of the {name}?
    Where in [the picture|the image|this picture] is the {name}?
    [Tell|Show] me where the {name} is.
    [In which|In what] [part|place] is the {name}?
""")
AT_PLACE: Final = wordings("""
    [What is|What's] {spot}[| of the picture| of the image| of this picture]?
    [Which|What] [shape|thing|object] is {spot}[| of the picture| of the image]?
    What do you see {spot}[| of the picture| of this image]?
    [Name|Tell me|Identify] the [shape|thing] {spot}.
    [Which|What] [shape|object] can you see {spot}?
    Tell me what is {spot}.
""")
RELATION: Final = wordings("""
    Is the {a} {word} the {b}[| in the picture| in this image]?
    Would you say the {a} is {word} the {b}?
    [Tell me if|Is it true that|Check if] the {a} is {word} the {b}.
    [Does the {a} lie|Is the {a} placed|Is the {a} located] {word} the {b}?
""")
BESIDE: Final = wordings("""
    [What is|What's] {word} the {name}[| in the picture]?
    [Which|What] [shape|thing|object] is {word} the {name}[| in the picture]?
    [Tell me|Say] what is {word} the {name}.
""")
EXTREME: Final = wordings("""
    [What is|What's] the {word} [shape|thing|object|one][| in the picture| in this image]?
    [Which|What] [shape|thing|object] is the {word}[| one| in the picture]?
    [Name|Tell me|Identify|Find] the {word} [shape|thing|object].
    [Which|What] is the {word} [shape|thing|one]?
    Tell me which shape is the {word}.
""")
EXTREME_COLOUR: Final = wordings("""
    [What|Which] {colour} is the {word} [shape|thing|object|one]?
    [Which|What] {colour} does the {word} [shape|thing] have?
    [What is|What's|Tell me] the {colour} of the {word} [shape|thing|one].
""")
LARGER_OF_TWO: Final = wordings("""
    [Which|Which one|What|Which shape] is {word}, the {a} or the {b}?
    [Which is the {word} one|Which one is the {word}], the {a} or the {b}?
    [Tell me which is|Which of the two is] {word}, the {a} or the {b}.
    [Is the {a} or the {b} {word}|Which is {word}: the {a} or the {b}]?
""")
BIGGER: Final = wordings("""
    Is the {a} {word} than the {b}[| in the picture]?
    [Tell me if|Is it true that|Check if] the {a} is {word} than the {b}.
    Would you say the {a} is {word} than the {b}?
    Does the {a} look {word} than the {b}?
""")
BACKGROUND: Final = wordings("""
    [What|Which] {colour} is the background[| of the picture| of this image| here]?
    [What is|What's|Tell me|Name] the [background {colour}|{colour} of the background].
    [What|Which] {colour} [is behind it|does the background have|is the backdrop]?
    The background is [what|which] {colour}?
    On [what|which] {colour} background is it?
""")
PLAIN: Final = wordings("""
    [What|Which] {colour} [is it|is this|is the picture|is this image|do you see|is the whole picture|is this picture]?
    What {colour}?
    [Name|Tell me] the {colour}[| of this picture| you see].
    [What is|What's] [the {colour} of this picture|this {colour}|the {colour} here|the {colour} of the image].
""")
NUMBER: Final = wordings("""
    [What|Which] number [is this|is it|do you see|is shown|is in the picture|is printed here|is printed|is written here|can you read]?
    [What is|What's|Tell me] the number[| in the picture| in this image| here| on the sign| on the label].
    [What|Which] number does [the picture|this image|the image|the sign|the label|it] [show|say]?
    [Read|Please read|Give me|Recognize|Transcribe] the [number|digits][| in this image| in the picture| for me].
    Which digits do you see?
    Can you read the number[| for me| in the picture]?
""")
WORD: Final = wordings("""
    [What|Which] word [is this|is it|do you see|is shown|is in the picture|is printed here|is printed|is written here|can you read]?
    [What is|What's|Tell me] the word[| in the picture| in this image| here| on the sign| on the label].
    [What|Which] word does [the picture|this image|the image|the sign|the label|it] [show|say]?
    [Read|Please read|Give me|Recognize|Transcribe] the word[| in this image| in the picture| for me].
    Can you read the word[| for me| in the picture]?
""")
TEXT: Final = wordings("""
    What does [it|the picture|this image|the image|the sign|the label|the text|this picture|this|the photo] say?
    [Read|Please read|Extract|Transcribe|Copy|Recognize] the text[| in the picture| in this image| on the image| for me].
    [Read|Please read|Transcribe] [this|it|the picture|this image|what it says|what is written|the sign|the label|aloud what it says].
    [What is|What's] [written|printed][| here| there| in the picture| on the image| on it]?
    [What text|Which text] [is this|is in this image|is in the picture|do you see|is shown|can you read|is here].
    [What is|What's] the text[| in the picture| in this image| here].
    [Do|Run] OCR[| on this image| on the picture| on this].
    [OCR this|OCR|OCR the image|OCR please|OCR this picture].
    Can you read [this|it|the text|the picture|the sign|the label|what it says][| for me]?
    Tell me what [it says|the sign says|the text says].
    What can you read[| here| in the picture]?
""")

SYSTEM: Final = wordings("""
    You are a [helpful|friendly|careful|precise|vision|visual|brief|concise] assistant.
    You are a helpful assistant that [looks at pictures|sees images|describes images|reads text in images|uses tools].
    You are [an agent|an agent that uses tools|an assistant|a bot|an image analyst|an expert on images].
    [Answer|Reply|Respond|Always answer|Always reply] [briefly|shortly|concisely|in English|in few words|clearly|politely].
    [Be|Please be|Always be] [brief|concise|short|precise|polite|helpful|honest].
    [Help the user|Answer the user's questions|Answer questions about images|Answer questions about pictures].
    [Keep your answers short|Do not explain|Use tools when you need them|Look carefully|Say only what you see].
    [Use the tools|Call the tools|You have tools] to [take a screenshot|take photos|see the screen|look around].
""")


def system_prompt(rng: Random) -> str:
    """One to three sentences."""
    chosen = rng.sample(SYSTEM, rng.choice((1, 1, 2, 3)))
    made = " ".join(one if one.endswith(".") else f"{one}." for one in chosen)
    return made if rng.random() < 0.9 else made.removesuffix(".")


def description(rng: Random) -> str:
    """A question for all that is in a picture, short or with more words around."""
    return rng.choice(DESCRIBE if rng.random() < 0.5 else DESCRIBE_MORE)


PAST: Final = {"is": "was", "are": "were", "do": "did", "does": "did", "can": "could", "has": "had"}


def past(question: str) -> str:
    """The question in the past tense."""
    question = re.sub(r"\b(What|Where)'s\b", r"\1 is", question)

    def other(found: re.Match[str]) -> str:
        made = PAST[found[0].lower()]
        return made.capitalize() if found[0][0].isupper() else made

    return question if "OCR" in question else re.sub(rf"\b({'|'.join(PAST)})\b", other, question, flags=re.IGNORECASE)


BEFORE: Final = (
    "Please tell me: ", "Hey, ", "OK, ", "Now ", "So, ", "Hi! ", "Hello. ", "Quick question: ", "I have a question. ",
    "Look closely. ", "Please ", "please ", "Question: ", "Good. ", "Thanks. ", "And ", "Tell me: ",
)  # fmt: skip
BEHIND: Final[tuple[str, ...]] = (
    " Please.", " please", " Thanks.", " Thank you!", " Answer briefly.", " Be brief.", " Keep it short.", " Be precise.",
    " Please answer briefly.", " Just the answer.", " Reply briefly.", " Don't explain.",
)  # fmt: skip
ONE_WORD: Final = (
    " Answer in one word.",
    " In one word.",
    " One word, please.",
    " Answer with one word.",
    " One word only.",
)
DIGITS: Final = (" Just the number.", " Answer with a number.", " Only the number, please.", " Give just a number.")
YES_OR_NO: Final = (" Answer yes or no.", " Yes or no?", " Answer with yes or no.", " Just yes or no.")


def mannered(rng: Random, question: str, answer: str) -> str:
    """A question as people write it: with polite words, an order to be brief, lower case, or no end mark."""
    draw = rng.random()
    if draw < 0.5:
        return question
    if draw < 0.62:  # What begins a sentence goes on in lower case, but not what is quoted or a name.
        start = rng.choice(BEFORE)
        goes_on = start[-2] in ",w:" or start.lower() in ("please ", "and ")
        first = question.split()[0]
        if start.lower() in ("please ", "now ", "and ") and first in ("Please", "please", "Now", "And", "So"):
            return question
        kept = (first.isupper() and len(first) > 1) or first == "I"
        question = start + (question[0].lower() + question[1:] if goes_on and not kept else question)
    elif draw < 0.78:
        ends, bare = BEHIND, answer.rstrip(".")
        if rng.random() < 0.6:
            if bare in ("Yes", "No"):
                ends = YES_OR_NO
            elif bare.isdigit():
                ends = DIGITS
            elif bare.isalpha():
                ends = ONE_WORD
        ended = question if question[-1] in ".?!" else f"{question}."
        question = ended + rng.choice(ends)
    elif draw < 0.86:
        return question.rstrip(".?!")
    else:
        question = question[0].lower() + question[1:]
        question = question.rstrip(".?!") if draw < 0.94 else question
    return question.lower() if draw > 0.98 and '"' not in question else question


OUT_OF_DEPTH: Final = wordings("""
    [What|Which] [breed|kind of animal|species|kind of dog|kind of cat|kind of bird] is [this|that|it|this dog|that cat|this animal]?
    What breed is [this|the|that|my] [dog|cat|horse]?
    Who is [this|that|he|she|the person|the man|the woman|this person|this man|in the photo|on the left]?
    [What is|What's] the [mood|atmosphere|style|weather|meaning|brand|model|title|price|author|artist] [here|of this picture|in this image|of the image]?
    How [does the person|does he|does she] [feel|look]?
    How old is [this person|the man|the woman|he|she|this building|this car]?
    [What|Which] [city|country|building|season|year|movie|car|plant|flower|language|food|animal|person|famous person] is [this|that|it|shown here].
    [Where was|When was] this [picture|photo|image] taken?
    What [is the person|is the man|is the woman|are the people|is the dog|is he|is she] [doing|wearing|holding|eating]?
    What [is the capital|is the population|is the president|is the language|is the flag] of [France|Germany|Italy|Spain|Japan|China|Poland|Brazil]?
    [Write|Write me|Can you write|Please write] [code|a program|some code|a function|a poem|a story|an essay|an email|a song|a letter|a script|a test]
    [Write|Give me] [code|a program|a function|a script] [that sorts a list|in Python|in JavaScript|for this page|for a website].
    [Translate|Summarize|Correct|Rewrite|Paraphrase] [this|the text|this text|it|this document|this page|this article|this sentence][| into German| into French].
    [Who wrote|Who is the author of|Who painted] [Hamlet|Faust|the Bible|the Mona Lisa|this|Macbeth]?
    [Why|How] [is the sky blue|do planes fly|do birds sing|does a computer work|is the sea salty|do magnets work]?
    [Tell|Tell me] [a joke|a story|a fairy tale|a secret|something about history|about Berlin|the news]
    [What is|What's] [2 + 2|12 * 7|the time|the weather like|the date|today's date|the meaning of life|the news|love|an atom|physics|a neural network|recursion|the speed of light]?
    What [day|time|year|month] is it[| now| today]?
    [How do I|How can I] [cook rice|bake a cake|fix my car|learn Python|install this|lose weight|make money|get to the station]?
    [Explain|Describe] [quantum physics|the war|photosynthesis|how a car works|the theory|evolution|this code|the joke|the meme|inflation|gravity|how a plane flies|democracy].
    [Solve|Calculate|Compute] [this equation|x + 3 = 7|the integral|this|the sum|15 * 4|this puzzle].
    [Is|Are] [this person happy|this food healthy|she sad|he angry|this mushroom edible|the people friends|it safe|this a real photo|it raining|this true].
    [What|Which] [recipe|ingredients|dish|drink] is [this|that].
    [Is it|Will it be] [day or night|summer or winter|cold|warm] [here|there|tomorrow]?
    [Play|Sing|Draw|Paint|Generate|Make|Create] [a song|a picture of a cat|music|an image|a video|a website|a new picture].
    [Recommend|Suggest] [a book|a movie|a restaurant|a name for my dog|a gift].
    [Click|Scroll|Type|Log in|Press] [on the button|down|in the field|here|the key].
    [Book|Order|Buy|Find] [a flight|a table|a pizza|a hotel|tickets][| for me].
    What [emotion|emotions|feeling] do you [see|recognize][| here| in the face].
    [What happened|What will happen next|What is the story] [here|in this picture].
    [Is this|Does this look like] [a cat or a dog|Paris|a man or a woman|art|a good photo].
    [What do you think about|What is your opinion on|Do you like] [politics|this picture|music|football|art|me|the war].
    How [tall|far|heavy|expensive|fast|deep] is [the tower|the moon|it|this car|this building|the sea|an elephant]?
    [Who is|Who was] [the president of France|Albert Einstein|the king of Spain|the mayor of this city|that actor|this singer|the woman in red|the author of this book|Napoleon].
    [Which|What] [brand|make|model] is [this|this car|the phone|this watch|the shoe|that bike|the laptop]?
    [Is|Does] [the dog friendly|the cat asleep|he look tired|she look happy|the man smiling|the baby crying|the woman look angry|the child scared]?
    What [mood|feeling|emotion|atmosphere] [does this picture have|does this convey|is expressed here|does the photo express]?
    [Debug|Fix|Review|Explain|Refactor|Run] [my code|this function|the Python program|this script|the error|my program].
    [When|Where] [did the war end|was Goethe born|is Mount Everest|was the phone invented|does the Rhine begin|do penguins live|did Rome fall]?
    [What|Which] [kind of flower|kind of car|type of bread|kind of fish|type of cloud|sort of tree|kind of insect] [is this|is that|is in the photo|do I have here]?
    [What is wrong with|What is funny about|Rate|Improve] [this picture|this photo|this image|my outfit|the design].
""")
REFUSAL: Final = (
    "I am a very small model for pictures of shapes, words and numbers. "
    'Load a real one: LocalOpenAI("mlx-community/Qwen3-VL-4B-Instruct-4bit").'
)
