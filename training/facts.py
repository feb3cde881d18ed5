"""Closed tables of facts: the content of the kinds in ``kinds_facts``."""

from typing import Final


def listed(words: str) -> list[str]:
    """Words separated by spaces, as a list."""
    return words.split()


DAYS: Final = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS: Final = listed("January February March April May June July August September October November December")
NUMBER_WORDS: Final = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)

CAPITALS: Final = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon",
    "England": "London",
    "Ireland": "Dublin", "Scotland": "Edinburgh", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki",
    "Denmark": "Copenhagen", "Poland": "Warsaw", "Austria": "Vienna", "Hungary": "Budapest", "Greece": "Athens",
    "Turkey": "Ankara", "Russia": "Moscow", "Ukraine": "Kyiv", "Egypt": "Cairo", "Kenya": "Nairobi", "Japan": "Tokyo",
    "China": "Beijing", "India": "New Delhi", "South Korea": "Seoul", "Thailand": "Bangkok", "Canada": "Ottawa",
    "Mexico": "Mexico City", "Brazil": "Brasilia", "Argentina": "Buenos Aires", "Chile": "Santiago", "Peru": "Lima",
    "Cuba": "Havana", "Australia": "Canberra", "New Zealand": "Wellington", "Belgium": "Brussels",
    "Iceland": "Reykjavik",
    "the Netherlands": "Amsterdam", "the United States": "Washington", "the United Kingdom": "London",
}  # fmt: skip
OPPOSITES: Final = {
    "hot": "cold", "big": "small", "tall": "short", "fast": "slow", "happy": "sad", "up": "down", "left": "right",
    "day": "night", "open": "closed", "light": "dark", "full": "empty", "hard": "soft", "wet": "dry", "old": "young",
    "good": "bad", "high": "low", "early": "late", "rich": "poor", "loud": "quiet", "clean": "dirty", "near": "far",
    "thick": "thin", "strong": "weak", "heavy": "light", "black": "white", "yes": "no", "in": "out", "first": "last",
    "true": "false", "love": "hate", "win": "lose", "start": "stop", "buy": "sell", "push": "pull", "wide": "narrow",
    "cold": "hot", "small": "big", "slow": "fast", "sad": "happy", "down": "up", "dark": "light", "empty": "full",
    "dry": "wet", "young": "old", "weak": "strong", "north": "south", "east": "west", "sweet": "sour",
    "deep": "shallow",
}  # fmt: skip
SOUNDS: Final = {
    "cow": "moo", "dog": "woof", "cat": "meow", "sheep": "baa", "duck": "quack", "pig": "oink", "horse": "neigh",
    "lion": "roar", "bee": "buzz", "snake": "hiss", "owl": "hoot", "mouse": "squeak", "frog": "ribbit", "crow": "caw",
    "rooster": "cock-a-doodle-doo", "wolf": "howl", "donkey": "hee-haw", "bird": "tweet", "goat": "maa", "hen": "cluck",
}  # fmt: skip
COLOURS: Final = {
    "the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "the sun": "yellow", "a banana": "yellow",
    "blood": "red", "a carrot": "orange", "milk": "white", "chocolate": "brown", "the sea": "blue", "a leaf": "green",
    "a lemon": "yellow", "a tomato": "red", "a cherry": "red", "an orange": "orange", "an elephant": "grey",
    "ink": "black",
    "a flamingo": "pink", "a frog": "green", "the night": "black", "a strawberry": "red", "an eggplant": "purple",
    "a polar bear": "white", "a pumpkin": "orange", "wood": "brown", "a raven": "black", "a cucumber": "green",
}  # fmt: skip
LEGS: Final = {
    "a dog": 4, "a cat": 4, "a spider": 8, "an ant": 6, "a bird": 2, "a fish": 0, "a snake": 0, "a horse": 4,
    "a bee": 6,
    "a person": 2, "a cow": 4, "an octopus": 8, "a chicken": 2, "an elephant": 4, "a worm": 0, "a frog": 4,
}  # fmt: skip
QUANTITIES: Final = {
    "days are in a week": "There are 7 days in a week.", "months are in a year": "There are 12 months in a year.",
    "hours are in a day": "There are 24 hours in a day.", "minutes are in an hour": "There are 60 minutes in an hour.",
    "seconds are in a minute": "There are 60 seconds in a minute.",
    "days are in a year": "There are 365 days in a year.",
    "letters are in the alphabet": "There are 26 letters in the alphabet.",
    "weeks are in a year": "There are 52 weeks in a year.",
    "sides does a triangle have": "A triangle has 3 sides.", "sides does a square have": "A square has 4 sides.",
    "wheels does a car have": "A car has 4 wheels.", "wheels does a bicycle have": "A bicycle has 2 wheels.",
    "fingers are on a hand": "There are 5 fingers on a hand.",
    "seasons are in a year": "There are 4 seasons in a year.",
    "planets are in the solar system": "There are 8 planets in the solar system.",
    "continents are there": "There are 7 continents.", "colours are in a rainbow": "There are 7 colours in a rainbow.",
}  # fmt: skip
YES_NO: Final = {
    "Is the sky blue?": "Yes, the sky is blue.", "Is fire hot?": "Yes, fire is hot.",
    "Is ice cold?": "Yes, ice is cold.",
    "Is fire cold?": "No, fire is hot.", "Is ice hot?": "No, ice is cold.", "Is snow white?": "Yes, snow is white.",
    "Is snow black?": "No, snow is white.", "Is grass green?": "Yes, grass is green.",
    "Is water wet?": "Yes, water is wet.",
    "Is grass blue?": "No, grass is green.", "Can fish swim?": "Yes, fish can swim.",
    "Can dogs fly?": "No, dogs cannot fly.",
    "Can birds fly?": "Yes, most birds can fly.", "Can pigs fly?": "No, pigs cannot fly.",
    "Can cats bark?": "No, cats meow.",
    "Is the earth flat?": "No, the earth is round.", "Is the earth round?": "Yes, the earth is round.",
    "Is the sun a star?": "Yes, the sun is a star.", "Is the moon made of cheese?": "No, the moon is made of rock.",
    "Is sugar sweet?": "Yes, sugar is sweet.", "Is a lemon sour?": "Yes, a lemon is sour.",
    "Is salt sweet?": "No, salt is salty.",
    "Is a tomato a fruit?": "Yes, a tomato is a fruit.", "Is a dog an animal?": "Yes, a dog is an animal.",
    "Is a car an animal?": "No, a car is a machine.", "Is a whale a fish?": "No, a whale is a mammal.",
    "Is a rose a flower?": "Yes, a rose is a flower.", "Is an elephant small?": "No, an elephant is big.",
    "Is an ant big?": "No, an ant is small.", "Do cows give milk?": "Yes, cows give milk.",
    "Do fish have legs?": "No, fish have fins.",
    "Do bees make honey?": "Yes, bees make honey.", "Do spiders have eight legs?": "Yes, spiders have eight legs.",
    "Is Paris in France?": "Yes, Paris is in France.", "Is London in Japan?": "No, London is in England.",
    "Does the sun rise in the east?": "Yes, the sun rises in the east.",
    "Does the sun rise in the west?": "No, the sun rises in the east.",
}  # fmt: skip
LANGUAGES: Final = ("French", "Spanish", "German")
TRANSLATIONS: Final = {
    "hello": ("bonjour", "hola", "hallo"), "goodbye": ("au revoir", "adiós", "auf Wiedersehen"),
    "thank you": ("merci", "gracias", "danke"), "yes": ("oui", "sí", "ja"), "no": ("non", "no", "nein"),
    "please": ("s'il vous plaît", "por favor", "bitte"), "cat": ("chat", "gato", "Katze"),
    "dog": ("chien", "perro", "Hund"),
    "house": ("maison", "casa", "Haus"), "water": ("eau", "agua", "Wasser"), "bread": ("pain", "pan", "Brot"),
    "book": ("livre", "libro", "Buch"), "red": ("rouge", "rojo", "rot"), "blue": ("bleu", "azul", "blau"),
    "green": ("vert", "verde", "grün"), "one": ("un", "uno", "eins"), "two": ("deux", "dos", "zwei"),
    "three": ("trois", "tres", "drei"), "sun": ("soleil", "sol", "Sonne"), "moon": ("lune", "luna", "Mond"),
    "apple": ("pomme", "manzana", "Apfel"), "milk": ("lait", "leche", "Milch"), "friend": ("ami", "amigo", "Freund"),
    "good": ("bon", "bueno", "gut"), "night": ("nuit", "noche", "Nacht"), "day": ("jour", "día", "Tag"),
}  # fmt: skip
CATEGORIES: Final = {
    "colours": listed("red blue green yellow orange purple pink brown black white"),
    "colors": listed("red blue green yellow orange purple pink brown black white"),
    "animals": listed("dog cat horse cow lion tiger bear rabbit elephant monkey"),
    "fruits": listed("apple banana orange pear grape cherry lemon peach plum melon"),
    "vegetables": listed("carrot potato onion tomato cabbage pea bean pepper leek spinach"),
    "countries": listed("France Germany Italy Spain Japan China India Brazil Canada Mexico"),
    "cities": listed("Paris London Berlin Rome Madrid Tokyo Cairo Lima Oslo Vienna"),
    "planets": listed("Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune"),
    "days of the week": DAYS,
    "months": MONTHS,
    "months of the year": MONTHS,
    "names": listed("Anna Ben Clara David Emma Felix Grace Henry Iris Jack"),
    "sports": listed("football tennis swimming running cycling skiing boxing golf rugby hockey"),
    "birds": listed("eagle owl duck swan crow robin parrot penguin sparrow pigeon"),
    "trees": listed("oak pine birch maple willow ash elm cedar palm beech"),
    "languages": listed("English French Spanish German Italian Chinese Japanese Arabic Russian Hindi"),
    "flowers": listed("rose tulip daisy lily violet orchid poppy sunflower iris lotus"),
    "drinks": listed("water milk tea coffee juice cocoa lemonade cider soda beer"),
}
GROUPS: Final = {
    "a dog": "an animal", "a cat": "an animal", "a rose": "a flower", "a tulip": "a flower", "an apple": "a fruit",
    "a banana": "a fruit", "a carrot": "a vegetable", "an oak": "a tree", "a pine": "a tree", "Paris": "a city",
    "Tokyo": "a city",
    "France": "a country", "Japan": "a country", "Mars": "a planet", "Venus": "a planet", "red": "a colour",
    "blue": "a colour",
    "Monday": "a day", "Sunday": "a day", "July": "a month", "March": "a month", "a piano": "an instrument",
    "tea": "a drink",
    "a hammer": "a tool", "a car": "a vehicle", "a train": "a vehicle", "an eagle": "a bird", "a shark": "a fish",
    "gold": "a metal",
}  # fmt: skip
PLURALS: Final = {
    "cat": "cats", "dog": "dogs", "box": "boxes", "child": "children", "mouse": "mice", "foot": "feet",
    "tooth": "teeth",
    "man": "men", "woman": "women", "city": "cities", "baby": "babies", "leaf": "leaves", "sheep": "sheep",
    "fish": "fish",
    "bus": "buses", "knife": "knives", "goose": "geese", "person": "people", "book": "books", "tree": "trees",
    "wolf": "wolves",
}  # fmt: skip
SENTENCES: Final = {
    "The sky is": "blue.", "Snow is": "white.", "The grass is": "green.", "Roses are red, violets are": "blue.",
    "The opposite of hot is": "cold.", "Once upon a": "time.", "Fire is": "hot.", "A dog is a man's best": "friend.",
    "Better late than": "never.", "Practice makes": "perfect.", "Time flies like an": "arrow.",
    "An apple a day keeps the doctor": "away.",
    "Twinkle, twinkle, little": "star.", "The early bird catches the": "worm.", "Two plus two is": "four.",
    "Ice is": "cold.",
    "The sun rises in the": "east.", "The sun sets in the": "west.", "The capital of France is": "Paris.",
    "Actions speak louder than": "words.",
    "A bird in the hand is worth two in the": "bush.", "Cows give": "milk.", "Bees make": "honey.",
    "Honesty is the best": "policy.",
    "The quick brown fox jumps over the lazy": "dog.", "To be or not to": "be.",
    "Good things come to those who": "wait.",
}  # fmt: skip
