"""Kinds that turn ordinary sentences into JSON, with the keys in the prompt or known to a grammar alone."""

import json
import re
from random import Random
from typing import Any, Final

from training import values, wordlists
from training.facts import NUMBER_WORDS
from training.functions import spoken
from training.kinds_lookup import KEY_FORMS, placed
from training.registry import Dialogue, Split, ask, draw, in_split, kind, lines, system, user, wordings
from training.shapes import MAKERS, Maker, an, real, styled, whole, words_of

Told = dict[str, tuple[Any, str]]

# What a text may state: a maker of the value, and the keys that it is called by.
COMMON: Final = lines("""
    name person name name name full_name person
    first first name first_name name
    other first friend recipient other_person
    age age age age years age_years
    city city city city location town place
    home country country country home_country origin
    job job job job occupation profession role
    hobby hobby hobby hobby interest
    email email email email email_address contact
    phone phone phone phone phone_number
    company company company company employer organization
    product product product product item product_name
    price price price price amount cost total
    color color color color
    size size size size
    title title title title book name
    author person author author writer
    year year year year release_year published
    pages pages pages pages page_count
    since year year year start_year since
    genre genre genre genre
    rating stars rating rating score
    happening happening event event name title event_name
    place place location location venue place
    day weekday day day date weekday
    iso iso date date date_iso
    clock clock time time start_time
    room code room room room_number
    sky sky condition condition weather
    temp temperature temperature temperature degrees temperature_c
    wind count wind wind wind_speed
    invoice code invoice_number invoice_number invoice number id
    customer person customer customer client customer_name name
    count several quantity quantity count number amount
    people several people people guests party_size number_of_people
    nights several nights nights duration
    kids several children children kids number_of_children
    food food item item product food
    dish dish dish dish meal
    from city origin origin from departure source
    to city destination destination to target
    pet pet pet_name pet_name name pet
    species species species species animal type
    months several age age age_months months
    kilos several weight weight
    skill language language language
    salary large salary salary pay
    stars stars stars stars rating
    built year year year model_year production_year
    takeoff clock departure_time departure_time departure time
    landing clock arrival_time arrival_time arrival
    reviewer first reviewer reviewer user name
    patient person patient patient patient_name name
    doctor person doctor doctor physician
    sender first sender sender from_name
    level level level level difficulty
    fuel fuel fuel fuel fuel_type
    maker maker brand brand make
    course hobby course course subject course_name
    teacher person teacher teacher instructor lecturer
    rooms several rooms rooms number_of_rooms
    area count area area size_m2 square_meters
    mileage large mileage mileage kilometers
    goals several home_score home_score score1
""")
SLOTS: Final[dict[str, tuple[tuple[str, ...], Maker]]] = {
    **{name: (tuple(keys), MAKERS[maker]) for name, maker, *keys in map(str.split, COMMON)},
    "eventword": (("event", "name", "title", "event_name"), words_of(
        "science fair, birthday party, team meeting, book club, concert, picnic, chess tournament, job interview, "
        "cooking class, yoga class, football match, garden party, conference, wedding, workshop, movie night, game night")),
    "many": (("participants", "people", "names", "attendees", "guests", "members"), lambda rng: rng.sample(
        wordlists.NAMES, rng.choice((2, 2, 3, 3, 4)))),
    "things": (("items", "products", "shopping_list", "things"), lambda rng: list(dict.fromkeys(
        MAKERS["food"](rng) for _ in range(rng.randint(2, 4))))),
    "when": (("date", "day", "when"), lambda rng: rng.choice((*values.DAYS, "tomorrow", "next week", "May 3", "June 12"))),
    "hour": (("time", "hour", "start_time"), lambda rng: f"{rng.randint(1, 12)} {rng.choice(('am', 'pm'))}"),
    "minutes": (("minutes", "duration", "length", "duration_minutes"), whole(2, 120)),
    "share": (("percent", "discount"), whole(1, 99)),
    "humid": (("humidity", "humidity", "humidity_percent"), whole(1, 99)),
    "km": (("distance", "km", "distance_km"), real(1, 99, 1)),
    "flight": (("flight", "flight_number", "number"), lambda rng: f"{rng.choice(('LH', 'BA', 'AF', 'KL', 'UA', 'FR', 'DL', 'EK'))}{rng.randint(10, 9999)}"),
    "gate": (("gate", "gate_number"), lambda rng: f"{rng.choice('ABCDEF')}{rng.randint(1, 60)}"),
    "seat": (("seat", "seat_number"), lambda rng: f"{rng.randint(1, 60)}{rng.choice('ABCDEF')}"),
    "airline": (("airline", "carrier"), words_of("Lufthansa, KLM, Air France, British Airways, Emirates, Delta, Iberia, Finnair, Ryanair")),
    "billno": (("invoice_number", "invoice", "number"), lambda rng: f"{rng.choice(('INV', 'RE', 'A', 'BILL'))}-{rng.randint(10, 9999)}"),
    "parcelno": (("tracking_number", "parcel", "number"), lambda rng: f"{rng.choice(('PK', 'TR', 'DX'))}{rng.randint(1000, 999_999)}"),
    "homers": (("home_team", "team1", "winner"), lambda rng: f"{MAKERS['city'](rng)} {rng.choice(('United', 'Lions', 'Bears', 'City', 'Stars'))}"),
    "guests": (("away_team", "team2", "loser"), lambda rng: f"{MAKERS['city'](rng)} {rng.choice(('Rovers', 'Tigers', 'Hawks', 'Town', 'Wolves'))}"),
    "result": (("score", "result", "final_score"), lambda rng: f"{rng.randint(4, 9)}{rng.choice('-:')}{rng.randint(0, 3)}"),
    "illness": (("diagnosis", "illness", "condition"), words_of("flu, a cold, asthma, a broken arm, back pain, a fever, migraine")),
    "feeling": (("sentiment", "opinion", "mood"), words_of("positive, negative, neutral")),
    "proof": (("is_waterproof", "waterproof"), lambda rng: rng.random() < 0.5),
    "garden": (("has_garden", "garden"), lambda rng: rng.random() < 0.5),
    "online": (("online", "is_online"), lambda rng: rng.random() < 0.5),
    "topping": (("pizza", "type", "item", "kind"), words_of("margherita, salami, mushroom, cheese, tuna, veggie")),
    "member": (("is_member", "member", "active"), lambda rng: rng.random() < 0.5),
    "married": (("married", "is_married"), lambda rng: rng.random() < 0.5),
    "paid": (("paid", "is_paid"), lambda rng: rng.random() < 0.5),
    "stock": (("in_stock", "available"), lambda rng: rng.random() < 0.5),
    "open": (("open", "is_open"), lambda rng: rng.random() < 0.5),
    "remote": (("remote", "is_remote"), lambda rng: rng.random() < 0.5),
    "rain": (("rain", "will_rain"), lambda rng: rng.random() < 0.5),
}  # fmt: skip
SAID: Final[dict[str, Any]] = {
    "proof": (("is not waterproof", "lets water in"), ("is waterproof", "keeps water out")),
    "garden": (
        ("has no garden", "does not have a garden", "comes without a garden"),
        ("has a garden", "comes with a garden"),
    ),
    "online": (("is not online", "takes place in the classroom"), ("is online", "takes place online")),
    "feeling": {
        "positive": ("I loved it", "it was great", "I am very happy", "really wonderful"),
        "negative": ("I hated it", "it was terrible", "I am disappointed", "really awful"),
        "neutral": ("it was okay", "it was average", "nothing special"),
    },
    "member": (("is not a member", "is no longer a member"), ("is a member", "is one of our members")),
    "married": (("is not married", "is single"), ("is married",)),
    "paid": (("has not been paid", "is not paid yet", "is still open"), ("has been paid", "is paid")),
    "stock": (("is sold out", "is not in stock", "is not available"), ("is in stock", "is available")),
    "open": (("is closed", "is not open"), ("is open",)),
    "remote": (("in the office", "not remote"), ("remote", "from home")),
    "rain": (("it will stay dry", "no rain is expected"), ("it will rain", "rain is expected")),
}
# For each subject, sentences that come first, and after a line of three marks, sentences that may follow.
TEXTS: Final = {name: tuple(map(wordings, text.split("---"))) for name, text in {
    "flight": """
        [Flight {flight}|{flight}|{airline} flight {flight}] [leaves|departs from] {from} [for|to] {to} at {takeoff}[ from gate {gate}| and arrives at {landing}|].
        [Your flight|My flight] {flight} from {from} to {to} [leaves|is] [at {takeoff}|on {day} at {takeoff}|on {iso}][ from gate {gate}|].
        {airline} flies from {from} to {to} [on {day}|at {takeoff}][ with flight {flight}|].
        {name} [flies|is flying] from {from} to {to} [with|on] {flight}[ on {day}|, seat {seat}|].
        ---
        [The gate is|It leaves from gate|Go to gate] {gate}.
        [The seat is|You sit in|My seat is] {seat}.
        [It lands|It arrives|Arrival is] at {landing}.
    """,
    "review": """
        {reviewer} [watched|bought|tried|reviewed] the {product}: {feeling}[, {stars} stars|].
        {reviewer} [gave|gives] the {product} {stars} [stars|out of 5 stars][ and says {feeling}|].
        {reviewer} [watched|read] {title} and says {feeling}.
        ---
        It {proof}.
        It costs {price} euros.
        [It got|I give it] {stars} stars.
    """,
    "invoice": """
        [Invoice|The invoice|Bill] {billno} [from|by] {company} [over|for] {price} [euros|dollars] {paid}.
        {company} [sent|billed] [us|{customer}] {price} [euros|dollars] [with|on] invoice {billno}.
        ---
        It {paid}.
        It is due on {iso}.
        [The customer is|It goes to] {customer}.
    """,
    "transfer": """
        {sender} [sent|transferred|paid] {price} [euros|dollars] to {other}[ on {iso}| on {day}| for the {product}|].
        [Transfer|Please transfer|Send] {price} [euros|dollars] from {sender} to {other}[ on {day}|].
        ---
        The [reference|number] is {billno}.
    """,
    "patient": """
        {patient}, {age} years old, has {illness}[ and sees {doctor}|].
        {doctor} [treats|sees] {patient}[, {age},|] for {illness}[ on {day}|].
        ---
        The [appointment|next visit] is on {day} at {clock}.
        [She|He] weighs {kilos} kg.
    """,
    "car": """
        [A|The] {color} {maker} from {built} [costs|for] {price} euros[ with {mileage} kilometers|].
        {name} [drives|sells|bought] a {color} {maker}[ from {built}| for {price} euros|].
        ---
        It runs on {fuel}.
        It has {mileage} kilometers on it.
    """,
    "house": """
        [A|The] house in {city} with {rooms} rooms [costs {price} euros|has {area} square meters].
        [The flat|The house] in {city} has {rooms} rooms and {garden}.
        ---
        It {garden}.
        [The owner|The seller] is {name}.
    """,
    "match": """
        {homers} [beat|won against|defeated] {guests} {result}[ on {day}| in {city}|].
        {homers} against {guests} ended {result}[ on {iso}|].
        ---
        The game was on {day}.
    """,
    "parcel": """
        [Parcel|The parcel|Package] {parcelno} [for|to] {customer} [weighs {kilos} kg|goes to {city}|arrives on {day}].
        {customer} [gets|expects] parcel {parcelno}[ on {day}| in {city}|].
        ---
        It weighs {kilos} kg.
        It comes [on {day}|at {hour}].
        It {paid}.
    """,
    "course": """
        {teacher} teaches {course} [on {day} at {clock}|for {price} euros|in room {room}].
        The {course} course [by|with] {teacher} [costs {price} euros|starts on {iso}|is on {day}].
        ---
        The course {online}.
        The level is {level}.
        It takes {minutes} minutes.
    """,
    "person": """
        {name} is {age} years old[ and lives in {city}| and works as a {job}| and comes from {home}|, lives in {city} and works as a {job}|].
        {name}, {age}, [lives in|is from|moved to] {city}.
        {name} is a {age}-year-old {job} [from|in] {city}.
        My name is {name}[, I am {age}| and I am {age} years old| and I live in {city}|. I am a {job}].
        I am {name}, {age} years old, [from|living in] {city}.
        {name} [lives|works] in {city} [as a {job}|and is {age} years old|and is a {job}].
        [Meet|This is] {name}, a {job} from {city}[ who is {age}|].
        The {job} {name} [comes from {home}|lives in {city}|turned {age} last week].
        At {age}, {name} [became a {job}|moved to {city}|works as a {job} in {city}].
        ---
        [Her|His|The] [hobby is|favorite hobby is] {hobby}.
        [The email is|Mail:|Write to|You can reach us at] {email}.
        [The phone number is|Call|Phone:] {phone}.
        [She|He] works [for|at] {company}.
        [She|He] [has|lives with] {kids} children.
        [She|He] {member}.
        [She|He] {married}.
        [She|He] speaks {skill}.
    """,
    "event": """
        {many} are going to [a|the] {eventword} [on {when}|{when}|in {city} on {when}].
        The {eventword} [is|takes place|will be|starts] on {day} at {hour}[ in {place}| in room {room}|].
        {happening} [is|takes place] on {iso}[ at {clock}| in {city}| at {place}|].
        [Join us for|Come to|Don't miss] the {eventword} [on {day}|on {iso}] [at {place}|at {hour}|in {city}].
        {many} [will meet|meet|want to meet] [on {day}|at {hour}|at {place}] for [a|the] {eventword}.
        On {when} [there is a|we have a] {eventword} [in {city}|at {place}|at {hour}].
        [Let's have|I am planning|We plan] a {eventword} with {many} on {day}.
        Please [add|book|schedule] a {eventword}[ with {many}|] on {day} at {hour}.
        ---
        [The ticket costs|Entry is|Tickets cost] {price} dollars.
        [It|The event] [takes|lasts] {minutes} minutes.
        [We expect|There is room for] {people} people.
    """,
    "order": """
        I'd like {count} {size} {product}[ for {customer}| at {hour}|].
        I [want|would like|need] {count} {topping} pizzas [for {customer} at {hour}|for {hour}|to {city}].
        {customer} [ordered|bought] {count} {product}[ for {price} dollars| in {color}| on {day}|].
        [Please send|Send] {count} {color} {product} to {customer}[ in {city}|].
        The order {invoice} [by|of|from] {customer} [is|comes to] {price} euros.
        [We need|Please buy|Buy|I bought] {things}[ on {day}| for {price} dollars| for {customer}|].
        Invoice {invoice} [from|by] {company} [for|over] {price} euros is due on {iso}.
        {customer} [paid|pays] {price} dollars [for a {product}|for {count} {product}|to {company}].
        ---
        [The order|It] {paid}.
        [Deliver it|It comes|Please deliver] [on {day}|at {hour}|to {city}].
        [The email is|My email is] {email}.
        [Call me at|The phone is] {phone}.
        [There is a discount of|The discount is] {share} percent.
    """,
    "product": """
        The {product} costs {price} [dollars|euros][ and comes in {color}| and is {color}|].
        [We sell|New:|Now here:] the {product} by {company}[ for {price} dollars|, {color}, {price} euros|].
        The {color} {product} [is {size}|costs {price} dollars|weighs {kilos} kg].
        [I give|I gave] the {product} {rating} stars.
        A {size} {product} in {color} for {price} [euros|dollars].
        {company} [made|makes|sells] the {product} for {price} dollars.
        ---
        It {stock}.
        It weighs {kilos} kg.
        [Customers gave it|It has|It got] {rating} stars.
    """,
    "weather": """
        [It is|It will be] {sky} [in {city}|in {city} on {day}] with {temp} degrees.
        {city}: {sky}, {temp} degrees[, wind {wind} km/h|].
        [On {day}|Today|Tomorrow] [it is|it will be] {temp} degrees and {sky} in {city}.
        The temperature in {city} is {temp} degrees[ and it is {sky}|].
        ---
        The wind blows at {wind} km/h.
        The humidity is {humid} percent.
        On {day} {rain}.
    """,
    "booking": """
        [Book|Reserve|I need] a table for {people} [at {hour}|on {day}|on {day} at {hour}][ under {name}| for {name}|].
        [Book|I want] a [room|hotel] in {city} for {nights} nights[ from {iso}| for {people} people| for {name}|].
        [Book a flight|I need a flight|A train|I fly|We travel|A ticket] from {from} to {to} [on {day}|on {iso}|at {hour}|for {people} people].
        {name} [flies|travels|goes|drives] from {from} to {to} [on {day}|on {iso}|at {hour}].
        {first} and {other} [travel|fly] to {to} [on {day}|on {iso}].
        ---
        The ticket costs {price} euros.
        [It takes|The trip takes] {minutes} minutes.
        It is {km} km.
        [My name is|The name is|Book it for] {name}.
    """,
    "book": """
        {title} [is a {genre} by|was written by|is by] {author}[ from {year}|].
        {author} wrote {title}[ in {year}|, a {genre} of {pages} pages|].
        I read {title} by {author}[ and give it {rating} stars|].
        The {genre} {title} [came out in {year}|has {pages} pages|costs {price} dollars].
        In {year}, {author} published {title}.
        ---
        It has {pages} pages.
        [It costs|The price is] {price} dollars.
        [I give it|It got] {rating} stars.
        It {stock}.
    """,
    "job": """
        {company} [is looking for|needs|wants to hire] a {job} in {city}.
        {company} [pays|offers] a {job} {salary} [dollars|euros][ in {city}|].
        {name} [works|started|is] [at|with] {company} as a {job}[ in {since}| in {city}|].
        {name} applied [for the job |]as a {job} at {company}[ on {iso}|].
        ---
        The salary is {salary} euros.
        The work is {remote}.
        [Mail|Write to|Contact] {email}.
        You should speak {skill}.
    """,
    "pet": """
        {first} has a {species} [called|named] {pet}[, {months} months old|].
        {pet} is a {color} {species}[ and weighs {kilos} kg| that belongs to {first}|].
        My {species} {pet} is {color}[ and weighs {kilos} kg|].
        ---
        [He|She] likes {food}.
        [We got it|It came to us] in {since}.
        [It weighs|He weighs] {kilos} kg.
    """,
    "contact": """
        [Contact|Reach|Write to] {name} at {email}[ or call {phone}|].
        {name} ({company}): {email}, {phone}
        [Call|Phone] {name} [at|on] {phone}[ or write to {email}|].
        {name}[, {job}|] at {company}, {email}
        ---
        [The office is|We are] in {city}.
        [The shop|The office] {open}.
        [She|He] is our {job}.
    """,
}.items()}  # fmt: skip
SLOT: Final = re.compile(r"\{(\w+)\}")
WISHES: Final = wordings("""
    [Extract|Parse|Get|Return|Pull out|Read] [the data|the information|the details|the fields|the facts][.|:| from this text.| from the text.| as JSON.|]
    [Extract|Parse|Get] the {t} [information|details|data][.|:|]
    [Parse this|Extract this|Convert this|Turn this into data|Structure this|Turn it into JSON|To JSON|Parse|Extract][.|:|]
    [Fill in|Complete] [the form|the fields|the schema][.| from the text.]
    [You extract|Your job is to extract|You parse|Extract] [{t} data|data|information|{t} details|facts] from [text|messages|what the user says][.|]
    [What does the text say|Which data is in this text|What are the details]?
""")  # fmt: skip
NAMED: Final = wordings("""
    [Extract|Give me|Return|Find|I need|Read] {k} as JSON[.|:|]
    [Answer with|Write|Return|Respond with|Make] [a JSON object|JSON] with [the keys |the fields |keys |]{k}[.|:|]
    [Parse this|Extract the data|Turn the text into JSON|Extract JSON][:| with| with the keys] {k}[.|]
    [Keys|Fields|JSON keys]: {k}[.|]
""")


def stated(rng: Random, name: str) -> tuple[Any, str]:
    """A value, and how the text says it."""
    value = SLOTS[name][1](rng)
    if name in SAID:
        return value, rng.choice(SAID[name][value])
    if isinstance(value, list):
        return value, values.enumerated(value)
    if isinstance(value, int) and 1 < value < 13 and name != "temp" and rng.random() < 0.35:
        return value, NUMBER_WORDS[value]
    if name == "eventword":
        return value.title(), value
    return value, str(value)


def text_of(rng: Random) -> tuple[str, str, Told]:
    """A subject, one to three sentences about it, and what they state."""
    subject = rng.choice(tuple(TEXTS))
    first, more = TEXTS[subject]
    said: list[str] = []
    told: Told = {}
    for place in range(rng.choice((1, 2, 2, 3, 3, 4))):
        form = rng.choice(first if place == 0 else more)
        names = SLOT.findall(form)
        if not told.keys() & set(names):
            made = {name: stated(rng, name) for name in names}
            told |= made
            said.append(form.format(**{name: shown for name, (_, shown) in made.items()}))
    text = " ".join(one[0].upper() + one[1:] for one in said)
    return subject, an(text if rng.random() < 0.9 else text.rstrip(".")), told


def keys_for(rng: Random, told: Told) -> dict[str, str]:
    """A key for each thing that is told, or for some of them, in any order."""
    names = list(told)
    if rng.random() < 0.4:
        names = rng.sample(names, rng.randint(1, len(names)))
    made: dict[str, str] = {}
    for name in names:
        # A key that suits one value alone.
        free = [key for key in SLOTS[name][0] if sum(key in SLOTS[one][0] for one in told) == 1]
        if free:
            made[rng.choice(free)] = name
    return made or {names[0]: names[0]}


@kind("free", "I take the values from the text.", weight=10, thinks=0.02)
def extract_natural(rng: Random, split: Split) -> Dialogue:
    """Values that sentences state, under keys that only a grammar knows."""
    subject, text, told = draw(lambda: text_of(rng), split, lambda one: f"extract {one[1]}")
    style = rng.randrange(13) if rng.random() < 0.3 else 0
    record = {styled(style, key): told[name][0] for key, name in keys_for(rng, told).items()}
    if rng.random() < 0.06:
        other = rng.choice([name for name in SLOTS if name not in told])
        record |= {key: None for key in SLOTS[other][0][-1:] if not any(key in SLOTS[name][0] for name in told)}
    elif rng.random() < 0.05:
        key = rng.choice(list(record))
        record[key] = str(record[key]) if isinstance(record[key], int) and record[key] is not True else record[key]
    answer: Any = record
    if rng.random() < 0.08:
        answer = {subject: record}
    elif rng.random() < 0.06:
        answer = {subject + "s": [record]}
    answers = (json.dumps(answer, ensure_ascii=False),)
    wish = rng.choice(in_split(WISHES, split, "extract")).replace("{t}", subject)
    form = rng.random()
    if form < 0.3:
        return Dialogue((user(text),), answers, forced=True)
    if form < 0.65:
        return Dialogue((system(wish), user(text)), answers, forced=True)
    return Dialogue((user(placed(rng, text, wish)),), answers, forced=True)


@kind("open", "I take the values that are wanted from the text.", weight=2.5)
def extract_keys(rng: Random, split: Split) -> Dialogue:
    """Values that sentences state, under the keys that the prompt names."""
    _, text, told = draw(lambda: text_of(rng), split, lambda one: f"extract {one[1]}")
    keys = keys_for(rng, told)
    forms = NAMED if rng.random() < 0.7 else tuple(form.replace("{s}", "{k}") for form in KEY_FORMS)
    shown = values.enumerated(list(keys)) if rng.random() < 0.7 else ", ".join(keys)
    if rng.random() < 0.15:
        shown = values.enumerated([spoken(key) for key in keys])
    wish = rng.choice(in_split(forms, split, "named keys")).replace("{k}", shown)
    answer = json.dumps({key: told[name][0] for key, name in keys.items()}, ensure_ascii=False)
    if rng.random() < 0.35:
        return Dialogue((system(wish), user(text)), (answer,))
    return ask(placed(rng, text, wish), answer)
