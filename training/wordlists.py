"""Words, names and made-up strings that the dialogues are filled with."""

from random import Random
from typing import Final


def listed(words: str) -> tuple[str, ...]:
    """Words separated by white space, as a tuple."""
    return tuple(words.split())


NOUNS: Final = listed(
    """apple arrow baby bag ball banana basket bath beach bean bear bed bee bell bench berry bike bird blanket boat
    body bone book boot bottle bowl box boy branch bread brick bridge brother brush bucket bus butter button cabin cake
    camel camera candle car card carpet carrot castle cat cave chain chair cheese cherry chicken child church circle
    city clock cloud coat coffee coin comb computer corner cotton cousin cow crab crown cup curtain daughter desk
    diamond dinner doctor dog doll door dragon drawer dream dress drum duck eagle ear earth egg elephant engine evening
    eye face family farm farmer father feather fence field finger fire fish flag flame floor flower fly food foot
    forest fork fox friend frog fruit garden gate ghost giraffe girl glass glove goat gold goose grandmother grape
    grass guitar hammer hand hat hen hill holiday home honey horse hospital hotel house ice idea island jacket jar
    jelly jungle key king kitchen kite kitten knife ladder lake lamp leaf lemon letter library light lion lizard lunch
    machine magnet map market mask meadow milk mirror money monkey moon morning mother mountain mouse mouth music nail
    neck needle nest night nose number nurse nut ocean office oil onion orange orchard owl paint palace paper parrot
    party path peach pear pen pencil people pepper person piano picture pig pillow pirate plane planet plant plate
    pocket poem pond potato prince puzzle queen rabbit radio rain rainbow ring river road robot rock rocket roof room
    rose salad salt sand school sea seed shadow sheep shell ship shirt shoe shop silver sister sky snail snake snow
    soap sock sofa song soup spider spoon square stair star station stone storm story street student sugar summer sun
    swan table tail tea teacher tent thing ticket tiger time tomato tooth tower town toy train tree truck trumpet
    turtle umbrella uncle valley village violin voice wagon wall water wave whale wheel whistle wind window winter
    wolf woman wood word world yard zebra"""
)
ADJECTIVES: Final = listed(
    """angry bad beautiful big bitter black blue brave bright broken brown busy calm careful cheap clean clever cold
    cool curious dark deep dry early empty fair famous fast fat fine flat free fresh full funny gentle good great green
    grey happy hard heavy high honest hot huge hungry kind large late lazy little long loud lucky new nice noisy old
    open orange pale pink plain polite poor pretty proud purple quick quiet rare red rich round sad safe sharp short
    shy silent silly simple slow small smart smooth soft sour strange strong sweet tall tame thick thin tiny tired
    warm weak wet white wide wild wise yellow young"""
)
VERBS: Final = listed(
    """asks bakes breaks brings builds buys calls carries catches chases cleans climbs closes cooks counts cuts draws
    drinks drives drops eats feeds finds fixes follows forgets gets gives has hears helps hides holds hugs keeps kicks
    knows learns leaves likes loses loves makes meets moves needs opens paints picks plays pulls pushes reads remembers
    sees sells sends shares shows sings steals takes teaches throws touches wants washes watches wears writes"""
)
OTHERS: Final = listed(
    """about above after again all almost always and another any around at away back because before behind below between
    but by down each every few first for from hello here how if in inside into it just last many maybe me more most
    much my near never next no not now of often on one only or other our out outside over please quickly second she
    slowly so some soon still ten than that the their then there they this three through to today together tomorrow
    too two under until up very we well what when where which who why with without yes yesterday you your"""
)
WORDS: Final = NOUNS + ADJECTIVES + VERBS + OTHERS
NAMES: Final = listed(
    """Ada Adam Aisha Alan Alex Alice Amir Amy Ana Andrew Anna Anton Arthur Ava Ben Beth Bob Boris Carl Carla Carlos
    Chen Chloe Chris Clara Dan Daniel David Diana Diego Dora Elena Ella Emil Emily Emma Eric Eva Farah Felix Fiona Frank
    Fred Gina Grace Greta Hana Hannah Harry Hassan Helen Henry Hugo Ian Ida Igor Ines Iris Isaac Ivan Jack James Jane
    Jean Jill Jim Joan Joe John Jonas Julia Julie Kai Karen Karl Kate Kim Kofi Kurt Lara Laura Lea Leo Lena Liam Lily
    Linda Lisa Lucas Lucy Luis Luna Maria Marie Mark Marta Martin Mary Max Maya Mei Mia Mila Mohammed Monica Nadia Nina
    Noah Nora Olga Oliver Omar Oscar Otto Paul Pedro Peter Priya Rachel Ravi Rita Rob Rosa Ruth Ryan Sally Sam Samir
    Sara Sarah Simon Sofia Sophie Steve Sue Susan Tara Ted Theo Tim Tina Tom Tony Ugo Uma Vera Victor Walter Wendy
    William Xavier Yara Yuki Yusuf Zara Zoe"""
)
ONSETS: Final = listed(
    "b c d f g h j k l m n p r s t v w y z bl br ch cl cr dr fl fr gl gr ph pl pr qu sh sk sl sm sn st str th tr tw"
)
VOWELS: Final = listed("a a e e i i o o u ai ea ee ie oa oo ou y")
CODAS: Final = ("", "", "", *listed("b ck d f g l ll m n nd ng nk nt p r rd rk rm s ss st t th x"))
OTHER_CHARACTERS: Final = (
    "éèüöäßñçåøłžšğıéáíóúâêôàìòùαβγδλπσωабвгдежзиклмноп"
    "рстуяあいうえおかきアイ日本語中文字人大小水火한국어שלום€£°§±×÷→★♥✓😀🎉🚀🐱"
)
SYMBOLS: Final = "!#$%&()*+-./:;<=>?@[]^_{|}~"


LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def made_up_word(rng: Random) -> str:
    """A pronounceable word of one to three syllables, in lower case."""
    syllables = rng.choice((1, 2, 2, 2, 3))
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(syllables))


def letter_string(rng: Random) -> str:
    """Two to seven random lower-case letters."""
    return "".join(rng.choice(LETTERS) for _ in range(rng.randint(2, 7)))


def word(rng: Random) -> str:
    """A dictionary word, a made-up word or a string of letters, in lower case."""
    form = rng.random()
    if form < 0.55:
        return rng.choice(WORDS)
    return made_up_word(rng) if form < 0.9 else letter_string(rng)


def noun(rng: Random) -> str:
    """A noun, sometimes a made-up one, in lower case."""
    return rng.choice(NOUNS) if rng.random() < 0.7 else made_up_word(rng)


def name(rng: Random) -> str:
    """A first name, sometimes a made-up one, capitalised."""
    return rng.choice(NAMES) if rng.random() < 0.5 else made_up_word(rng).capitalize()


def token_string(rng: Random) -> str:
    """One to eight random characters of any script, digits and symbols included."""
    pool = rng.choice(("0123456789", SYMBOLS, OTHER_CHARACTERS, LETTERS, LETTERS.upper()))
    return "".join(rng.choice(pool) for _ in range(rng.randint(1, 8)))


def sentence(rng: Random) -> str:
    """A short sentence that is grammatical most of the time, without an end mark."""
    article, other = (
        rng.choice(("The", "A", "My", "Your", "Our", "This", "Every")),
        rng.choice(("the", "a", "my", "some")),
    )
    forms = (
        f"{article} {rng.choice(ADJECTIVES)} {noun(rng)} {rng.choice(VERBS)} {other} {noun(rng)}",
        f"{article} {noun(rng)} is {rng.choice(ADJECTIVES)} and {rng.choice(ADJECTIVES)}",
        f"{name(rng)} {rng.choice(VERBS)} {other} {rng.choice(ADJECTIVES)} {noun(rng)}",
        f"I like {noun(rng)} and {noun(rng)}",
        f"There are {rng.randint(2, 99)} {noun(rng)}s in {other} {noun(rng)}",
        f"We saw {other} {noun(rng)} near {other} {noun(rng)}",
    )
    return rng.choice(forms)


def phrase(rng: Random, shortest: int = 2, longest: int = 10) -> str:
    """Several words: a sentence, a run of random words, or a run of strings of any characters."""
    form = rng.random()
    if form < 0.3:
        text = sentence(rng)
    else:
        length = rng.randint(shortest, longest)
        make = token_string if form > 0.88 else word
        words = [make(rng) if rng.random() < 0.93 else str(rng.randrange(10_000)) for _ in range(length)]
        text = " ".join(words)
    casing = rng.random()
    if casing < 0.25:
        text = text.capitalize()
    elif casing < 0.35:
        text = text.lower()
    elif casing < 0.4:
        text = text.title()
    elif casing < 0.43:
        text = text.upper()
    return text + rng.choice(("", "", "", "!", ".", "?"))
