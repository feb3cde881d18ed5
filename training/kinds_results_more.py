"""Kinds that answer from one row of a table, choose between opposite tools, and fill options from ordinary words."""

import json
import re
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from training import canned, outcomes, results_forms, results_scenes, shapes, values, wordlists
from training.chat import tool_call_text
from training.facts import NUMBER_WORDS
from training.functions import Argument, Value, described, function_object, spoken
from training.registry import (
    Dialogue,
    Split,
    assistant,
    draw,
    in_split,
    kind,
    lines,
    loose,
    polite,
    system,
    user,
    wordings,
)
from training.results_tools import BY_SORT, TOOLS
from training.shapes import MAKERS, Maker, whole, words_of

# Tools that do nothing of what these kinds ask for.
SAFE: Final = tuple(tool for tool in TOOLS if tool.names[0] in (
    "get_weather", "get_forecast", "translate", "get_time", "convert_currency", "get_exchange_rate", "random_number", "percentage", "read_sensor",
))  # fmt: skip


def alone(rng: Random, function: dict[str, Any], *others: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The functions in any order, with up to two that have nothing to do with them."""
    tools = [function, *others]
    for _ in range(rng.choice((0, 0, 1, 2))):
        other, _ = results_scenes.function_of(rng, rng.choice(SAFE), ())
        if all(str(other["name"]).lower() != str(one["name"]).lower() for one in tools):
            tools.append(other)
    rng.shuffle(tools)
    return tuple(tools)


def headed(rng: Random, turns: list[dict[str, str]]) -> tuple[dict[str, str], ...]:
    """The turns, now and then under a system prompt."""
    return (system(rng.choice(canned.SYSTEM_PROMPTS)), *turns) if rng.random() < 0.25 else tuple(turns)


MADE: Final[dict[str, Maker]] = {
    **MAKERS,
    "grocery": words_of("milk, bread, butter, eggs, rice, pasta, cheese, apples, bananas, coffee, tea, sugar, flour, salt, honey, jam, tomatoes, "
                        "potatoes, onions, carrots, oranges, yogurt, chicken, olive oil, cereal, juice, water, chocolate, pears, lemons, soap"),
    "goods": words_of("chair, table, lamp, laptop, phone, mouse, keyboard, desk, sofa, mug, pen, notebook, bag, bottle, headphones, camera, jacket, "
                      "shirt, shoes, hat, watch, printer, screen, tent, bike, ball, umbrella, pillow, blanket, clock"),
    "room": words_of("kitchen, bedroom, living room, bathroom, hall, office, garage, cellar, garden, attic, nursery, dining room, studio, library"),
    "made": wordlists.made_up_word, "madename": lambda rng: wordlists.made_up_word(rng).capitalize(),
    "team": words_of("red, blue, green, yellow, orange, purple, white, black, pink, grey"),
    "cost": lambda rng: round(rng.uniform(0.2, 40), 2) if rng.random() < 0.75 else rng.randint(1, 99),
    "population": whole(1000, 9_000_000), "degrees": whole(-9, 38), "number": whole(1, 999),
    "shelf": lambda rng: f"{rng.choice('ABCDEFGH')}{rng.randint(1, 30)}", "fullname": lambda rng: f"{rng.choice(wordlists.NAMES)} {MAKERS['last'](rng)}",
    "city": values.city, "host": lambda rng: f"{rng.choice(('web', 'db', 'api', 'mail', 'cache', 'node'))}{rng.randint(1, 20)}",
    "health": words_of("up, down, healthy, degraded, stopped, running, offline"), "deal": words_of("shipped, delivered, pending, packed, returned, paid, cancelled"),
    "order": lambda rng: rng.choice((str(rng.randint(100, 9999)), f"{rng.choice('ABCDKQX')}-{rng.randint(10, 999)}")),
    "task": lambda rng: f"{rng.choice(('paint', 'clean', 'fix', 'sell', 'move', 'wash', 'order', 'check'))} the {rng.choice(wordlists.NOUNS)}",
    "grade": words_of("A, B, C, D, A+, B-, 1, 2, 3"), "flight": lambda rng: f"{rng.choice(('LH', 'BA', 'AF', 'KL', 'UA', 'FR', 'DL', 'EK'))}{rng.randint(10, 9999)}",
    "gate": lambda rng: f"{rng.choice('ABCDE')}{rng.randint(1, 60)}", "madecity": lambda rng: wordlists.made_up_word(rng).capitalize(),
}  # fmt: skip
# A table is a paragraph: tools > the names of a row and their makers; then for each column its keys > maker > questions
# for it > questions back.
TABLES: Final = tuple(block for block in map(lines, re.split(r"\n\s*\n", """
    list_members,get_members,query,read_sheet,list_people,get_team,list_players,get_employees > name/member/first_name/person/employee > first/first/madename/fullname
    age/age/years > age > How old is {r}?;[What is|What's] {r}'s age? > Who is {v} years old?
    team/team/group/color > team > Which team is {r} in?;What team is {r} [on|in]?;{r}'s team? > Who is in the {v} team?;Who plays for the {v} team?
    city/city/town/home/location > city > Where does {r} live?;Which city is {r} from?;Where is {r} from? > Who lives in {v}?;Who is from {v}?
    phone/phone/phone_number/mobile > phone > [What is|What's] {r}'s [phone|phone number|number]?;[Phone|Number] of {r}[?|];How can I call {r}? > Whose phone number is {v}?;Who has the number {v}?
    email/email/mail > email > [What is|What's] {r}'s [email|email address]?;[Email|Mail address] of {r}[?|] > Whose email is {v}?
    job/job/role/position/profession > job > What does {r} do?;[What is|What's] {r}'s job?;What does {r} work as? > Who is the {v}?;Who works as a {v}?
    room/room/office > number > Which room is {r} in?;Where does {r} sit? > Who is in room {v}?;Who sits in room {v}?
    score/points/score > number > How many points does {r} have?;How many points did {r} get?;[What is|What's] {r}'s score? > Who has {v} points?
    department/department/unit > department > Which department is {r} in?;What department does {r} work in? > Who works in {v}?;Who is in {v}?

    get_prices,list_products,query,read_sheet,price_list,get_menu,list_items,get_inventory,stock_list > item/product/name/article > grocery/grocery/goods/goods/made/product
    price/price/cost/price_eur > cost > [What does|How much does] the {r} cost?;How much is the {r}?;[What is|What's] the price of the {r}?;Price of {r}[?|];How much are the {r}? > [Which one|What|Which item|Which product] costs {v}?;What can I get for {v}?
    stock/stock/quantity/count/left > number > How many {r} [are left|do we have|are in stock]?;How much {r} do we have? > [What|Which item] do we have {v} of?
    shelf/shelf/location/place > shelf > Where [is|are] the {r}?;Which shelf [is|are] the {r} on?;Where do I find the {r}? > What is on shelf {v}?;What is at {v}?
    color/color/colour > color > What color [is|are] the {r}?;Which color does the {r} have? > [Which one|Which item|What] is {v}?
    weight/weight/kg > weight > How heavy is the {r}?;How much does the {r} weigh? > Which one weighs {v}?

    list_cities,query,read_sheet,get_table,city_data,get_statistics > city/city/name/town/place > city/city/madecity
    population/population/people/inhabitants > population > How many people live in {r}?;How big is {r}?;[What is|What's] the population of {r}? > Which [city|one] has {v} [people|inhabitants]?
    temperature/temperature/temp/degrees > degrees > How [warm|cold|hot] is it in {r}?;[What is|What's] the temperature in {r}? > Where is it {v} degrees?
    country/country/state > country > Which country is {r} in?;Where is {r}? > Which [city|one] is in {v}?
    sky/sky/weather/condition > sky > How is the weather in {r}?;What's the weather like in {r}? > Where is it {v}?
    mayor/mayor/contact > fullname > Who is the mayor of {r}?;Who [runs|governs] {r}? > Where is {v} [mayor|the mayor]?

    list_books,query,read_sheet,get_library,get_catalog,search_books > title/title/book/name > title
    author/author/writer/written_by > fullname > [Who|who] wrote {r}?;Who is {r} by?;Who is the author of {r}? > [What|Which book] did {v} write?;Which [book|one] is by {v}?
    year/year/published > year > When was {r} [published|written]?;[What|Which] year is {r} from?;When did {r} come out? > Which [book|one] is from {v}?;What came out in {v}?
    pages/pages/page_count > pages > How [long|many pages] is {r}?;How many pages does {r} have? > Which [book|one] has {v} pages?
    genre/genre/category > genre > [What|Which] genre is {r}?;What kind of book is {r}? > Which one is {v}?
    price/price/cost > cost > [What does|How much does] {r} cost?;How much is {r}? > Which one costs {v}?

    list_rooms,get_rooms,query,read_sensors,read_sheet > room/room/name/place > room
    temperature/temperature/temp > degrees > How warm is [it in |]the {r}?;[What is|What's] the temperature in the {r}? > [Where|Which room] is [it |]{v} degrees?
    color/color/wall_color > color > What color is the {r}?;Which color does the {r} have? > Which [room|one] is {v}?
    size/size/area > number > How [big|large] is the {r}?;[What is|What's] the size of the {r}? > Which [room|one] is {v} square meters?
    light/light/lamp > health > Is the light in the {r} on?;What about the light in the {r}? > Which lamp is {v}?

    list_servers,query,get_status,check_hosts > host/server/name/machine > host
    status/status/state > health > Is {r} [up|running|ok]?;How is {r} doing?;[What is|What's] the status of {r}? > Which [server|one] is {v}?
    load/cpu/load > number > How busy is {r}?;[What is|What's] the load of {r}? > Which [server|one] has a load of {v}?
    region/region/location > city > Where is {r}?;Which region is {r} in? > Which [server|one] is in {v}?

    list_orders,get_orders,query,read_sheet,order_table > order/order_id/id/number > order
    status/status/state > deal > [What is|What's] the status of [order |]{r}?;Where is order {r}? > Which order is {v}?;Which one is {v}?
    customer/customer/client/buyer > fullname > Who placed order {r}?;Whose order is {r}?;Who is the customer of {r}? > Which order is from {v}?
    total/total/amount/sum > cost > How much is order {r}?;[What is|What's] the total of {r}? > Which order is over {v}?;Which one costs {v}?

    list_tasks,get_todos,query,read_sheet,get_board > task/task/title/name > task
    owner/owner/assignee/person > first > Who [has to|must|will] {r}?;Who does '{r}'? > What does {v} have to do?;What is {v} working on?
    due/deadline/date/due_date > weekday > When [do we|do I] have to {r}?;When is '{r}' due? > What is due on {v}?
    status/status/state > status > How far is '{r}'?;[What is|What's] the status of '{r}'? > Which [task|one] is {v}?

    list_flights,departures,query,get_departures > flight/flight/number > flight
    gate/gate/gate > gate > Which gate is {r}?;Where does {r} leave?;Gate of {r}? > Which flight leaves from [gate |]{v}?
    to/destination/to > city > Where does {r} go?;Where is {r} going? > Which flight goes to {v}?
    time/time/departure > clock > When does {r} leave?;What time is {r}? > Which flight leaves at {v}?

    list_students,get_grades,query,read_sheet > student/student/name/pupil > first/madename/fullname
    grade/grade/mark > grade > [What grade|Which grade] did {r} get?;How did {r} do? > Who got [a |an |]{v}?
    subject/subject/course/class > hobby > What does {r} study?;Which course is {r} taking? > Who takes {v}?;Who studies {v}?
    teacher/teacher/tutor > fullname > Who teaches {r}?;Who is {r}'s teacher? > Whose teacher is {v}?
""".strip())))  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column with its keys, a maker and the questions that ask for it."""

    keys: tuple[str, ...]
    make: str
    asks: tuple[str, ...]
    backs: tuple[str, ...]


@dataclass(frozen=True)
class Sheet:
    """A table of rows that have a name."""

    tools: tuple[str, ...]
    keys: tuple[str, ...]
    makes: tuple[str, ...]
    columns: tuple[Column, ...]


def column(line: str) -> Column:
    """A column as the table writes it."""
    keys, make, asks, backs = (part.strip() for part in f"{line} ".split(" > "))
    split = [wordings("\n".join(text.split(";"))) if text else () for text in (asks, backs)]
    return Column(tuple(keys.split("/")[1:]), make, *split)


def sheet(block: tuple[str, ...]) -> Sheet:
    """A sheet as the table writes it."""
    tools, keys, makes = block[0].split(" > ")
    return Sheet(
        tuple(tools.split(",")), tuple(keys.split("/")), tuple(makes.split("/")), tuple(map(column, block[1:]))
    )


SHEETS: Final = tuple(map(sheet, TABLES))
ROW: Final = wordings("""
    [What is|What's] the {f} of {r}?
    [Tell me|Give me|I need|Find|Look up|Show me] the {f} of {r}[.|, please.|]
    {F} of {r}[?|]
    What {f} does {r} have?
""")
BACK: Final = wordings("""
    [Which one|Which {k}] has the {f} {v}?
    [Find|Tell me|Give me] the {k} with the {f} {v}[.|]
    Which {k} has {f} {v}?
""")


def rows_text(rng: Random, key: str, rows: list[dict[str, Any]], *, keyed: bool) -> str:
    """The rows in one of the forms that tools return, which all name their keys where ``keyed``."""
    form = rng.random() * (0.5 if keyed else 1)
    if form < 0.25:
        return results_forms.table(rng, rows)
    if form < 0.45:
        text = outcomes.dumped(rng, rows)
        return (
            text
            if rng.random() < 0.7
            else outcomes.dumped(rng, {rng.choice(("rows", "data", "results", "items")): rows})
        )
    if form < 0.5:
        return repr(rows)
    others = [one for one in rows[0] if one != key]
    if form < 0.65:
        by = {str(row[key]): {one: row[one] for one in others} for row in rows}
        return outcomes.dumped(rng, by)
    if form < 0.75:
        return "\n".join(" ".join(f"{one}={value}" for one, value in row.items()) for row in rows)
    if form < 0.85:
        mark = rng.choice((", ", "; ", " | ", "\n"))
        return ("\n\n" if mark == "\n" else "\n").join(
            mark.join(f"{one}: {value}" for one, value in row.items()) for row in rows
        )
    mark, end = rng.choice((": ", " - ", "\t")), rng.choice((", ", " / "))
    head = rng.choice(("", "- "))
    return "\n".join(f"{head}{row[key]}{mark}{end.join(f'{one} {row[one]}' for one in others)}" for row in rows)


def row_asked(rng: Random, split: Split) -> tuple[str, str, str, str]:
    """A tool, a request for one field, the rows and the answer."""
    form = rng.choice(SHEETS)
    key = rng.choice(form.keys)
    chosen = rng.sample(form.columns, min(len(form.columns), rng.choice((1, 1, 2, 2, 3))))
    keys = [rng.choice(one.keys) for one in chosen]
    make = MADE[rng.choice(form.makes)]
    names = list(dict.fromkeys(str(make(rng)) for _ in range(rng.randint(2, 8))))
    while len(names) < 2:
        names = list(dict.fromkeys([*names, str(make(rng))]))
    rows = [{key: name} | {one: MADE[col.make](rng) for one, col in zip(keys, chosen, strict=True)} for name in names]
    place = rng.randrange(len(chosen))
    row, field, asked = rng.choice(rows), keys[place], chosen[place]
    value = str(row[field])
    unique = sum(str(one[field]) == value for one in rows) == 1
    if unique and asked.backs and rng.random() < 0.25:
        template = rng.choice(asked.backs if rng.random() < 0.75 else in_split(BACK, split, "row back"))
        answer = f"The {spoken(key)} is {row[key]}."
    else:
        template = rng.choice(asked.asks if rng.random() < 0.7 else in_split(ROW, split, "row"))
        answer = f"The {spoken(field)} is {value}."
    word = spoken(field)
    for mark, text in (
        ("{f}", word),
        ("{F}", word.capitalize()),
        ("{k}", spoken(key)),
        ("{r}", str(row[key])),
        ("{v}", value),
    ):
        template = template.replace(mark, text)
    if rng.random() < 0.3:
        columns = list(rows[0])
        rng.shuffle(columns)
        rows = [{one: row[one] for one in columns} for row in rows]
    return (
        rng.choice(form.tools),
        template,
        rows_text(rng, key, rows, keyed=answer.endswith(f" is {row[key]}.")),
        answer,
    )


@kind("open", "The tool has answered.", weight=7, standalone=True, thinks=0.05)
def result_row(rng: Random, split: Split) -> Dialogue:
    """One field of one row of a table that a tool returns, or the name of the row with a value."""
    name, request, text, answer = draw(lambda: row_asked(rng, split), split, lambda one: f"row {one[1]}{one[3]}")
    arguments: list[Argument] = []
    given: dict[str, Value] = {}
    if name in ("query", "read_sheet") or rng.random() < 0.15:
        one = rng.choice(("sheet", "table", "file", "source"))
        given[one] = rng.choice(wordlists.NOUNS) + "s"
        arguments.append(Argument(one, described(rng, {"type": "string"}, one, "request"), "", ""))
    about = rng.choice((f"{spoken(name).capitalize()}.", f"Returns a table: {spoken(name)}", "Read all rows.", ""))
    function = function_object(rng, name, about, arguments)
    turns = [user(loose(rng, request)), assistant(tool_call_text(name, given)), {"role": "tool", "content": text}]
    return Dialogue(headed(rng, turns), (answer,), tools=alone(rng, function), taught=not given)


EMPTY: Final = wordings("""
    [{"<k>": <v>, "<l>": <>}|{"<l>": <>, "<k>": <v>}|{"<k>": <v>, "<m>": <w>, "<l>": <>}]
    {"[count|total]": 0, "[rows|items|<l>]": <>}
    {"<k>": <v>, "<l>": <>, "[count|total]": 0}
    {"status": "ok", "[data|<l>]": <>}
    {"data": {"<k>": <v>, "<l>": <>}}
    <l>: [none|-|empty|<>]
    <k>: <w>\\n<l>: [none|-|no entries]
    <k>=<w> <l>=<>
    No <l>[.| found.| for <w>.]
    [0 <l>|There are no <l>.|<k> <w> has no <l>]
""")


@kind("open", "The tool found nothing.", weight=2.5, standalone=True, thinks=0.05)
def result_empty_list(rng: Random, split: Split) -> Dialogue:
    """A record in which the list that was asked for is empty."""
    use = results_scenes.fresh(rng, split, BY_SORT["list"])
    things = re.sub(r"(?:list|get|find|search|fetch|show|read|my|all)_", "", use.tool.names[0])
    if not things.endswith("s"):
        things = rng.choice(("results", "matches", "hits", "entries", "rows", "items"))
    things = rng.choice((things, things, "results", "matches", "items", "entries"))
    given = [(use.names[slot], value) for slot, value in use.given.items() if not isinstance(value, list)]
    key, value = (
        rng.choice(given)
        if given and rng.random() < 0.7
        else (
            rng.choice(("query", "user", "room", "page", "source", "id")),
            rng.choice((rng.randint(1, 99), wordlists.word(rng))),
        )
    )
    text = rng.choice(EMPTY).replace("\\n", "\n")
    for mark, made in (("<>", rng.choice(("[]", "[]", "null")) if text[0] == "{" else "[]"), ("<k>", key), ("<v>", json.dumps(value, ensure_ascii=False)),
                       ("<l>", things), ("<m>", rng.choice([one for one in ("page", "limit", "day", "version") if one != key])),
                       ("<w>", str(rng.randint(1, 20)) if text[0] == "{" else str(value))):  # fmt: skip
        text = text.replace(mark, made)
    return results_scenes.answered(rng, split, use, results_forms.Told(text, "I found nothing.", form="empty"))


# Two or more tools beside each other: name and its wordings, then the things that {x} stands for and the parameter.
NEAR: Final = tuple((tuple(tuple(part.split(": ")) for part in head.split(" & ")), words, parameter) for head, words, parameter in (
    map(str.strip, line.split(" > ")) for line in lines("""
    turn_on_{x}/switch_on_{x}/{x}_on: [turn|switch|put] on the {x} [in|of] the {v}~[turn|switch] the {x} in the {v} on~start the {x} in the {v}~[I want|I need] the {x} in the {v} on & turn_off_{x}/switch_off_{x}/{x}_off: [turn|switch] off the {x} [in|of] the {v}~[turn|switch] the {x} in the {v} off~[kill|cut|shut off|stop] the {x} in the {v}~put out the {x} in the {v}~[I want|I need] the {x} in the {v} off > light,lamp,heater,fan,radio,tv,heating,music,speaker,projector > room/location/place/area:room
    lock_{x}: lock [up|] the {v} {x}~lock the {x} [of|in] the {v}~make sure the {v} {x} is locked & unlock_{x}: unlock the {v} {x}~unlock the {x} [of|in] the {v}~make sure the {v} {x} is unlocked > door,window,gate,box > room/name/place:room
    open_{x}: open [up|] the {x} [in|of] the {v}~[open|raise|pull up] the {v} {x} & close_{x}/shut_{x}: [close|shut] the {x} [in|of] the {v}~[close|shut] the {v} {x} > door,window,gate,blinds,curtains,valve > room/place/location:room
    start_{x}: [start|launch|boot|fire up|bring up|run] [the {x} |]{v} & stop_{x}: [stop|halt|kill|shut down|end|bring down|terminate] [the {x} |]{v} & restart_{x}: [restart|reboot|bounce] [the {x} |]{v} > server,service,job,machine,engine,process > name/id/host:word
    mute_{x}: [mute|silence] [the {x} |]{v}~turn off the sound of [the {x} |]{v} & unmute_{x}: unmute [the {x} |]{v}~turn the sound of [the {x} |]{v} [back on|on again] > user,channel,room,speaker,group > name/id:word
    add_to_{x}: [add|put|write] {v} [to|on|onto] [the|my] {x}~[put|I want] {v} on the {x} & remove_from_{x}: [remove|take|delete|drop|strike] {v} from [the|my] {x}~take {v} off [the|my] {x} > list,cart,playlist,menu,calendar > item/name/entry:thing
    follow_{x}/subscribe_{x}: [follow|subscribe to] [the {x} |]{v} & unfollow_{x}/unsubscribe_{x}: [unfollow|unsubscribe from|stop following] [the {x} |]{v} > user,artist,channel,page > name/user:person
    enable_{x}/activate_{x}: [enable|activate] the {x} {v}~[turn|switch] on the {x} {v} & disable_{x}/deactivate_{x}: [disable|deactivate] the {x} {v}~[turn|switch] off the {x} {v} > feature,alarm,plugin,rule,account > name/id:word
    play_song: play the song {v}~[play|put on] the track {v}~I want to hear the song {v} & play_artist: [play|put on] [some|something by|music by|songs by|anything by] {v}~[play|I want to hear] the band {v} & play_album: [play|put on] the album {v}~I want to hear the album {v} > - > title/name/query:band
    send_{x}: [send|mail|send off] [the {x}|{x}] {v} & delete_{x}: [delete|remove|trash|throw away|erase] [the {x}|{x}] {v} & archive_{x}: archive [the {x}|{x}] {v} > message,mail,draft,letter,report > id/name/number:code
    create_{x}/new_{x}: [create|make|set up|add|start] [a|a new] {x} [called|named] {v} & cancel_{x}/delete_{x}: [cancel|delete|drop|call off|get rid of] the {x} {v} & rename_{x}: rename the {x} {v} > project,event,meeting,group,folder > name/title:title
    book_{x}: [book|reserve|get me] a {x} in {v}~I [need|want|would like] a {x} in {v} & cancel_{x}: cancel [my|the] {x} in {v}~I do not need [my|the] {x} in {v} any more > room,table,hotel,car,seat > city/place/location:city
    increase_{x}/{x}_up/raise_{x}: [increase|raise|turn up] the {x} by {v}~turn the {x} up by {v}~[make the {x} {v} higher|{x} up by {v}] & decrease_{x}/{x}_down/lower_{x}: [decrease|lower|reduce|turn down] the {x} by {v}~turn the {x} down by {v}~[make the {x} {v} lower|{x} down by {v}] > volume,temperature,brightness,speed,price > amount/step/by/value:small
    like_{x}: [like|upvote|give a like to] [the {x} |]{v} & dislike_{x}/unlike_{x}: [dislike|unlike|downvote] [the {x} |]{v} > post,video,photo,comment > id:code
    hire_{x}: [hire|take on|employ] {v} as a {x} & fire_{x}: [fire|dismiss|let go of] the {x} {v} > cook,driver,teacher,guard > name/person:person
    pause_{x}: [pause|hold|interrupt] [the {x} |]{v} & resume_{x}/continue_{x}: [resume|continue|go on with|carry on with] [the {x} |]{v} > video,download,timer,podcast,movie > name/title:title
    block_{x}: [block|ban|lock out] [the {x} |]{v} & unblock_{x}: [unblock|unban|let in] [the {x} |]{v} > user,number,contact,sender > name/id:person
    show_{x}: [show|unhide|display] the {x} {v} & hide_{x}: hide the {x} {v} > layer,column,window,panel > name:word
    buy_{x}: [buy|purchase|get] {x} of {v} & sell_{x}: [sell|get rid of] {x} of {v} > shares,stock > company/name:company
    check_in_{x}: check [the {x} |]{v} in~check in [the {x} |]{v} & check_out_{x}: check [the {x} |]{v} out~check out [the {x} |]{v} > guest,visitor,book > name:person
    """)))  # fmt: skip
BAND: Final = wordings("""
    {W}
    {W} {W}
    [The |]{A} {N}s
    {N} [and|of] {N}
    {p} {W}
    {W} and the {N}s
    [Queen|Nirvana|Mozart|Radiohead|Metallica|Coldplay|Abba|Madonna|Miles Davis|Bob Marley|Daft Punk|Pink Floyd|Johnny Cash]
""")
MADE.update({
    "thing": lambda rng: rng.choice((MADE["grocery"], MADE["goods"], wordlists.noun, MADE["title"]))(rng),
    "path": values.path, "band": lambda rng: shapes.filled(rng, rng.choice(BAND)), "word": wordlists.word, "small": whole(1, 50), "person": values.person,
})  # fmt: skip
WORDINGS: Final = {part[1]: wordings("\n".join(part[1].split("~"))) for heads, _, _ in NEAR for part in heads}


def near_use(rng: Random) -> tuple[list[dict[str, Any]], str, str, Value]:
    """Tools beside each other, a request for one, its call and the value."""
    heads, words, parameter = rng.choice(NEAR)
    thing = rng.choice(words.split(","))
    names, make = parameter.split(":")
    name = rng.choice(names.split("/"))
    value: Value = MADE[make](rng)
    schema = {"type": "integer" if isinstance(value, int) else "string"}
    place = rng.randrange(3)
    chosen = rng.randrange(len(heads))
    tools, call, request = [], "", ""
    describes = rng.random() < 0.7
    for at, (head, wording) in enumerate(heads):
        options = head.split("/")
        title = options[min(place, len(options) - 1)].replace("{x}", thing)
        arguments = [Argument(name, described(rng, schema, name, thing), value, "")]
        tools.append(
            function_object(
                rng, title, spoken(title).capitalize() + rng.choice((".", "")) if describes else "", arguments
            )
        )
        if at == chosen:
            request = rng.choice(WORDINGS[wording]).replace("{x}", thing).replace("{v}", str(value))
            call = tool_call_text(title, {name: value})
    return tools, " ".join(request.split()), call, value


@kind("open", "I need a tool for this.", weight=5, standalone=True, thinks=0.05)
def opposite_tools(rng: Random, split: Split) -> Dialogue:
    """The right one of tools that do the opposite of each other, or nearly the same."""
    tools, request, call, _ = draw(lambda: near_use(rng), split, lambda one: f"near {one[3]}")
    if rng.random() < 0.2:
        more, second, another, _ = draw(lambda: near_use(rng), split, lambda one: f"near {one[3]}")
        if not {one["name"] for one in tools} & {one["name"] for one in more}:
            tools += more
            if rng.random() < 0.6:
                request, call = (
                    f"{request} {rng.choice(('and', 'and then', 'and also'))} {second}",
                    f"{call}\n{another}",
                )
    text = request[0].upper() + request[1:]
    asked = loose(rng, f"{text}.") if request.startswith("I ") else polite(rng, text)
    return Dialogue(headed(rng, [user(asked)]), (call,), tools=alone(rng, *tools))


# Things to order: tools > patterns of the thing > slots, name=options, with those in brackets a free text.
ORDERS: Final = tuple(tuple(map(str.strip, line.split(" > "))) for line in lines("""
    order_pizza,pizza_order > [a|one] {size} pizza with {topping}~{count} {size} pizzas with {topping}~a {size} {topping} pizza > size=small,medium,large;topping=(mushrooms,salami,cheese,ham,onions,tuna,spinach,pineapple,olives,bacon)
    order_drink,order_coffee,coffee > a {size} {drink} with {milk} milk~a {size} {drink}~{count} {size} {drink}s with {milk} milk > size=small,medium,large;drink/type=coffee,latte,espresso,tea,cappuccino;milk=(oat,soy,almond,whole,rice)
    order_coffee,make_coffee > a {style} coffee with {extra}~{count} {style} coffees with {extra} > style/type=black,white,iced,strong,weak;extra=(sugar,honey,oat milk,cream,cinnamon,vanilla)
    book_seat,reserve_seat,choose_seat > [a|one] {seat} seat in {travel} class~a {travel} class {seat} seat > seat/position=window,aisle,middle;travel/class=economy,business,first
    buy_tickets,book_tickets,get_tickets > {count} {price} tickets for {show}~{count} {price} tickets to {show} > price/category=cheap,normal,expensive,premium;show/event=@title
    book_room,reserve_room,hotel_room > a {room} room for {nights} nights~a {room} room in {city} for {nights} nights~a {room} room with a {view} view for {nights} nights > room/room_type/type=single,double,twin,family;nights=#;city=@city;view=(sea,garden,city,lake,mountain)
    buy_clothes,order_clothes,add_to_cart > a {size} {item} in {color}~a {color} {item} in {size}~{count} {size} {item}s in {color} > size=small,medium,large;item/article=(shirt,jacket,hat,sweater,coat,skirt,blouse,cap);color/colour=red,blue,green,black,white
    order_item,buy,shop > a {color} {item}~{count} {color} {item}s~{count} {item}s in {color} > color=red,blue,green,black,white;item/product=@noun
    create_ticket,open_ticket,report_problem > a ticket with {priority} priority for the {thing}~a {priority} priority ticket about the {thing} > priority/urgency=low,medium,high,urgent;thing/subject=@noun
    rent_car,book_car,car_rental > a {size} {fuel} car for {days} days~a {size} car in {city} for {days} days > size/class=small,medium,large;fuel=electric,diesel,petrol,hybrid;days=#;city=@city
    order_flowers,send_flowers > {count} {color} {flower}s for {person}~a {size} bunch of {color} {flower}s > count=#;color=red,white,yellow,pink;flower=(rose,tulip,carnation,sunflower,orchid);size=small,big;person=@first
    order_food,place_order > a {spice} {dish} with {side}~{count} {spice} {dish}s with {side} > spice/spiciness=mild,medium,hot;dish=(curry,burger,soup,taco,noodle soup,burrito);side=(rice,fries,salad,bread,beans)
    book_table,reserve_table > a table for {people} [by the|near the] {spot} at {time}~a {spot} table for {people} at {time} > people/guests/party_size=#;spot/area/place=window,garden,bar,terrace;time=@clock
    order_ice_cream,ice_cream > {count} scoops of {flavor} ice cream in a {container}~a {size} {flavor} ice cream > count/scoops=#;flavor=(vanilla,chocolate,strawberry,lemon,mango,coffee);container=cup,cone;size=small,large
    print_document,print > {count} {color} copies of {file}~{count} {paper} copies of {file} > count/copies=#;color=color,gray,black-and-white;paper/format=A3,A4,A5;file=@path
    buy_train_ticket,book_train,train_ticket > a {way} ticket to {city} in {class} class~a {class} class {way} ticket from {start} to {city} > way/type/kind=single,return,one-way;class=first,second;city/to/destination=@city;start/from/origin=@city2
"""))  # fmt: skip
ORDER_OPENINGS: Final = wordings("""
    [I want|I'd like|I would like|I need|Get me|Give me|Can I have|Can I get|Could I have|May I have|I'll take|Please get me|Bring me|We need|We'd like|Order|Please order|Book|I'll have|Let me have] {o}
    {O}[, please|]
""")
ORDER_FORMS: Final = {one[1]: wordings("\n".join(one[1].split("~"))) for one in ORDERS}
SLOT: Final = re.compile(r"\{(\w+)\}")


def order(rng: Random) -> tuple[str, str, list[Argument], dict[str, Value], str]:
    """A tool, the words of the order, the parameters, the arguments and the opening's place."""
    names, patterns, slots = rng.choice(ORDERS)
    form = rng.choice(ORDER_FORMS[patterns])
    told = SLOT.findall(form)
    known = {
        one.split("=")[0].split("/")[0]: (one.split("=")[0].split("/"), one.split("=")[1]) for one in slots.split(";")
    }
    known.setdefault("count", (["count", "quantity", "amount", "number"], "#"))
    arguments, given = [], dict[str, Value]()
    for slot, (keys, options) in known.items():
        if slot not in told and (slot == "count" or rng.random() < 0.5):
            continue
        key = rng.choice(keys)
        schema: dict[str, Any] = {"type": "string"}
        value: Value
        shown = ""
        if options == "#":
            value = rng.randint(2, 12)
            shown, schema = (NUMBER_WORDS[value] if rng.random() < 0.6 else str(value)), {"type": "integer"}
        elif options[0] == "@":
            value = MADE[options[1:].rstrip("2")](rng)
        elif options[0] == "(":
            value = rng.choice(options[1:-1].split(",")) if rng.random() < 0.85 else rng.choice(wordlists.NOUNS)
        else:
            kept = options.split(",")
            kept = rng.sample(kept, rng.randint(2, len(kept))) if rng.random() < 0.4 else kept
            value = rng.choice(kept)
            if rng.random() < 0.85:
                schema = {"type": "string", "enum": kept}
        arguments.append(Argument(key, described(rng, schema, key, "order"), value, "", required=slot in told))
        if slot in told:
            form = form.replace(f"{{{slot}}}", shown or str(value))
            given[key] = value
    return rng.choice(names.split(",")), shapes.an(form), arguments, given, form


@kind("open", "I need a tool for this.", weight=5, standalone=True, thinks=0.05)
def order_with_options(rng: Random, split: Split) -> Dialogue:
    """A call whose options stand in ordinary words in the request."""
    name, words, arguments, given, _ = draw(lambda: order(rng), split, lambda one: f"order {one[1]}")
    form = rng.choice(in_split(ORDER_OPENINGS, split, "order"))
    text = form.replace("{o}", words).replace("{O}", words[0].upper() + words[1:])
    asks = text.startswith(("Can", "Could", "May"))
    text += rng.choice(("?", "?", ", please?", "") if asks else (".", "", "!", "."))
    about = rng.choice((f"{spoken(name).capitalize()}.", f"Use this to {spoken(name)}.", ""))
    function = function_object(rng, name, about, arguments)
    return Dialogue(headed(rng, [user(text)]), (tool_call_text(name, given),), tools=alone(rng, function))


MAILS: Final = wordings("""
    [send|write] [an email|a mail|a message|an e-mail] to {to} with the subject {s} and the [text|body|message] {b}
    [email|mail|write to] {to} about {s}: {b}
    [email|mail|write] {to}, subject {s}, [text|body] {b}
    [send|write] {to} [an email|a mail] [about|with the subject] "{s}" saying "{b}"
    [send|write] [an email|a mail] to {to} about {s} [saying|that says] {b}
""")
SUMS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (("add", "sum", ("{a} plus {b}", "{a} + {b}", "add {a} and {b}", "the sum of {a} and {b}")), ("multiply", "times", ("{a} times {b}", "{a} * {b}", "multiply {a} by {b}", "the product of {a} and {b}", "{a} x {b}")),
               ("subtract", "minus", ("{a} minus {b}", "{a} - {b}")), ("divide", "divide_by", ("{a} divided by {b}", "{a} / {b}", "divide {a} by {b}")))  # fmt: skip


@kind("open", "I need a tool for this.", weight=2, standalone=True, thinks=0.05)
def mail_words(rng: Random, split: Split) -> Dialogue:
    """A message whose subject and body are copied from the request."""
    to, subject, body = draw(
        lambda: (rng.choice((values.email, values.person))(rng), rng.choice((MADE["subject"], lambda r: values.words(r, 1, 4)))(rng),
                 rng.choice((lambda r: MADE["mail"](r).rstrip(".!"), lambda r: values.words(r, 2, 12), wordlists.sentence))(rng)),
        split, str)  # fmt: skip
    form = rng.choice(in_split(MAILS, split, "mail words"))
    text = form.replace("{to}", to).replace("{s}", subject).replace("{b}", body)
    text = text[0].upper() + text[1:] if rng.random() < 0.7 else text
    keys = (
        rng.choice(("to", "to", "recipient", "address")),
        rng.choice(("subject", "subject", "title")),
        rng.choice(("body", "body", "text", "message")),
    )
    arguments = [Argument(key, described(rng, {"type": "string"}, key, "mail"), "", "") for key in keys]
    name = rng.choice(("send_email", "send_mail", "email", "write_email", "send_message"))
    function = function_object(rng, name, rng.choice(("Send an e-mail.", "Write a mail", "")), arguments)
    return Dialogue(
        headed(rng, [user(text)]),
        (tool_call_text(name, dict(zip(keys, (to, subject, body), strict=True))),),
        tools=alone(rng, function),
    )


@kind("open", "The user wants several things at once.", weight=2, standalone=True, thinks=0.05)
def several_sums(rng: Random, split: Split) -> Dialogue:
    """Several sums, each with its own tool and numbers."""
    count = rng.choice((1, 2, 2, 2, 3))
    pairs = draw(
        lambda: [
            (rng.randrange(10 ** rng.randint(1, 4)), rng.randrange(1, 10 ** rng.randint(1, 3))) for _ in range(count)
        ],
        split,
    )
    keys = rng.choice((("a", "b"), ("x", "y"), ("first", "second"), ("num1", "num2")))
    style = rng.randrange(2)
    schema = {"type": rng.choice(("number", "integer"))}
    functions_ = [
        function_object(rng, one[:2][style], "", [Argument(key, schema, 0, "") for key in keys]) for one in SUMS
    ]
    chosen = [rng.choice(SUMS) for _ in pairs]
    parts = [rng.choice(one[2]).format(a=a, b=b) for one, (a, b) in zip(chosen, pairs, strict=True)]
    text = values.enumerated(parts)
    verbal = any(part.startswith(("add", "multiply", "divide")) for part in parts)
    text = (
        text
        if verbal
        else rng.choice(("What is {}?", "What's {}?", "{}", "Calculate {}.", "How much is {}?", "Tell me {}.")).format(
            text
        )
    )
    calls = "\n".join(
        tool_call_text(one[:2][style], dict(zip(keys, pair, strict=True)))
        for one, pair in zip(chosen, pairs, strict=True)
    )
    used = {one[:2][style] for one in chosen}
    tools = [one for one in functions_ if one["name"] in used or rng.random() < 0.6]
    return Dialogue(headed(rng, [user(text[0].upper() + text[1:])]), (calls,), tools=tuple(tools))
