"""Shapes of made-up records: what they are called, their fields, and values that fit a field."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from training import values, wordlists
from training.facts import CAPITALS
from training.registry import lines, wordings

Maker = Callable[[Random], Any]
BEFORE_VOWEL: Final = re.compile(r"\b([Aa]) (?=[aeiouAEIOU8])").sub


def words_of(text: str) -> Maker:
    """One of some phrases, separated by commas."""
    options = tuple(part.strip() for part in text.split(","))
    return lambda rng: rng.choice(options)


def pattern(text: str) -> Maker:
    """A sentence of a pattern, with {n} a noun, {a} an adjective, {w} a made-up word, {p} a name and {i} a number."""
    forms = wordings(text)
    return lambda rng: filled(rng, rng.choice(forms))


def filled(rng: Random, form: str) -> str:
    """A pattern with fresh words in its places."""
    for place, make in FILLS.items():
        while place in form:
            form = form.replace(place, make(rng), 1)
    return an(form)


def an(text: str) -> str:
    """The text with the article that the next word takes."""
    return BEFORE_VOWEL(r"\1n ", text)


def styled(style: int, key: str) -> str:
    """A key in snake case, camel case, with spaces, or in one of the rarer manners."""
    parts = key.split("_")
    if style < 6:
        return key
    if style < 9:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return (" ".join(parts).title(), " ".join(parts), key.upper(), "".join(part.capitalize() for part in parts))[
        style - 9
    ]


def whole(low: int, high: int) -> Maker:
    """A whole number."""
    return lambda rng: rng.randint(low, high)


def real(low: float, high: float, digits: int) -> Maker:
    """A number with digits after the point."""
    return lambda rng: round(rng.uniform(low, high), digits)


def some(make: Maker, fewest: int = 1, most: int = 5) -> Maker:
    """A list of values without repetition."""
    return lambda rng: list(dict.fromkeys(make(rng) for _ in range(rng.randint(fewest, most))))


def flag(rng: Random) -> bool:
    """Yes or no."""
    return rng.random() < 0.5


FILLS: Final[dict[str, Maker]] = {
    "{n}": lambda rng: rng.choice(wordlists.NOUNS), "{a}": lambda rng: rng.choice(wordlists.ADJECTIVES),
    "{N}": lambda rng: rng.choice(wordlists.NOUNS).capitalize(),
    "{A}": lambda rng: rng.choice(wordlists.ADJECTIVES).capitalize(),
    "{v}": lambda rng: rng.choice(wordlists.VERBS), "{w}": wordlists.made_up_word,
    "{W}": lambda rng: wordlists.made_up_word(rng).capitalize(), "{p}": lambda rng: rng.choice(wordlists.NAMES),
    "{i}": lambda rng: str(rng.randint(2, 99)),
}  # fmt: skip
CITIES: Final = tuple(dict.fromkeys(CAPITALS.values()))
COUNTRIES: Final = tuple(name for name in CAPITALS if name[0].isupper())
COLORS: Final = "red, blue, green, black, white, brown, grey, yellow, orange, purple, pink, silver, gold"
JOBS: Final = (
    "teacher, doctor, nurse, engineer, software engineer, farmer, cook, pilot, artist, writer, lawyer, driver, baker, "
    "student, designer, manager, scientist, singer, gardener, carpenter, accountant, musician, librarian, dentist"
)
FOODS: Final = (
    "rice, pasta, tomatoes, onions, garlic, salt, sugar, flour, butter, eggs, milk, cheese, potatoes, chicken, fish, "
    "carrots, beans, lemon, olive oil, honey, bread, apples, mushrooms, pepper, basil, cream, spinach, corn"
)
MAKERS: Final[dict[str, Maker]] = {
    "first": lambda rng: rng.choice(wordlists.NAMES),
    "last": pattern("""
        [Smith|Miller|Brown|Jones|Garcia|Novak|Klein|Silva|Rossi|Larsen|Khan|Tanaka|Weber|Moreau|Green|Wood]
        {W}
    """),
    "person": lambda rng: rng.choice(wordlists.NAMES) + rng.choice(("", " " + MAKERS["last"](rng))),
    "pet": words_of("Rex, Bella, Max, Luna, Buddy, Milo, Coco, Rocky, Daisy, Molly, Charlie, Oscar, Lucky, Shadow, "
                    "Ginger, Felix, Nala, Simba, Rosie, Bruno, Pepper, Biscuit, Teddy, Zoe, Toby, Ruby"),
    "city": lambda rng: rng.choice(CITIES), "country": lambda rng: rng.choice(COUNTRIES), "color": words_of(COLORS),
    "job": words_of(JOBS), "email": lambda rng: f"{rng.choice(wordlists.NAMES).lower()}@example.com"
    if rng.random() < 0.6 else values.email(rng),
    "phone": lambda rng: rng.choice(("+1-555-{}", "555-{}", "+49 30 {}", "0{}")).format(rng.randint(1000, 999_999)),
    "age": whole(18, 80), "years": whole(1, 15), "adjective": lambda rng: rng.choice(wordlists.ADJECTIVES),
    "noun": lambda rng: rng.choice(wordlists.NOUNS), "word": wordlists.word, "url": values.url, "code": values.code,
    "iso": lambda rng: f"{rng.randint(1990, 2030)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
    "stamp": lambda rng: f"{MAKERS['iso'](rng)}T{rng.randint(0, 23):02}:{rng.choice((0, 15, 30, 45)):02}:00Z",
    "clock": lambda rng: f"{rng.randint(0, 23):02}:{rng.choice((0, 15, 30, 45)):02}", "year": lambda rng: rng.randint(1990, 2026) if rng.random() < 0.7 else rng.randint(1800, 2030),
    "price": lambda rng: round(rng.uniform(1, 500), 2) if rng.random() < 0.7 else rng.randint(1, 900),
    "rating": lambda rng: rng.randint(1, 5) if rng.random() < 0.6 else round(rng.uniform(1, 5), 1),
    "small": whole(1, 12), "count": whole(1, 100), "duration": whole(5, 180), "pages": whole(40, 900), "stars": whole(1, 5), "several": whole(2, 12),
    "large": whole(100, 90_000), "weight": real(0.5, 60, 1),
    "share": lambda rng: round(rng.uniform(0, 1), rng.choice((1, 2))), "percent": whole(0, 100), "flag": flag,
    "temperature": whole(-10, 38), "degree": real(-90, 90, 4), "id": whole(1, 9999), "zip": whole(10_000, 99_999),
    "title": pattern("""
        [The|A|My] {A} {N}
        The {N} [and|of|in] the {N}
        {A} {N}
        {p} and the {N}
        The [last|first|lost|secret] {N}
        {N} [Stories|Days|Nights|Song|World]
        [Night|Journey|Return|Letters] [of|to] the {N}
    """),
    "product": pattern("""
        {A} {N}
        {W} {N}
        {N} [Pro|Mini|Plus|Set|{i}|Box]
    """),
    "company": pattern("""
        {W} [Inc.|Ltd|Systems|Foods|Labs|Group|Software|& Sons]
        {A} {N} [Inc.|Company|Group]
        {N}[works|soft|lab]
    """),
    "happening": pattern("""
        [Summer|Spring|Winter|Street|Music|Book|Food|Science|City|Garden] [Fair|Festival|Party|Market|Concert|Fest]
        [Team|Board|Project|Weekly|Planning] [Meeting|Lunch|Workshop|Call]
        {p}'s Birthday
        {N} Conference
    """),
    "place": pattern("""
        {W} [Park|Square|Bridge|Hall|Castle|Beach|Museum|Lake|Tower]
        [Central|Old|Royal|Green|City] [Park|Square|Hall|Library|Station|Garden]
        The {A} {N}
    """),
    "planet": pattern("""
        {W}
        {W} [Prime|Minor|{i}|Nova]
    """),
    "dish": pattern("""
        [Tomato|Potato|Onion|Carrot|Bean|Fish|Chicken|Mushroom|Apple|Lemon|Rice] [Soup|Pie|Salad|Stew|Curry|Cake|Bake]
        [Fried|Baked|Grilled|Spicy|Sweet] [Rice|Fish|Potatoes|Chicken|Tofu|Apples]
    """),
    "food": words_of(FOODS), "amount": pattern("[{i} g|1 cup|2 cups|{i} ml|1 tsp|2 tbsp|3|1|half a cup] [of |]{n}"),
    "street": pattern("{i} [{N}|{W}|Main|Park|Church|High|Station] [Street|Road|Avenue|Lane]"),
    "sentence": pattern("""
        [A|This|The] {a} {n} [for|with|from|near] [the|a] {a} {n}.
        [A|The] {a} and {a} {n}[.|]
        [It|He|She|This {n}] {v} [the|a] {a} {n}[.|]
        {p} {v} [a|the] {n}[ every day| in the morning| with a {n}| and a {n}|].
        [It|This] is [a|the] {a} {n}[ from {W}| that {v} the {n}|].
        [Good|Great|Perfect|Made] for [every|a {a}] {n}.
        The {n} is {a}, and the {n} is {a}.
        There [is|was] a {n} in the {n}.
    """),
    "step": pattern("""
        [Wash|Cut|Chop|Cook|Boil|Fry|Mix|Add|Bake|Heat|Stir] the [rice|onions|tomatoes|eggs|potatoes|beans|fish|butter][.|]
        [Serve|Cook|Bake|Wait|Stir|Boil] for {i} minutes[.|]
        [Add|Mix in] [salt|pepper|sugar|milk|the flour] and [stir|mix|serve|wait][.|]
        [Open|Close|Check|Clean|Take|Move|Find] the {n}[.|]
    """),
    "mail": pattern("""
        [Hi|Hello|Dear] {p}, [the {n} is ready|can you call me|thank you for the {n}|see you on Monday][.|!]
        [The {n} is {a}|I like the {n}|Please bring the {n}|We need a new {n}|The meeting is at 10][.|!]
    """),
    "subject": pattern("""
        [Meeting|Question|News|Update] [about|on] the {n}
        [Your|The|New] {n}
        [Invitation|Reminder|Thank you|Re: {N}]
        [The {n} is {a}|Problem with the {n}|Cannot open the {n}|{N} does not work]
    """),
    "opinion": pattern("""
        [I like it|Very good|It works well|A nice {n}|Great {n}|Not bad|Too {a}|I love the {n}|It broke after a week][.|!]
        [The {n} is {a}|Good {n}, {a} {n}|A {a} {n} for a good price][.|]
    """),
    "phrase": lambda rng: values.words(rng, 1, 4),
    "breed": words_of("Labrador, Poodle, Beagle, Bulldog, Terrier, Husky, Collie, Dachshund, Boxer, Siamese, Persian"),
    "species": words_of("dog, cat, horse, rabbit, bird, fox, wolf, lion, tiger, bear, owl, frog, snake, whale, mouse"),
    "gender": words_of("male, female, other"), "hobby": words_of(
        "reading, swimming, cooking, chess, music, football, painting, running, hiking, dancing, gardening, travel"),
    "language": words_of("English, German, French, Spanish, Italian, Japanese, Polish, Dutch, Chinese, Arabic"),
    "genre": words_of("drama, comedy, fantasy, mystery, romance, horror, science fiction, adventure, history, thriller"),
    "music": words_of("rock, pop, jazz, folk, blues, classical, hip hop, electronic, country, soul"),
    "platform": words_of("PC, console, mobile, web"), "category": words_of(
        "home, garden, sports, toys, books, electronics, clothing, food, office, music, travel, health, other"),
    "status": words_of("open, closed, pending, active, done, new, in progress, shipped, canceled, draft"),
    "priority": words_of("low, medium, high, urgent"), "size": words_of("small, medium, large, S, M, L, XL"),
    "currency": words_of("USD, EUR, GBP, JPY"), "material": words_of("wood, steel, glass, cotton, paper, stone, plastic"),
    "role": words_of("user, admin, editor, member, guest, owner, manager"), "weekday": lambda rng: rng.choice(values.DAYS),
    "sky": words_of("sunny, cloudy, rainy, windy, snowy, foggy, clear, stormy"), "level": words_of(
        "easy, medium, hard, beginner, advanced, intermediate"), "fuel": words_of("petrol, diesel, electric, hybrid"),
    "climate": words_of("hot, cold, mild, dry, wet, icy, tropical"), "sport": words_of(
        "football, basketball, hockey, tennis, rugby, volleyball"), "department": words_of(
        "sales, marketing, support, finance, research, legal"), "maker": words_of(
        "Toyota, Ford, Volvo, Honda, Fiat, Skoda, Tesla, Renault"), "mood": words_of("happy, calm, sad, angry, curious"),
    "industry": words_of("software, food, energy, finance, travel, health, education"),
    "diet": words_of("vegan, vegetarian, none, gluten free"), "username": lambda rng:
    rng.choice(wordlists.NAMES).lower() + rng.choice(("", str(rng.randint(1, 99)), "_" + rng.choice(wordlists.NOUNS))),
    "password": values.code, "terrain": words_of("rock, ice, desert, ocean, forest, gas"),
}  # fmt: skip
# Keys that mean the same.
SYNONYMS: Final[dict[str, tuple[str, ...]]] = {row.split()[0]: tuple(row.split()) for row in lines("""
    name name name full_name title label display_name
    title title title name headline heading
    age age age age years age_years age_in_years
    email email email e_mail email_address contact mail
    phone phone phone_number telephone mobile
    city city city town location home_town
    country country country nation country_name
    job job occupation profession job_title role work
    description description description summary about details text bio
    price price price cost amount price_usd unit_price
    date date date day created_at due_date start_date
    time time start_time hour starts_at
    rating rating rating stars score grade
    tags tags tags keywords labels topics
    author author author writer created_by author_name
    year year year release_year published published_year year_published
    color color colour favorite_color main_color
    status status status state current_status
    active is_active active enabled verified is_member available in_stock
    id id id number identifier record_id
    hobbies hobbies interests likes favorites
    location location place venue where address
    url url website link homepage
    species species type kind animal
    weight weight weight_kg mass
    quantity quantity quantity count amount stock
    body body text message content
    subject subject title topic headline
    steps steps instructions directions method
    ingredients ingredients items needed
    category category type group kind
    priority priority urgency importance
    minutes minutes duration time_minutes cooking_time length
    username username user_name login nickname handle
""")}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A kind of record: nouns for it, and fields with the makers of their values."""

    nouns: tuple[str, ...]
    fields: tuple[tuple[str, Maker], ...]


def shape_of(line: str) -> Shape:
    """A shape from `nouns | key:maker key:maker*`; a star makes a list of such values."""
    nouns, _, fields = line.partition("|")
    made: list[tuple[str, Maker]] = []
    for one in fields.split():
        key, _, maker = one.partition(":")
        make = MAKERS[(maker or key).rstrip("*")]
        made.append((key, some(make) if one.endswith("*") else make))
    return Shape(tuple(noun.strip() for noun in nouns.split(",")), tuple(made))


SHAPES: Final = tuple(map(shape_of, lines("""
    person, man, woman, human, character, hero, friend, neighbor, villain, pirate | name:person age job city country email hobbies:hobby* gender description:sentence height:count active:flag first_name:first last_name:last
    user, user profile, profile, account, customer, member, test user, contact | name:person age email username phone city country active:flag role id joined:iso language address:street password
    employee, worker, manager, candidate, job applicant | name:person job department salary:large email start_date:iso skills:hobby* age active:flag
    student, pupil, teacher | name:person age grade:small school:place email subjects:hobby* city
    dog, puppy | name:pet age:years breed color weight species size description:sentence vaccinated:flag owner:person
    cat, kitten, pet, horse, rabbit, animal, bird, fish, monster, dragon, robot | name:pet age:years species color weight habitat:noun description:sentence sound:word friendly:flag food size
    product, item, article, gadget, toy, piece of furniture | name:product price category description:sentence color quantity:count active:flag rating tags:word* brand:company material size id weight currency
    book, novel, story, comic | title author:person year genre pages rating description:sentence tags:word* price language publisher:company
    film, movie, series, play | title director:person year genre rating actors:person* minutes:duration description:sentence
    song, album, track | title artist:person genre:music year minutes:small rating tracks:title*
    place, city, town, village, country, restaurant, hotel, shop, park | name:place country city description:sentence rating population:large latitude:degree longitude:degree tags:word* address:street open:flag
    event, meeting, party, concert, appointment, conference, trip | name:happening date:iso time:clock location:place city participants:first* description:sentence price free:flag day:weekday host:person
    message, chat message, note, comment, post, tweet | body:mail author:person date:stamp id likes:count tags:word* read:flag recipient:first
    email, mail, letter, newsletter | subject body:mail sender:email recipient:email date:iso attachments:noun* urgent:flag
    recipe, dish, meal, soup, cake | name:dish ingredients:food* steps:step* minutes:duration servings:small level diet calories:large description:sentence
    company, startup, business, organization | name:company city country industry employees:large founded:year url ceo:person description:sentence
    order, purchase, invoice, bill, receipt | id:code customer:person items:product* total:price status date:iso currency paid:flag quantity:small address:street
    ticket, bug report, issue, support request | id title:subject description:sentence priority status category assignee:person created:iso tags:word*
    review, rating, feedback, opinion | rating body:opinion author:first title:opinion recommended:flag date:iso product
    car, vehicle, bike, truck, boat | brand:maker model:product year color price fuel doors:small mileage:large used:flag
    game, video game, board game, quest | title genre year platform rating players:small description:sentence price level
    task, todo, to-do item, chore, reminder, project | title:subject description:step due_date:iso priority status done:flag assignee:first minutes:duration
    weather report, weather forecast, forecast | city temperature condition:sky humidity:percent wind:count day:weekday rain:flag description:sentence
    address, location | street city country zip house_number:count
    course, lesson, class, workshop | title:subject teacher:person level hours:small price description:sentence language online:flag
    planet, moon, world, star | name:planet climate moons:small terrain radius:large description:sentence habitable:flag temperature distance:share
    plant, flower, tree, herb | name:noun species:word color height:count climate edible:flag description:sentence
    team, club, band | name:company sport city members:first* founded:year coach:person wins:count color
    job, job posting, vacancy, position | title:job company salary:large city remote:flag description:sentence skills:word*
    house, flat, apartment, room, building | address:street city rooms:small price size:count color garden:flag description:sentence
    spell, weapon, potion, sword, magic item | name:product level power:percent color description:sentence price:count rarity:size
    form, record, entry, data set, thing, object | name:person id date:iso value:price status comment:opinion active:flag category city
""")))  # fmt: skip
