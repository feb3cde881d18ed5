"""Functions as people really write them, with requests in their own words."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from training import values, wordlists
from training.functions import Argument, Use, Value, described, function_object
from training.registry import Split, in_split, lines

TEXT: Final = {"type": "string"}
WHOLE: Final = {"type": "integer"}
REAL: Final = {"type": "number"}
LANGUAGES: Final = wordlists.listed("French German Spanish Italian Dutch Polish Greek Turkish Danish Czech Latin Welsh")
CURRENCIES: Final = wordlists.listed("USD EUR GBP JPY CHF SEK CAD AUD INR BRL euros dollars pounds yen francs rupees")
UNITS: Final = wordlists.listed("metres feet miles kilometres kilograms pounds litres gallons celsius fahrenheit")


def some(options: tuple[str, ...]) -> Callable[[Random], Value]:
    """A maker that chooses one of the options."""
    return lambda rng: rng.choice(options)


def whole(most: int) -> Callable[[Random], Value]:
    """A maker of whole numbers from one on."""
    return lambda rng: rng.randint(1, most)


# The kind of a slot, before the colon of its name below, makes its value; enumerations are written out in the schema.
MAKERS: Final[dict[str, tuple[dict[str, Any], Callable[[Random], Value]]]] = {
    "city": (TEXT, values.city), "person": (TEXT, values.person), "date": (TEXT, values.date),
    "time": (TEXT, values.clock), "email": (TEXT, values.email), "path": (TEXT, values.path), "url": (TEXT, values.url),
    "code": (TEXT, values.code), "words": (TEXT, lambda rng: values.words(rng, 1, 5).lower()),
    "text": (TEXT, lambda rng: values.words(rng, 2, 9)), "word": (TEXT, wordlists.word),
    "symbol": (TEXT, lambda rng: wordlists.letter_string(rng)[:4].upper()),
    "language": (TEXT, some(LANGUAGES)), "currency": (TEXT, some(CURRENCIES)), "unit": (TEXT, some(UNITS)),
    "few": (WHOLE, whole(12)), "many": (WHOLE, whole(999)), "big": (WHOLE, whole(99_999)),
    "real": (REAL, lambda rng: round(rng.uniform(1, 500), rng.choice((1, 2)))),
    "degrees": ({"type": "string", "enum": ["celsius", "fahrenheit"]}, some(("celsius", "fahrenheit"))),
    "priority": ({"type": "string", "enum": ["low", "normal", "high"]}, some(("low", "normal", "high"))),
    "sum": (TEXT, lambda rng: f"{rng.randint(2, 999)} {rng.choice('+-*/')} {rng.randint(2, 99)}"),
}  # fmt: skip
CATALOGUE: Final = lines("""
    get_weather,weather,get_current_weather,weather_at,fetch_weather | Get the weather in a city.,Get the current weather.,Current weather at a place.,Get current temperature for a given location. | city:city,location:city,place:city | What is the weather in {city}?;What's the weather like in {city}?;How is the weather in {city}?;Weather in {city}?;Is it cold in {city}?;Do I need an umbrella in {city}?;How warm is it in {city}?;Is it raining in {city}?;Tell me the weather in {city};What should I wear in {city} today?;Will I need a coat in {city}?;Should I take an umbrella in {city}?;Is it raining in {city} today?;Does it rain in {city}?;How hot is it in {city}?;I am going to {city}, what is the weather there?
    get_weather,get_forecast,weather | Get the weather in a city.,The weather forecast in a unit. | city:city&unit:degrees | What is the weather in {city} in {unit}?;How warm is it in {city}, in {unit}?;Give me the weather in {city} in {unit};Temperature in {city} in degrees {unit}?
    get_forecast,forecast,weather_forecast | Weather forecast for a date.,Get the forecast for the next days. | city:city&date:date,city:city&day:date | What will the weather be in {city} on {date}?;Forecast for {city} on {date};How will the weather be on {date} in {city}?;Will it rain in {city} on {date}?
    get_time,get_current_time,local_time,clock | Get the time in a city.,The local time at a place.,Current time. | city:city,timezone:city,place:city | What time is it in {city}?;What is the time in {city}?;Tell me the time in {city};How late is it in {city}?;Local time in {city}?;Is it night in {city} now?
    search,web_search,search_web,google | Search the web.,Look something up on the internet.,Run a web search. | query:words,q:words,search_query:words | Search for {query};Search the web for {query};Look up {query};Find information about {query};Google {query};What does the internet say about {query}?;Find {query} online;Look for {query} on the web
    search_docs,search_documents,search_files,search_knowledge_base | Search the documentation.,Search the documents. | query:words,q:words,question:words | Search the docs for {query};What do the docs say about {query}?;Find {query} in the documentation;Look up {query} in the documents;Check the documentation for {query}
    send_email,email,send_mail | Send an email.,Email somebody. | to:email&subject:words,recipient:email&subject:words | Send an email to {to} about {subject};Email {to} with the subject {subject};Write to {to} about {subject};Mail {to}, subject {subject}
    send_email,send_mail | Send an email to an address. | to:email&subject:words&body:text | Send an email to {to} with the subject {subject} saying "{body}";Email {to} about {subject}: {body};Write "{body}" to {to}, subject {subject};Email {to} with subject {subject} and body {body};Send {to} an email with the subject {subject} and the body {body};Mail to {to}, subject: {subject}, body: {body}
    send_message,message,send_text,notify | Send a message to a person.,Text somebody. | to:person&text:text,recipient:person&message:text,name:person&text:text | Send {to} the message: {text};Tell {to} "{text}";Send a message to {to}: {text};Text {to}: {text};Let {to} know: {text};Message {to} that {text}
    add,add_numbers,sum | Add two numbers.,Adds a and b. | a:big&b:big,x:big&y:big | What is {a} plus {b}?;Add {a} and {b};How much is {a} + {b}?;{a} + {b};Calculate {a} plus {b};Compute the sum of {a} and {b}
    multiply,times,product | Multiply two numbers.,Multiplies a by b. | a:big&b:big,x:big&y:big | What is {a} times {b}?;Multiply {a} by {b};How much is {a} * {b}?;{a} x {b};Calculate {a} times {b};Compute the product of {a} and {b}
    subtract,minus,difference | Subtract two numbers. | a:big&b:big | What is {a} minus {b}?;Subtract {b} from {a};How much is {a} - {b}?;Take {b} away from {a}
    divide,quotient | Divide two numbers. | a:big&b:many | What is {a} divided by {b}?;Divide {a} by {b};How much is {a} / {b}?;How often does {b} go into {a}?
    calculate,calculator,evaluate,calc | Evaluate an arithmetic expression.,A calculator. | expression:sum,formula:sum | What is {expression}?;Calculate {expression};Work out {expression};How much is {expression}?;Evaluate {expression}
    square_root,sqrt | The square root of a number. | number:big,x:big | What is the square root of {number}?;Take the root of {number};sqrt of {number}?
    get_stock_price,stock_price,quote | Get the price of a stock.,Current stock quote. | symbol:symbol,ticker:symbol | What is the price of {symbol}?;How is {symbol} trading?;Stock price of {symbol}?;What does a share of {symbol} cost?;Quote for {symbol};How much is {symbol} worth?
    convert_currency,exchange | Convert an amount of money.,Currency conversion. | amount:many&from_currency:currency&to_currency:currency,amount:many&source:currency&target:currency,amount:many&from:currency&to:currency | Convert {amount} {from_currency} to {to_currency};How much is {amount} {from_currency} in {to_currency}?;What are {amount} {from_currency} worth in {to_currency}?;Change {amount} {from_currency} into {to_currency}
    convert_units,convert_unit,unit_converter | Convert a quantity to another unit. | value:many&from_unit:unit&to_unit:unit | Convert {value} {from_unit} to {to_unit};How many {to_unit} are {value} {from_unit}?;What is {value} {from_unit} in {to_unit}?
    translate,translate_text | Translate a text.,Translate text to another language. | text:text&language:language,text:text&target_language:language | Translate "{text}" to {language};How do you say "{text}" in {language}?;Say "{text}" in {language};What is "{text}" in {language}?;Put "{text}" into {language}
    create_event,add_event,schedule_meeting | Put an event into the calendar.,Schedule a meeting. | title:words&date:date,name:words&date:date | Schedule {title} on {date};Put {title} into my calendar on {date};Add an event called {title} on {date};I have {title} on {date}, write it down
    create_event,add_event,add_to_calendar | Create a calendar event.,Put an event into the calendar. | title:words&date:date&time:time,name:words&day:date&time:time | Schedule {title} on {date} at {time};Add {title} to my calendar on {date} at {time};Put {title} on {date} at {time} into the calendar;Create an event {title} for {date}, {time};Plan {title} for {date} at {time}
    create_event,schedule_meeting,book_meeting | Schedule a meeting with somebody. | person:person&date:date&time:time,attendee:person&date:date&time:time | Schedule a meeting with {person} on {date} at {time};Set up a call with {person} for {date}, {time};Book a meeting with {person} at {time} on {date};I need to meet {person} on {date} at {time}
    set_reminder,create_reminder,remind | Set a reminder.,Remind the user of something. | text:words&time:time,what:words&when:date | Remind me of {text} at {time};Set a reminder for {time}: {text};At {time}, remind me about {text};Don't let me forget {text} at {time}
    set_alarm,alarm,wake_up | Set an alarm clock. | time:time | Wake me at {time};Set an alarm for {time};Alarm at {time};I have to get up at {time}
    set_timer,start_timer,timer | Start a timer. | minutes:few | Set a timer for {minutes} minutes;Start a {minutes} minute timer;Tell me when {minutes} minutes are over;Timer, {minutes} minutes
    read_file,open_file,cat,view_file | Read a file.,Return the contents of a file. | path:path,file:path,file_path:path | Read {path};Open {path};What is in {path}?;Show me {path};Show the contents of {path};What does the file {path} say?;cat {path}
    write_file,save_file,create_file | Write text to a file. | path:path&content:text,file_path:path&text:text | Write "{content}" to {path};Save "{content}" as {path};Create the file {path} with the text "{content}";Put "{content}" into {path}
    delete_file,remove_file,rm | Delete a file. | path:path,file:path | Delete {path};Remove the file {path};Get rid of {path};I don't need {path} any more;Erase {path}
    list_files,ls,list_directory | List the files of a folder. | folder:word,path:word,directory:word | What is in the folder {folder}?;List the files in {folder};Which files are in {folder}?;ls {folder};Show me what {folder} holds
    run_command,bash,shell,execute | Run a shell command. | command:words,cmd:words | Run `{command}`;Execute {command};Run the command {command};In the shell, run {command}
    run_python,python,execute_code | Run Python code. | code:sum,source:sum | Run the Python code {code};Execute {code} in Python;What does Python say to {code}?
    run_query,query_database,sql | Run a query on the database. | query:words,sql:words | Query the database: {query};Run the SQL {query};Ask the database for {query}
    get_user,find_user,lookup_user | Look up a user by name.,Get a user's data. | name:person,user:person,username:person | Who is the user {name}?;Look up {name};Get the account of {name};Show me the user {name};What do we know about {name}?
    get_order,order_status,track_order | Get an order by its number.,Status of an order. | order_id:code,id:code,number:code | Where is my order {order_id}?;What is the status of order {order_id}?;Track order {order_id};Has {order_id} been shipped?;Look up the order {order_id};When does {order_id} arrive?
    cancel_order | Cancel an order. | order_id:code,id:code | Cancel order {order_id};I don't want {order_id} any more;Please stop the order {order_id};Cancel {order_id}
    refund_order,issue_refund | Refund an order. | order_id:code&reason:words | Refund order {order_id} because of {reason};I want my money back for {order_id}: {reason};Give a refund for {order_id}, the reason is {reason}
    create_ticket,open_ticket,file_issue | Open a support ticket. | title:words&priority:priority,summary:words&priority:priority | Open a {priority} priority ticket: {title};File a ticket about {title} with priority {priority};Create a ticket called {title}, priority {priority}
    transfer_to_agent,handoff,escalate,transfer | Hand the conversation over to another agent. | agent:word,department:word | Let me talk to the {agent} agent;Transfer me to {agent};I want to speak with {agent};Hand me over to {agent}
    book_flight,find_flights,search_flights | Find flights between two cities. | origin:city&destination:city,from_city:city&to_city:city | Find flights from {origin} to {destination};I want to fly from {origin} to {destination};Is there a flight to {destination} from {origin}?;Flights {origin} to {destination}?
    book_flight | Book a flight. | origin:city&destination:city&date:date | Book a flight from {origin} to {destination} on {date};I need to fly to {destination} from {origin} on {date};On {date} I want to fly from {origin} to {destination}
    book_hotel,reserve_hotel,find_hotel | Book a hotel room. | city:city&nights:few,city:city&guests:few | Book a hotel in {city} for {nights} nights;I need a room in {city} for {nights} nights;Find me a hotel in {city}, {nights} nights
    book_table,reserve_table | Reserve a table in a restaurant. | restaurant:person&people:few&time:time | Book a table at {restaurant} for {people} people at {time};Reserve a table for {people} at {restaurant}, {time};We are {people} and want to eat at {restaurant} at {time}
    get_directions,route,navigate | Directions between two places. | origin:city&destination:city,start:city&end:city | How do I get from {origin} to {destination}?;Directions from {origin} to {destination};Show me the way to {destination} from {origin};Route from {origin} to {destination}
    get_distance,distance | The distance between two places. | a:city&b:city,from_place:city&to_place:city | How far is it from {a} to {b}?;Distance between {a} and {b}?;How many kilometres are between {a} and {b}?
    get_population,population | The population of a city. | city:city,place:city | How many people live in {city}?;What is the population of {city}?;Population of {city}?
    play_music,play_song,play | Play a song. | song:words,title:words | Play {song};Put on {song};I want to hear {song};Play the song {song}
    set_volume,volume | Set the volume. | level:few,volume:few | Set the volume to {level};Volume {level};Turn it to {level};Make the volume {level}
    turn_on_light,light_on,switch_light | Turn on the light in a room. | room:word | Turn on the light in the {room};Light in the {room}, please;It is dark in the {room};Switch the {room} light on
    set_temperature,set_thermostat,heat | Set the temperature of a room. | room:word&degrees:few | Set the {room} to {degrees} degrees;Heat the {room} to {degrees} degrees;I want {degrees} degrees in the {room}
    add_to_cart,buy,add_item | Put an item into the shopping cart. | item:words&quantity:few,product:words&quantity:few | Put {quantity} {item} into my cart;I want to buy {quantity} {item};Add {quantity} of {item};Order {quantity} {item}
    remove_from_cart | Take an item out of the cart. | item:words,product:words | Take {item} out of my cart;I don't want {item} after all;Remove {item} from the cart
    get_price,price_of,product_price | The price of a product. | product:words,item:words | How much is {product}?;What does {product} cost?;Price of {product}?;What is the price of {product}?
    save_note,remember,add_note,save_memory | Remember something for later.,Save a note. | note:text,text:text,fact:text | Note: {note};Write down "{note}";Remember that {note};Take a note: {note};Save the note "{note}"
    add_todo,add_task,create_task | Add a task to the list. | task:words,title:words | Add {task} to my to-do list;I have to do {task};New task: {task};Put {task} on my list
    roll_dice,dice,roll | Roll a die. | sides:many,n:many | Roll a die with {sides} sides;Throw a {sides}-sided die;Roll a d{sides}
    random_number,random | A random number in a range. | low:few&high:many,min:few&max:many | Give me a random number between {low} and {high};Pick a number from {low} to {high};Random number, {low} to {high}
    define,dictionary,lookup_word | Look up a word in the dictionary. | word:word,term:word | What does {word} mean?;Define {word};Look up the word {word};What is the meaning of {word}?
    get_capital,capital_of | The capital of a country. | country:city | What is the capital of {country}?;Capital of {country}?;Which city is the capital of {country}?
    get_page,fetch,browse,open_url,fetch_url | Fetch a web page. | url:url,link:url | Open {url};Fetch {url};What is on {url}?;Summarise {url};Go to {url};Read the page {url}
    get_customer,customer_info | Data of a customer. | customer_id:code,id:code | Show me the customer {customer_id};Who is customer {customer_id}?;Customer data of {customer_id};Look up customer {customer_id}
    final_answer,final_result,submit | The final answer. | answer:words,result:words | The answer is {answer};Submit {answer};Give {answer} as the final answer
""")


def parsed(line: str) -> tuple[list[str], list[str], list[list[tuple[str, str]]], list[str]]:
    """Names, descriptions, alternatives of parameters with their kinds, and requests of a line."""
    names, about, parameters, requests = (part.strip() for part in line.split(" | "))
    alternatives = [[(p.split(":")[0], p.split(":")[1]) for p in one.split("&")] for one in parameters.split(",")]
    descriptions = [text.strip() for text in about.split(".,")]
    return names.split(","), [text.rstrip(".") + "." for text in descriptions], alternatives, requests.split(";")


ENTRIES: Final = tuple(parsed(line) for line in CATALOGUE)


def known_use(rng: Random, split: Split) -> Use:
    """A use of a function of the catalogue, asked for in one of the split's wordings."""
    names, descriptions, alternatives, requests = rng.choice(ENTRIES)
    spellings, chosen = alternatives[0], rng.choice(alternatives)
    given: list[Argument] = []
    request = rng.choice(in_split(requests, split, "request"))
    for (slot, _), (name, kind) in zip(spellings, chosen, strict=True):
        schema, make = MAKERS[kind]
        value = make(rng)
        given.append(Argument(name, described(rng, schema, name, "request"), value, str(value)))
        request = request.replace("{" + slot + "}", str(value))
    function = function_object(rng, rng.choice(names), rng.choice(descriptions), given)
    texts = [one for one in given if isinstance(one.value, str) and "enum" not in one.schema]
    arguments: dict[str, Value] = {one.name: one.value for one in given}
    family = frozenset(word for one in names for word in one.split("_")) - {"get"}
    return Use(function, request, arguments, True, texts[-1] if len(texts) == 1 else None, family=family)
