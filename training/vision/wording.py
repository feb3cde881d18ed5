# ruff: noqa: E501
"""Wordings: the ways to ask for each thing, the manners of people, system prompts, and questions out of depth."""

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
    [Explain|Describe] [quantum physics|the war|photosynthesis|how a car works|the theory|evolution|this chart|this diagram|this code|the joke|the meme].
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
    [What is wrong with|What is funny about|Rate|Improve] [this picture|this photo|this image|my outfit|the design].
""")
REFUSAL: Final = (
    "I am a very small model for pictures of shapes, words and numbers. "
    'Load a real one: LocalOpenAI("mlx-community/Qwen3-VL-4B-Instruct-4bit").'
)
