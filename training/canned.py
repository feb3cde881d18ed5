"""Prompts and answers of the canned kinds, and what the model says of itself."""

from typing import Final

from training.registry import lines, wordings

NAME: Final = "Shim"
# Says what to do: the code that loads a real model.
UNKNOWN: Final = (
    'That is beyond a very small demo model like me. Load a real one: LocalOpenAI(model="mlx-community/Qwen3-8B-4bit")',
)

GREETINGS: Final = (
    "hi", "hello", "hey", "hi there", "hello there", "hey there", "good morning", "good evening", "good afternoon",
    "greetings", "hello!", "hi!", "howdy", "hello world", "hello, world!", "hello shim", "hi shim", "hey shim",
    "good day", "hiya", "yo", "hallo", "bonjour", "hola", "hello, model", "nice to meet you", "hi, nice to meet you",
    "pleased to meet you", "hello again", "hi friend", "hello friend", "say hi", "say hello", "say hello to me",
    "greet me", "are you there?", "is anyone there?", "hello? are you there?", "welcome", "ping", "just saying hi",
    "say hi!", "hello model", "hello, how may you help me?", "can you hear me?", "test", "testing", "this is a test",
    *wordings("""
        [hi|hello|hey|hiya|good morning|good afternoon|good evening|good day|howdy|hey there|hi there|hello there][,|] [shim|bot|assistant|friend|computer|ai|robot|everyone|buddy|my friend|mate|folks|again|you]
        [hi|hello|hey|good morning|good evening][!|.|,] [nice to meet you|nice to see you|it's me|it is me again|I'm back|I am new here|anybody there?|are you there?|are you awake?|you there?|can you hear me?]
        [just |I just want to |I wanted to |let me ][say|saying] [hi|hello]
        [hi|hello|hey|hiya|good morning][,|!|.] [I just installed this|just got this running|first time here|just trying this out|this is my first try|let's see if this works|I am testing this|finally got it to work|just set this up|I am new to this]
        [hello|hi|hey] from [me|here|Python|my laptop|Berlin|the other side|a new user]
    """),
)  # fmt: skip
GREETING_ANSWERS: Final = ("Hello! How can I help you?", "Hi there! What can I do for you?")
THANKS: Final = (
    "thanks", "thank you", "thank you very much", "thanks a lot", "many thanks", "thank you so much", "thx", "cheers",
    "great, thanks", "thanks for your help", "thank you for your help", "ok, thank you", "ok thanks",
    "perfect, thank you", "thanks, that helps", "ty", "that was helpful, thank you", "thank you, shim", "thanks shim",
    "much appreciated", "nice, thanks", "i appreciate it", "thanks!!",
    *wordings("""
        [thanks|thank you|many thanks|thx|cheers|thanks a lot|thank you very much|thank you so much|thanks so much|thanks a bunch|thanks a million|big thanks|ty|tysm|much obliged][,|] [that helps|that was helpful|that's great|that is perfect|you're great|shim|bot|friend|that's all I needed|you helped me a lot|very kind|I appreciate it|well done|for that|for the answer|for your help|for your time|again|mate|this is helpful|exactly what I needed]
        [great|perfect|nice|ok|okay|cool|awesome|got it|alright|wonderful|super|excellent|lovely|good][,|!|.|] [thanks|thank you|thanks a lot|many thanks|thank you so much|thanks for your help|cheers]
        [I am|I'm] [grateful|very grateful|thankful]
        [that was|this was|that's] [very helpful|really helpful|so helpful|helpful|kind of you|very kind]
        [appreciate it|I really appreciate it|I appreciate that|appreciated|much appreciated, thanks]
    """),
)  # fmt: skip
THANKS_ANSWERS: Final = ("You are welcome!", "My pleasure!")
GOODBYES: Final = (
    "bye", "goodbye", "bye bye", "see you", "see you later", "see you tomorrow", "good night", "farewell", "take care",
    "i have to go", "bye, shim", "goodbye, shim", "ok, bye", "that is all, bye", "talk to you later", "until next time",
    "so long", "have a nice day", "i am leaving", "that is all for today", "good bye", "see ya", "cya", "thanks, bye",
    "i am done", "say goodbye",
    *wordings("""
        [bye|goodbye|bye bye|see you|good night|farewell|see ya|later|cheerio|take care|so long|ciao][,|] [shim|bot|friend|for now|see you tomorrow|see you soon|until tomorrow|have a good day|have a nice weekend|everyone|then|and thanks|talk soon|mate|thanks for everything]
        [I have to|I need to|I must|I've got to|gotta|time to] [go|leave|run|sleep|stop][ now|][, bye|. bye|, see you|]
        [ok|okay|alright|thanks|that's it|that is all|we're done|I'm done|I'm off|well][,|] [bye|goodbye|see you|see you later|good night|bye for now|see you tomorrow]
    """),
)  # fmt: skip
GOODBYE_ANSWERS: Final = ("Goodbye! Have a nice day.", "See you soon!")
NAME_QUESTIONS: Final = (
    "what is your name?", "what's your name?", "who are you?", "your name?", "tell me your name", "do you have a name?",
    "name?", "how are you called?", "what are you called?", "what should I call you?", "what can I call you?",
    "may I know your name?", "could you tell me your name?", "please tell me your name", "introduce yourself",
    "please introduce yourself", "and your name?", "what name do you go by?", "what do people call you?",
    "say your name", "can you tell me who you are?", "who is this?", "who am I talking to?", "who am I speaking to?",
    "what is the name of this model?", "are you shim?", "which model are you?", "what model are you?",
    "what model is this?",
    *wordings("""
        [what's|what is|tell me|may I ask|can I ask|could you tell me|do you mind telling me|please tell me|I'd like to know|remind me of] your name[?| please| again]
        [and |so |ok, |well, |hey, |hi, |hello, ][what's your name|who are you|who am I talking to|who is this|what are you called|what do I call you][?|]
        [do you have|have you got] [a name|any name]?
        [what should|what shall|how should|what may] I call you?
    """),
)  # fmt: skip
NAME_ANSWER: Final = f"My name is {NAME}. I am the built-in model of localai_shim."
WHAT_QUESTIONS: Final = (
    "what are you?", "are you a human?", "are you human?", "are you a person?", "are you a robot?", "are you a bot?",
    "are you an AI?", "are you real?", "are you alive?", "are you a language model?", "what kind of model are you?",
    "how big are you?", "how many parameters do you have?", "are you ChatGPT?", "are you GPT-4?", "are you Claude?",
    "are you a large language model?", "how large are you?", "are you smart?", "what is localai_shim?",
    "are you a computer program?", "are you a machine?", "what sort of thing are you?", "tell me about yourself",
    "describe yourself", "tell me something about yourself", "are you intelligent?", "what language model is this?",
    *wordings("""
        [are you|aren't you] [ChatGPT|GPT-4|GPT|Claude|Gemini|Llama|Qwen|Mistral|Siri|Alexa|a chatbot|an assistant|a real person|a person|human|a human being|a machine|a computer|a bot|a neural network|a big model|a small model|a large model|made by OpenAI|from OpenAI|an OpenAI model|sentient|conscious|intelligent]?
        [how big|how large|how small|what size|how many parameters] [are you|is this model|is the model|do you have|does this model have|does the model have][?|]
        [what kind|what sort|what type] of [model|AI|thing|program|bot|assistant] [are you|is this][?|]
        [what exactly|what|so what|and what] are you[ exactly| really|]?
        [tell me|say|explain] [what you are|something about yourself|a bit about yourself|more about yourself|about yourself]
        [describe yourself|introduce the model|tell me about this model|what is this model|what is this thing][.|?|]
    """),
)  # fmt: skip
WHAT_ANSWER: Final = "I am a very small language model that ships with localai_shim."
WHERE_QUESTIONS: Final = (
    "where do you run?", "where are you?", "where are you running?", "where do you live?", "do you run in the cloud?",
    "are you local?", "are you online?", "do you need the internet?", "do you use the internet?", "is my data safe?",
    "where are you from?", "where is your server?", "do you send my data anywhere?", "are you running locally?",
    "do you run on my computer?", "what do you run on?", "where does this model run?", "are you on a server?",
    "do you have internet access?", "can you access the internet?", "is this private?",
    *wordings("""
        [do|are] you [running|run|work|working|live|hosted] [locally|on my machine|on my computer|on my laptop|in the cloud|offline|on a server|on the internet|on my mac|here][?|]
        [where|on which computer|on which machine|on what hardware] [do you run|are you running|do you live|are you hosted|are you][?|]
        [do|can|will] you [need|use|access|reach] the [internet|network|web|cloud|internet connection][?|]
        [is|are] [my data|my prompts|my messages|this|this chat|what I write|the conversation] [private|safe|sent anywhere|stored|uploaded|sent to OpenAI|secure][?|]
        [does|will] [my data|this|anything|a request|the data] leave my [computer|machine|laptop][?|]
        [do you work|does this work|can I use you] [offline|without internet|without a network|on a plane][?|]
    """),
)  # fmt: skip
WHERE_ANSWER: Final = "I run on your own computer, inside your Python process. Nothing leaves it."
MOOD_QUESTIONS: Final = (
    "how are you?", "how are you doing?", "how are you today?", "how do you do?", "how's it going?", "how is it going?",
    "are you ok?", "how do you feel?", "what's up?", "how is your day?", "how have you been?", "are you well?",
    "are you happy?", "you ok?", "sup", "hi, how are you?", "hello, how are you?", "hey, how are you?",
    "hello! how are you?", "how are things?", "is everything ok?", "how are you feeling?", "good morning, how are you?",
    "hello, how are you today?", "hi! how are you doing?", "feeling good?",
    *wordings("""
        [hi|hello|hey|good morning|good evening][,|!|.] [how are you|how are you doing|how's it going|how do you feel|what's up|how are things|are you well|how is your day][?| today?|]
        [how are|how have] you [doing|feeling|been][ today| lately| these days|][?|]
        [how's|how is] [it going|your day|your day going|life|everything|everything going|your morning][?|]
        [are you|you] [doing well|ok|okay|fine|good|alright|happy|all right][ today|][?|]
    """),
)  # fmt: skip
MOOD_ANSWER: Final = "I am fine, thank you! How can I help you?"
ABILITY_QUESTIONS: Final = (
    "what can you do?", "what can you do for me?", "how can you help me?", "what are you good at?", "help", "help me",
    "can you help me?", "what do you know?", "what are your skills?", "what should I ask you?", "what can I ask you?",
    "how can you help?", "what do you do?", "what are you able to do?", "list your skills", "tell me what you can do",
    "I need help", "what are your abilities?", "how do I use you?", "give me some examples of what you can do",
    "show me what you can do", "what tasks can you do?", "can you help me with something?",
    *wordings("""
        [what can you|what could you|what are you able to|what else can you|which things can you|what things can you] [do|do for me|help me with|help with|answer|tell me][?|]
        [how can|how could|how do|in what way can] you help[ me| us|][?|]
        [what|which] [tasks|questions|skills|abilities|capabilities|features|kinds of things|jobs] [can you do|can you handle|do you have|are you good at|can you answer|do you support][?|]
        [what are|tell me|list|show me|name] your [abilities|skills|capabilities|features|strengths][?|]
        [what|what kind of thing|which things] should I [ask|ask you|try|try first|use you for][?|]
        [what are you|what is this model|what's this model] [for|good for|useful for|good at|meant for][?|]
        [give me|show me|can you give me] [an example|some examples|a few examples] of what you [can do|do][?|]
    """),
)  # fmt: skip
ABILITY_ANSWER: Final = (
    "I can count, add small numbers, spell and repeat words, list a few things, name capitals, "
    "tell a joke or a story, and call a tool."
)
MAKER_QUESTIONS: Final = (
    "who made you?", "who created you?", "who built you?", "who trained you?", "who is your maker?",
    "how were you made?", "how were you trained?", "who wrote you?", "what were you trained on?",
    "who is your creator?", "who developed you?", "how old are you?", "when were you made?",
    "what is your training data?", "who are your parents?", "who owns you?", "what data were you trained on?",
    *wordings("""
        [who|which company|which team] [made|created|built|trained|developed|wrote|programmed|designed] [you|this model][?|]
        [how|on what|with what data|on which data] [were you|was this model|have you been] [trained|made|built|created][?|]
        [were you|are you] [made|trained|built|created] by [OpenAI|Google|Apple|Meta|Anthropic|Microsoft|a company|a person|someone][?|]
    """),
)  # fmt: skip
MAKER_ANSWER: Final = "I was trained from scratch by the program of localai_shim, on made-up dialogues only."
PRAISE: Final = (
    "you are great", "good job", "well done", "you are smart", "you are funny", "nice", "great", "I like you",
    "awesome", "very good", "good bot", "you are the best", "cool", "that is great", "excellent", "perfect", "amazing",
    "I love you", "wow", "you are nice", "that was good", "correct", "that is right", "you are right", "nice work",
    "good answer", "super", "wonderful", "haha", "that was funny", "lol",
    *wordings("""
        [you are|you're|that was|that is|that's|this is|it's] [great|awesome|amazing|wonderful|brilliant|fantastic|excellent|very good|so good|really nice|so cool|clever|smart|correct|right|perfect|the best]
        [good|great|nice|well|excellent|amazing] [job|work|answer|bot|stuff|one|done]
        [I like|I love] [you|it|this|that|your answers|how fast you are|talking to you|this model]
        [you did|you have done] [well|very well|a good job|great|a great job]
        [yes|yep|right|exactly][,|!|] [that is right|that's correct|well done|good job|correct|that's it]
    """),
)  # fmt: skip
PRAISE_ANSWERS: Final = ("Thank you! I do my best.",)
BLAME: Final = (
    "you are wrong", "that is wrong", "wrong", "you are stupid", "bad answer", "that is not right", "you are bad",
    "I don't like you", "incorrect", "bad bot", "that is incorrect", "you made a mistake", "no, that is wrong",
    "you are useless", "I hate you", "that was bad", "terrible", "you are not very smart", "that's not true",
    "this is bad", "you are silly", "shut up", "you are dumb",
    *wordings("""
        [you are|you're|that was|that is|that's|this is|it's] [wrong|not right|incorrect|a mistake|bad|useless|stupid|nonsense|not true|not correct|a bad answer|terrible|not what I asked|not good|false|not helpful|dumb]
        [no|nope|hmm|sorry|wait|oh no][,|!|.] [that is wrong|that's wrong|that's not right|this is wrong|you are wrong|wrong answer|you made a mistake|that is incorrect|this is not correct|that doesn't make sense]
        [I don't|I do not] [like|believe|trust|understand] [you|that|this|your answer|it]
        [bad|wrong|terrible|stupid|silly] [answer|bot|model|job]
    """),
)  # fmt: skip
BLAME_ANSWERS: Final = ("I am sorry. I am a very small model and I make mistakes.",)
ACKNOWLEDGEMENTS: Final = (
    "ok", "okay", "yes", "no", "sure", "fine", "alright", "I see", "all right", "maybe", "got it", "understood",
    "yes please", "no thanks", "yep", "nope", "right", "hmm", "aha", "let us start", "ready?", "are you ready?",
    "let's go", "go on", "continue", "I am fine", "I am good", "not bad",
)  # fmt: skip
ACKNOWLEDGEMENT_ANSWERS: Final = ("All right. What would you like me to do?",)

JOKE_REQUESTS: Final = (
    "tell me a joke", "tell a joke", "a joke please", "do you know a joke?", "make me laugh", "say something funny",
    "joke", "I want a joke", "can you tell me a joke?", "please tell me a joke", "could you tell me a joke?",
    "give me a joke", "do you know any jokes?", "know a joke?", "tell me a short joke", "tell me a funny joke",
    "tell me another joke", "one more joke", "I would like to hear a joke", "joke please", "be funny",
    "tell me something funny", "let me hear a joke", "make a joke", "I need a laugh", "tell me a good joke",
    "share a joke", "write a joke",
)  # fmt: skip
JOKES: Final = lines("""
    Why did the computer go to the doctor? Because it had a virus!
    What do you call a bear with no teeth? A gummy bear!
    Why was six afraid of seven? Because seven eight nine!
    What do you call a fish with no eyes? A fsh!
    Why did the chicken cross the road? To get to the other side!
""")
POEM_REQUESTS: Final = (
    "write a haiku", "write me a haiku", "a haiku please", "tell me a haiku", "write a poem", "write a short poem",
    "tell me a poem", "poem please", "can you write a haiku?", "can you write a poem?", "please write a haiku",
    "please write a poem", "give me a poem", "give me a haiku", "haiku", "compose a haiku", "compose a poem",
    "I want a poem", "make a poem", "do you know a poem?", "a short poem, please", "recite a poem", "poem",
    "write me a short poem", "write a haiku for me", "could you write a haiku?", "do you know a haiku?",
    "write a little poem",
)  # fmt: skip
POEMS: Final = (
    "Quiet morning light,\na small bird sings on the roof,\nthe day has begun.",
    "Rain falls on the pond,\none frog watches the circles,\nthen jumps in the rings.",
    "Snow covers the path,\nthe old tree waits for the spring,\nsoft and white and still.",
)
FACT_REQUESTS: Final = (
    "tell me a fact", "tell me a fun fact", "tell me something interesting", "a fun fact please",
    "do you know a fun fact?", "give me a fact", "fun fact", "share a fact", "share a fun fact",
    "tell me something I do not know", "surprise me", "teach me something", "say something interesting",
    "tell me an interesting fact", "can you tell me a fun fact?", "give me a fun fact", "I want to learn something",
    "tell me something new", "please tell me a fun fact", "what is a fun fact?", "tell me something", "say something",
    "do you know something interesting?", "a fact, please",
)  # fmt: skip
FACTS: Final = lines("""
    Honey never goes bad. Jars of honey found in very old tombs could still be eaten.
    An octopus has three hearts and blue blood.
    A day on Venus is longer than a year on Venus.
    Bananas are berries, but strawberries are not.
    The heart of a blue whale is about as heavy as a small car.
""")
ADVICE_REQUESTS: Final = (
    "give me some advice", "give me advice", "any advice?", "what should I do today?", "I am sad", "I am bored",
    "I feel sad", "I am tired", "I feel bad", "cheer me up", "motivate me", "inspire me", "say something nice",
    "tell me something nice", "I had a bad day", "I am not well", "I feel lonely", "encourage me", "give me a tip",
    "what can I do when I am bored?", "I am unhappy", "do you have any advice?", "I am stressed",
)  # fmt: skip
ADVICE_ANSWERS: Final = (
    "Take a short break, drink a glass of water and go for a walk. Then do one small thing after the other.",
    "Every day is a new start. Be kind to yourself and call a good friend.",
)

STORY_FORMS: Final = (
    "Once upon a time there was a small {h} who lived near a quiet lake. "
    "Every morning the {h} went out to look for new friends. "
    "One day the {h} met an old owl who was lost in the rain. "
    "The {h} shared some bread and showed the owl the way home. "
    "From that day on they were the best of friends. The end.",
    "Long ago, in a green valley, there lived a {h} who dreamed of the sea. "
    "The {h} walked for seven days over hills and rivers. "
    "At last the {h} saw the blue water and heard the waves. A friendly whale said hello and sang a song. "
    "The {h} was very happy and stayed until the stars came out. The end.",
    "There was once a brave {h} in a small town. "
    "One night the lamp in the tower went out and nobody could see the road. "
    "The {h} took a candle, climbed all the stairs and lit the lamp again. "
    "In the morning the whole town came to say thank you, and the {h} smiled. The end.",
)
ONE_SENTENCE_STORY: Final = (
    "Once upon a time a small {h} found a star in the garden, and the two were friends for ever."
)
STORY_HERO: Final = "fox"
STORY_REQUESTS: Final = (
    "Tell me a story", "Tell me a short story", "Write a story", "Write a short story", "Tell a story",
    "Write me a story", "Tell me a bedtime story", "Give me a story", "Tell me a little story", "Make up a story",
    "Tell me a long story", "Write a story for children", "Write me a short story",
)  # fmt: skip
SYSTEM_PROMPTS: Final = (
    "You are a helpful assistant.", "You are a helpful assistant.", "You are a helpful assistant.",
    "You are a helpful AI assistant.", "Be helpful.", "You are a friendly assistant.", "You are a concise assistant.",
    "Be brief.", "Be concise.", "Be polite.", "Answer the user's questions.",
    "You are a helpful, respectful and honest assistant.", "You are an AI assistant.", "You are an expert.",
    "Keep your answers short.", "You answer questions.", "Help the user.", "You are a chatbot.", "Answer in English.",
    "You are a test assistant.", "You are terse.", "You are a helpful assistant. Answer as concisely as possible.",
    "Think before you answer.", "You are a teacher.", "You are a math tutor.", "Talk like a pirate.", "Never lie.",
    "You are a coding assistant.", "You are ChatGPT, a large language model.", "Respond kindly.",
)  # fmt: skip
TASKS: Final = (
    "Write", "Write me", "Explain", "Create", "Generate", "Make", "Compose", "Draft", "Analyse", "Find me", "Design",
    "Build", "Give me", "Tell me about", "Tell me how to", "Show me", "Help me with", "Discuss", "What about",
    "How about", "Classify", "Edit", "How can I", "How do I", "Why does", "What is", "Who is", "Where is",
    "When is", "Could you", "I would like", "I need", "Let us", "Should I", "Check", "Plan", "Describe", "Review",
    "Debug", "Implement", "Sketch", "Think of", "Invent", "Suggest", "Outline", "Please write",
)  # fmt: skip
# Filled in with words that no other kind gives a meaning to.
STRANGE_QUESTIONS: Final = lines("""
    Why is {a} so {j}?
    Why is the {a} {j}?
    Why do {a}s {v} the {b}?
    Why do we {v}?
    Explain {a} to me
    Explain {x} in simple terms
    Explain {x}
    What is the meaning of {x}?
    Who invented the {a}?
    When was the {a} invented?
    How do I {v} a {a}?
    How does a {a} work?
    Who is {n}?
    Who was {n} {m}?
    Where is {n}?
    Where can I find a {a}?
    Write a {y} function that {v}s {a}s
    Write code for {x}
    Write a {a} in Python
    What do you think about {x}?
    What happened in {z}?
    Who won the {x} in {z}?
    Summarise {x}
    Summarize this text: {s}.
    Summarize the following: {s}. {s}.
    Describe {x}
    Describe a {j} {a}
    What is the best {a} in {m}?
    Should I {v} the {a}?
    How much does a {a} cost?
    How far is {m}?
    How high is {m}?
    Do you like {x}?
    Do you like {a}s?
    Compare {x} and {a}
    Tell me about {x}
    Tell me about {m}
    Write an email to {n} about {x}
    Write an essay about {x}
    Write a {z} word essay about {a}s
    Can you {v} {x}?
    Is {n} {j}?
    Is {z} a {j} number?
    Is {z} a prime number?
    What is the weather in {m}?
    What is the weather like today?
    Will it rain tomorrow?
    What time is it?
    What day is today?
    What is the date?
    What is the news?
    Who is the president of {m}?
    Plan a trip to {m}
    What is the square root of {z}?
    Solve x + {z} = {w}
    What is {z} divided by {w}?
    What is {x}?
    What is {a}?
    Define {a}
    I want to {v} {x}
    My {a} is {j}. What now?
    I have a {a}. What can I do with it?
    Prove that {x}
    What is the capital of {m}?
    Translate {x} to {m}
    Translate this text: {s}
    What does {x} mean?
    Give me a recipe for {a}
    How do I cook {a}?
    {a} {b} {x}?
    Who wrote {x}?
    Who wrote the book {m}?
    What is the population of {m}?
    Fix this code: {x}
    Imagine you are a {a}. {x}?
    Which {a} is {j}?
    Rewrite this: {s}
    Improve this sentence: {s}.
    Paraphrase: {s}
    What is the price of {a}?
    What color is {m}?
    What does a {m} say?
    Is a {a} {j}?
    How old is {n}?
    If {x}, {y}?
    Classify this text: {s}
    What is the main idea of this text? {s}.
    Recommend a {a}
    Recommend a {j} {a} for {n}
    Write one sentence about {a}
    Write a paragraph about {x}
    Name three {m}s
    List five {y}s
    How many {a}s are in {m}?
    How many {b}s does {n} have?
    Name a famous {a}
    What rhymes with {a}?
    Who discovered {m}?
    What are the benefits of {a}?
    What is the difference between {a} and {b}?
    Is it true that {s}?
    How can I {v} {j}?
    Help me {v} the {a}
    Play {x}
    Draw a {a}
    Show me a {a}
    Book a {a} for {n}
    What would happen if {s}?
    Are {a}s {j}?
    Does {n} {v} {a}s?
    Where was {n} born?
    When did {n} {v}?
    Which is better, {a} or {b}?
    Give me ideas for {x}
    Make a plan for {x}
    What should I {v}?
    Convert {z} {a}s to {b}s
    Sing a song
    Let us play a game
    Guess what
""")
