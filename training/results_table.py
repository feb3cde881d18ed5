"""Everyday tools as people write them: names, requests in ordinary words, and the fields and phrases they return."""

from typing import Final

# A tool is a paragraph: the sort of its result; names > descriptions > parameters; ? requests; = what a field is of >
# fields, of which only those without ~ are asked for > the sentence that says a bare value of the first; ~ phrases.
TABLE: Final = r"""
record
get_weather,weather,get_current_weather,current_weather,weather_lookup,fetch_weather > Get the weather in a city.;Get the current weather.;Current weather for a location.;Weather at a place > city/location/place/q:city&?unit/units:celsius,fahrenheit,metric:[ in {v}]
? [What is|What's|How is|How's] the weather in {city}[?| now?| today?];[Tell me|Show me|Check] the weather in {city};What's the weather like in {city}[?| today?| now?| right now?];[How warm|How cold|How hot] is it in {city}?;[Weather|Current weather] in {city}[?|];Is it [raining|sunny|cold|warm|nice] in {city}?;[Give|Get] me the [weather|current weather] [in|for] {city}
= in {city} > temperature/temp:degrees sky~/condition~/description~/summary~:sky humidity:percent wind_speed/wind:few > The temperature in {city} is {v}.
~ [{temperature} degrees|{temperature}°C|{temperature} °C|{temperature} C|{temperature} degrees Celsius][, | and ]{sky};{sky}[, |, about |, around ][{temperature} degrees|{temperature} C|{temperature}°C];[{temperature} degrees|{temperature}°C|{temperature} °C] in {city}[, {sky}|, {sky} at the moment];[{temperature}°C and {sky}|{temperature} degrees, {sky},|{sky} and {temperature} degrees] in {city};{city}: [{sky}, {temperature} degrees|{temperature}°C, {sky}|{temperature} degrees];It is [currently |now |]{temperature} degrees [and {sky} |]in {city}.;It is {temperature}°C[ with {sky}| and {sky}|].;The weather in {city} is {sky}[ with {temperature} degrees|, {temperature}°C].;[Currently|Now] {sky} in {city}, with {temperature} degrees.

record
get_forecast,forecast,weather_forecast,get_weather_forecast > Weather forecast for a day.;Get the forecast for a city;The weather on a given day > city/location/place:city&day/date/when:day
? [What will the weather be|How will the weather be] in {city} {day}?;[Forecast|Weather forecast] for {city} {day}[?|];[Tell me|Show me|Get] the forecast for {city} {day};Will it [rain|snow|be warm|be sunny] in {city} {day}?;What's the forecast for {city} {day}?
= in {city} {day} > high/maximum:degrees low/minimum:degrees sky~/summary~/outlook~:sky rain_chance/chance_of_rain:percent > The high in {city} is {v}.
~ {sky}, [high {high}, low {low}|{low} to {high} degrees|between {low} and {high} degrees|up to {high} degrees];It will be {sky} in {city}, {low} to {high} degrees.;{city}: {sky}, {low} to {high} degrees;It will be {sky} with up to {high} degrees.;[Up to {high} degrees, {sky}|The high is {high} and the low is {low}].;{sky} with a {rain_chance}% chance of rain

record
get_time,get_current_time,local_time,time_in,world_clock > Get the time in a city.;Local time at a place;Current time > city/place/location/timezone:city
? [What time is it|What's the time|What is the time] in {city}[?| now?];[Tell me|Check|Give me] the time in {city};[Time|Local time|Current time] in {city}?;How late is it in {city}?
= in {city} > time/local_time/current_time:hhmm timezone/tz:zone date:iso > It is {v} in {city}.
~ It is [now |]{time} in {city}.;The [local |current |]time in {city} is {time}.;{time} in {city}[, {timezone}|];{city}: {time};{time} ({timezone})

record
get_date,today,current_date,what_day > Get today's date.;The current date >
? [What is|What's] today's date?;[Tell me|Give me] today's date;[What day is it|What date is it|Which day is it] today?;What is the date today?
=  > date/current_date:iso weekday:weekday > It is {v}.
~ [Today is|It is] {weekday}, {date}.;{weekday}, {date};{weekday}

record
convert_currency,exchange,currency_converter,convert_money > Convert an amount of money.;Currency conversion > amount/value:many&from_currency/source/from/base:currency&to_currency/target/to/quote:currency
? [Convert|Change|Exchange] {amount} {from_currency} [to|into] {to_currency};[How much is|How much are|What is|What are] {amount} {from_currency} in {to_currency}?;[What are|What's] {amount} {from_currency} worth in {to_currency}?;{amount} {from_currency} [to|in] {to_currency}[?|]
=  > result/converted_amount/amount:money rate/exchange_rate:coins > {amount} {from_currency} is {v} {to_currency}.
~ {amount} {from_currency} [is|are|=|equals] {result} {to_currency}[.|];{result} {to_currency}[ at a rate of {rate}|];You get {result} {to_currency} for {amount} {from_currency}.

record
get_exchange_rate,exchange_rate,fx_rate > Get the exchange rate of two currencies.;Current exchange rate > base/from/from_currency:currency&target/to/to_currency:currency
? [What is|What's|Tell me|Get] the exchange rate [from|of] {base} to {target};[Exchange rate|Rate] {base} to {target}?;How many {target} do I get for one {base}?
= from {base} to {target} > rate/exchange_rate:coins date~:iso > The rate from {base} to {target} is {v}.
~ {base} to {target}: {rate};The [exchange |]rate from {base} to {target} is {rate}.;{base}/{target} {rate}

record
get_stock_price,stock_price,quote,get_quote,stock_quote > Get the price of a stock.;Current stock quote;Look up a share price > symbol/ticker/stock:symbol
? [What is|What's|Tell me|Get|Check] the [price|stock price|share price] of {symbol};How much is {symbol}[?| worth?| trading at?];How is {symbol} [doing|trading][?| today?];[Stock price of|Quote for] {symbol}?;What does a share of {symbol} cost?
= of {symbol} > price/last_price/closing_price:money change:change volume:big currency~:currency > The price of {symbol} is {v}.
~ {symbol}: {price}[ ({change})| {currency}|];{price} {currency}[, {change} today|];{symbol} is [trading |]at {price} {currency}[.|, {change} today.];The price of {symbol} is {price}[ {currency}|].

record
get_balance,account_balance,check_balance,bank_balance > Get the balance of an account.;Account balance > account/account_id/name:code
? [What is|What's|Tell me|Show me|Check] the balance of [account |]{account};[How much money|How much] is [in|on] account {account}?;[Balance|Account balance] of {account}?
= of account {account} > balance/amount/current_balance:money currency~:currency overdraft:bool > The balance is {v}.
~ {balance} {currency};The balance of [account |]{account} is {balance} {currency}.;You have {balance} {currency}[ in account {account}|].

text
wikipedia,wiki_lookup,search_wikipedia,get_article,encyclopedia > Look something up in Wikipedia.;Get a summary of an article;Look up an article in the encyclopedia > topic/title/query/article:topic
? What does [Wikipedia|the encyclopedia] say about {topic}?;Look up {topic} [on|in] Wikipedia;[Read|Show me|Get] the [Wikipedia |]article [about|on] {topic};[Check|Ask|Search] Wikipedia [about|for] {topic}
= about {topic} > summary~/extract~/text~:sentence url~:url > {v}
~ {summary}

text
fetch_page,fetch,open_url,get_page,browse,read_url,scrape > Fetch a web page.;Get the text of a web page;Download a page > url/link/address:url
? [Open|Fetch|Read|Get|Show me|Load] {url};[What is on|What does it say on] {url}?;[Open|Read|Fetch] the page {url};[Go to|Visit] {url}
=  > content~/text~/body~:sentence title~:title > {v}
~ {content};<p>{content}</p>;<h1>{content}</h1>;<html><body>{content}</body></html>

text
read_file,open_file,cat,file_read,get_file_contents > Read a file.;Return the contents of a file;Read text from a path > path/file/file_path/filename:path
? [Read|Open|Show me|Print|cat] {path};[What is in|What's in|What does it say in] {path}?;[Read|Open|Show me] the file {path};[Show|Give] me the [contents|text] of {path}
=  > content~/text~:sentence size~:big > {v}
~ {content};{content}\n

text
translate,translate_text,translator > Translate a text.;Translate text to another language > text/phrase:message&target_language/language/to/lang:language
? Translate "{text}" [to|into] {target_language};Put "{text}" into {target_language};[How do you say|How do I say|What is|What's] "{text}" in {target_language}?;Say "{text}" in {target_language}
=  > translation~/translated_text~:foreign > The translation is {v}.
~

record
define,dictionary,define_word,lookup_word,get_definition > Look up a word in the dictionary.;Definition of a word > word/term:word
? What does [the word |]{word} mean?;[Define|Look up] [the word |]{word};[What is|What's|Tell me|Give me] the [meaning|definition] of {word}
= of {word} > meaning~/definition~:meaning origin:language > {v}
~ {meaning};{word}: {meaning}

record
get_order,order_status,get_order_status,track_order,lookup_order > Get an order by its number.;Status of an order;Look up an order > order_id/id/order/order_number/number:code
? [Where is|What about|Check|Look up|Track] [my |]order {order_id};[What is|What's|Tell me|Check] the status of [my |]order {order_id};Has [my |]order {order_id} [been shipped|arrived|been delivered|left]?;Was [my |]order {order_id} [shipped|delivered|sent]?;When [does|will] order {order_id} arrive?;[Show me|Find|I need] order {order_id}
= of order {order_id} > status/state:status total/amount:money delivery_date/eta/arrival/delivery:date carrier:carrier item_count/number_of_items:small > The status of order {order_id} is {v}.
~ Order {order_id} is {status}[.|, total {total}.];[{status}|{status}, arriving {delivery_date}|{status} with {carrier}];[Your order|The order] is {status}[ and will arrive on {delivery_date}| with {carrier}|].;Order {order_id}: {status};Order {order_id} will arrive on {delivery_date}.

record
track_package,track_shipment,get_tracking,shipping_status,tracking > Track a parcel.;Shipping status by tracking number > tracking_number/tracking_id/number/code:code
? [Track|Where is|Find|Check] [my |the ]parcel {tracking_number};[Where is|Track] the package {tracking_number};[What is|What's] the [status|shipping status] of [parcel|package] {tracking_number}?
= of parcel {tracking_number} > location/last_location/place:city status/state:status carrier:carrier eta/delivery_date:date > The location of {tracking_number} is {v}.
~ [The parcel|Your parcel|The package] is [in {location}|{status}|{status} in {location}].;{status}[, last seen in {location}| in {location}];Parcel {tracking_number}: {status}, {location};It will be delivered by {carrier} on {eta}.

record
check_stock,get_inventory,inventory,stock_level,product_stock > How many of a product are in stock.;Inventory of a product > product/item/name/sku:product
? How many {product} [do we have|are left|are in stock]?;Are {product} [in stock|available]?;Check the stock of {product};[What is|What's] the stock of {product}?
= of {product} > quantity/stock/stock_level/count:few warehouse/location:city restock_date:date > The quantity of {product} is {v}.
~ {quantity} [in stock|left|left in {warehouse}];[There are|We have] {quantity} {product} in [stock|{warehouse}].;{product}: {quantity} in stock

record
get_price,product_price,price_of,price_lookup > The price of a product.;Look up a price > product/item/name:product
? [How much do|What do] {product} cost[?| now?];How much are {product}?;[What is|What's|Tell me|Check] the price of {product};[Price of|Price for] {product}?
= of {product} > price/unit_price:money currency~:currency discount:percent warranty~:bool > The price of {product} is {v}.
~ {price} {currency}[ each| per piece|];{product}: {price} {currency};[The price is|It costs|That is] {price} {currency}.;{price} [euros|dollars|pounds][, {discount}% off|]

record
get_contact,find_contact,contacts,lookup_contact > Find a contact by name.;Contact data of a person > name/person/contact:person
? [Look up|Find|Show me|Get] the contact [data |details |]of {name};[What are|Get me] the contact details of {name};How can I reach {name}?
= of {name} > phone/phone_number/mobile:phone email:email city/address:city birthday:date company:title > The phone number of {name} is {v}.
~ {name}, {phone}[, {email}|];{name}: [{phone}|{email}];[You can reach {name} at|The number of {name} is|{name} can be reached at] {phone}.

record
get_user,find_user,lookup_user,user_info,get_profile > Get a user by id.;Look up a user > user_id/id/uid:id&?include_orders/with_history:bool:
? [Get|Show me|Look up|Find|Who is] user {user_id};[Get|Show] the [profile|account|data] of user {user_id};What do we know about user {user_id}?
= of user {user_id} > name/full_name/username:person email:email role:role age:percent premium~/newsletter~:bool signup_date/birthday:iso > The name of user {user_id} is {v}.
~ {name}[, {role}|, {email}| ({role})];User {user_id} is {name}[, {email}|].;User {user_id}: {name}, {role}

record
get_ticket,ticket_status,lookup_ticket,get_issue > Get a support ticket.;Look up an issue by its number > ticket_id/id/number/issue:id
? [What is|What's|Check] the [status|state] of ticket {ticket_id};[Show me|Get|Look up|Find] ticket {ticket_id};What about ticket {ticket_id}?;Is ticket {ticket_id} [closed|done|solved]?
= of ticket {ticket_id} > status/state:state assignee/owner:person priority:priority title~/subject~:query > The status of ticket {ticket_id} is {v}.
~ {status}[, assigned to {assignee}|, {priority} priority];Ticket {ticket_id} is {status}[ and assigned to {assignee}|].;Ticket {ticket_id}: {status}, {priority}

record
server_status,check_server,ping_host,health_check,get_status > Check a server.;Status of a host > host/server/hostname/name:host
? Is {host} [up|running|online|alive]?;[Check|Tell me] if {host} is [up|running|online];[Check|Ping] [the server |]{host};[What is|What's|Check] the [status|state] of [the server |]{host};How is [the server |]{host} doing?
= of {host} > status/state/health:health cpu/cpu_load:percent memory/memory_used:percent uptime~:few version:version > The status of {host} is {v}.
~ [Server|The server|Host] {host} is {status}[.|, CPU at {cpu}%.];{status}, [CPU {cpu}%|CPU at {cpu}%, memory at {memory}%];Status of {host}: {status}

record
read_sensor,get_sensor,sensor_value,get_reading > Read a sensor.;The value of a sensor in a room > room/sensor/location/name:room
? [Read|Check] the sensor in the {room};[How warm|How hot|How cold] is it in the {room}?;What does the sensor in the {room} [say|show|measure]?
= in the {room} > temperature/value:degrees humidity:percent battery:percent motion~:bool > The temperature in the {room} is {v}.
~ {temperature} degrees[, {humidity}% humidity|];The {room} is at {temperature} degrees[ and {humidity}% humidity|].;{room}: {temperature}°C

record
get_distance,distance,calculate_distance,how_far > The distance between two places.;Distance in kilometres > origin/from_city/start/a:city&destination/to_city/end/b:city
? How far is it from {origin} to {destination}?;[What is|What's|Tell me] the distance [from {origin} to|between {origin} and] {destination};How many kilometres is it from {origin} to {destination}?
= from {origin} to {destination} > distance/length:km duration/travel_time:minutes > The distance from {origin} to {destination} is {v}.
~ {distance} [km|kilometres][ by car| by road|];It is {distance} km from {origin} to {destination}.;{distance} km, about {duration} minutes

record
get_directions,directions,route,get_route,navigate > Directions between two places.;Route from one place to another > origin/start/from_place:city&destination/end/to_place:city&?mode/travel_mode:car,train,bike,foot:[ by {v}]
? [How do I get|How can I get] from {origin} to {destination}?;[Give me|Show me|Find] [directions|the way|a route] from {origin} to {destination};[Directions|Route|The way] from {origin} to {destination}?
= from {origin} to {destination} > duration/travel_time:minutes distance/length:km road~/via~:title > The duration is {v}.
~ [Take|Follow] {road}[ for {distance} km|, about {duration} minutes][.|];{distance} km via {road}, {duration} minutes;Turn left after {distance} km and follow {road}.

record
get_alerts,weather_alerts,storm_warning,get_warnings > Weather alerts for a region.;Official warnings of severe weather > region/area/city/state:city
? [Are there|Do we have] [any |]weather [alerts|warnings] [for|in] {region}?;[Check|Show me|Get] the weather [alerts|warnings] [for|in] {region};Is there a [storm|weather] warning [for|in] {region}?
= in {region} > alert~/event~/warning~:alert severity/level:level end/expiry_date:date > {v}
~ {alert}[ until {end}| in {region}|, level {severity}];There is a {alert} [in|for] {region}[.| until {end}.];{region}: {alert}

record
get_score,game_score,match_result,sports_score > Get the score of a team's last game.;Result of a match > team/club/name:team
? [How did|Did] the {team} [play|win]?;[What was|What's|What is|Tell me] the [score|result] of the {team}[ game| match|];[Score|Result] of the {team}?
= of the {team} > score/result:score opponent:team date:date > The score of the {team} is {v}.
~ {team} {score}[ against| vs.] {opponent};The {team} [won|lost|played] {score}[.| against the {opponent}.];{score}

record
get_movie,movie_info,find_movie,film_details > Information about a film.;Look up a movie by title > title/movie/name:title
? [Tell me about|Look up|Find|Show me] the [movie|film] {title};What do you know about the film {title}?;How good is the movie {title}?;Is the movie {title} good?
= of the film {title} > rating/score:rating director:person year/release_year:year genre:genre runtime/length:minutes > The rating of {title} is {v}.
~ {title}[, a {genre}|][ by {director}| from {year}];{title} is a {genre} by {director}, rated {rating}.;{genre}, {year}, rated {rating}

record
get_book,book_info,find_book,lookup_book > Information about a book.;Look up a book by title > title/book/name:title
? [Look up|Find|Show me|Tell me about] the book {title};What do you know about the book {title}?;Who wrote the book {title}?
= of the book {title} > author/writer:person year/publication_year:year page_count/length:big isbn:code > The author of {title} is {v}.
~ {title} by {author}[, {year}|];{title} was written by {author}[ in {year}|].;{author}, {year}, {page_count} pages

number
add,add_numbers,plus,sum_two > Add two numbers.;Adds a and b;Returns the sum of two numbers > a/x/first/num1:number&b/y/second/num2:number
? Add {a} [and|to|plus] {b};[What is|What's|How much is] {a} [plus|+] {b}?;{a} [+|plus] {b}[?|];[Calculate|Compute|Work out] {a} [plus|+] {b};[What is|What's|Calculate|Compute] the sum of {a} and {b}
=  > result/sum:number > {a} plus {b} is {v}.
~ {a} [+|plus] {b} [=|is] {result};The sum [of {a} and {b} |]is {result}.

number
multiply,times,multiply_numbers,product > Multiply two numbers.;Multiplies a by b;Returns the product of two numbers > a/x/first/num1:number&b/y/second/num2:number
? Multiply {a} [by|and|with] {b};[What is|What's|How much is] {a} [times|*|x] {b}?;{a} [*|times|x] {b}[?|];[Calculate|Compute|Work out] {a} [times|*] {b};[What is|What's|Calculate|Compute] the product of {a} and {b}
=  > result/product:number > {a} times {b} is {v}.
~ {a} [*|times|x] {b} [=|is] {result};The product [of {a} and {b} |]is {result}.

number
subtract,minus,difference,subtract_numbers > Subtract two numbers.;Returns a minus b > a/x/minuend:number&b/y/subtrahend:number
? Subtract {b} from {a};[What is|What's|How much is] {a} [minus|-] {b}?;Take {b} [away |]from {a};[Calculate|Compute] {a} [minus|-] {b};{a} [-|minus] {b}[?|]
=  > result/difference:number > {a} minus {b} is {v}.
~ {a} - {b} = {result};The difference is {result}.

number
divide,division,quotient,divide_numbers > Divide two numbers.;Returns a divided by b > a/x/dividend/numerator:number&b/y/divisor/denominator:number
? Divide {a} by {b};[What is|What's|How much is] {a} [divided by|/] {b}?;[Calculate|Compute] {a} [divided by|/] {b};{a} [/|divided by] {b}[?|]
=  > result/quotient:money > {a} divided by {b} is {v}.
~ {a} / {b} = {result};The quotient is {result}.

number
sum_numbers,sum,sum_list,add_all,total > Add up a list of numbers.;Returns the sum of numbers > numbers/values/items/nums:numbers
? [Add up|Sum up|Sum|Total|Add] {numbers};[What is|What's|Calculate|Compute] the [sum|total] of {numbers};How much do {numbers} make together?
=  > result/sum/total:number > The result is {v}.
~ The [sum|total] is {result}.;[Total|Sum]: {result}

number
percentage,percent_of,calculate_percentage > Calculate a percentage of a number.;Percent of a value > percent/rate/p:percent&value/of/number/total:number
? [What is|What's|How much is|Calculate|Compute] {percent}[%| percent] of {value};{percent}[%| percent] of {value}[?|]
=  > result/value:money > The result is {v}.
~ {percent}% of {value} is {result}.

number
calculate,calculator,eval_expression,math,python_calculator > Evaluate an arithmetic expression.;A calculator;Evaluates a mathematical expression > expression/formula/expr/input:expression
? [Calculate|Compute|Evaluate|Work out|Solve] {expression};[What is|What's|How much is] {expression}?
=  > result/value/answer:number > The result is {v}.
~ {expression} = {result};The [result|answer] is {result}.

number
convert_units,unit_converter,convert_unit,convert > Convert a quantity to another unit.;Unit conversion > value/amount/quantity:many&from_unit/source/from:unit&to_unit/target/to:unit
? [Convert|Change] {value} {from_unit} [to|into] {to_unit};How many {to_unit} are {value} {from_unit}?;[What is|What's|How much is] {value} {from_unit} in {to_unit}?
=  > result/value:money > The result is {v}.
~ {value} {from_unit} [is|are|=] {result} {to_unit}[.|];{result} {to_unit}

number
roll_dice,roll,dice,roll_die > Roll a die.;Throw dice with so many sides > sides/n/faces:sides
? [Roll|Throw] a die with {sides} sides;[Roll|Throw] a [{sides}-sided die|d{sides}]
=  > result/roll/value:small > The result is {v}.
~ [You rolled|You got|It is] a {result}.;You rolled {result}!

number
random_number,random_int,rand,pick_number > A random number in a range.;Random integer between two numbers > low/min/start/a:small&high/max/end/b:many
? [Give me|Pick|Choose|Draw|Generate] a [random |]number [between {low} and {high}|from {low} to {high}];[Random number|Any number] [between {low} and {high}|from {low} to {high}][?|]
=  > result/number/value:small > The result is {v}.
~ [The number|Your number] is {result}.

list
search,web_search,search_web,google,internet_search,bing > Search the web.;Look something up on the internet;Run a web search;Search engine > query/q/search_query/text/term:query&?limit/max_results/num_results:*small:[, at most {v} results|, {v} results]
? Search for {query};[Search|Google|Look for|Look up|Find] {query}[ online| on the web| on the internet];Search [the web|the internet|Google|online] for {query};Look up {query};Find [information|something|pages|articles] about {query};Do a [web search|search] for {query};Google {query}
= > title/name:title url/link:url snippet~:sentence > {v}
~ {snippet}

list
search_news,get_headlines,news,top_headlines,latest_news > Get news headlines.;Latest news about a topic > topic/query/category/keyword:topic
? [Show me|Get|Find|Read me] the [latest |]news about {topic};[What is|What's] [new|the news] about {topic}?;Any [news|headlines] about {topic}?;[News|Headlines|Latest news] about {topic}[?|]
= > headline/title:headline source/publisher:title date/publication_date:date > {v}
~ {headline}

list
search_hotels,find_hotels,hotels,hotel_search,list_hotels > Find hotels in a city.;Search for hotels > city/location/destination/place:city&?guests/adults/people:*small:[ for {v} people]
? [Find|Show me|Search for|List|Look for|Get me] [hotels|a hotel|some hotels] in {city};[Which hotels are there|Are there any hotels] in {city}?;I need a [hotel|room] in {city};Hotels in {city}?
= > name/hotel:place price/price_per_night/rate:money rating/score:rating > {v}
~ {name}, {price} a night

list
search_flights,find_flights,flights,flight_search,list_flights > Find flights between two cities.;Search for flights > origin/from_city/departure/from:city&destination/to_city/arrival/to:city&?date/day/departure_date:*day:[ {v}]
? [Find|Show me|Search for|List|Get me] [flights|a flight] from {origin} to {destination};[Which flights are there|Are there flights] from {origin} to {destination}?;I [want|need|have] to fly from {origin} to {destination};Flights from {origin} to {destination}?
= > flight/flight_number/number:flight price/fare:money departure/departure_time:hhmm > {v}
~ {flight} at {departure}

list
find_restaurants,search_restaurants,restaurants,places_to_eat > Find restaurants in a city.;Search for restaurants > city/location/place/near:city&?cuisine/kind/type:*cuisine:[, {v} food]
? [Find|Show me|Search for|List] [restaurants|a restaurant|places to eat] in {city};[Where can I eat|Where can we have dinner] in {city}?;[Restaurants|Good restaurants] in {city}?
= > name/restaurant:place rating/score:rating cuisine:cuisine price_level~:small > {v}
~ {name} is rated {rating}.;{name}, {cuisine}, {rating} stars;The best one is {name}.

list
list_events,get_events,calendar,get_calendar,list_meetings > List calendar events of a day.;Events in the calendar > date/day/when:day
? [What is|What's] [in|on] my calendar {date}?;[Show me|List|Get] my [events|meetings|appointments] {date};[What do I have|Do I have anything|Do I have meetings] {date}?;My [schedule|appointments] {date}?
= > title/event/summary:event time/start/start_time:hhmm location/place:title > {v}
~ {title} at {time}

list
list_files,ls,list_directory,list_dir,get_files > List the files of a folder.;Directory listing > folder/path/directory/dir:folder
? [List|Show me|Show|Get] the files [in|of] [the folder |]{folder};[Which files are|What files are] in {folder}?;[What is|What's] in [the folder |]{folder}?;ls {folder}
= > name/file/filename:path size/length:big date/change_date:iso > {v}
~ There is one file, {name}.;The file {name} has {size} bytes.;One file: {name} ({size} bytes, {date})

list
run_query,query_database,sql,execute_sql,db_query > Run a query on the database.;Execute SQL > query/sql/statement:sql
? [Run|Execute] [the query|the SQL|this query:|this SQL:] {query};[Query the database:|Ask the database:|SQL:] {query}
= > name/customer/title:person city/location:city age/score/total:percent > {v}
~ {name} from {city};{name}, {city}, {age}

list
search_products,find_products,catalog_search,shop_search > Search for products in the shop.;Find products > query/keyword/term/q:product&?max_price/price_limit:*many:[ under {v} euros| for less than {v} euros]
? [Find|Show me|Search for|Look for|I need|I want to buy] {query};Do you [have|sell] {query}?;[Search|Look in] the shop for {query}
= > name/product/title:goods price/cost:money stock/quantity:few > {v}
~ {name}, {price} euros;We have {name} for {price} euros.;{name} at {price} each

list
search_emails,list_emails,find_emails,inbox,get_emails > Find e-mails from a sender.;Search the inbox > sender/from/from_address/person:first
? [Show me|Find|List|Search for] the [e-mails|emails|mails] from {sender};[Do I have|Are there] [e-mails|emails|any emails] from {sender}?;What did {sender} [write|mail] me?
= > subject/title:event date/day:date size~:big > {v}
~ {sender} wrote about {subject} on {date}.;One mail from {sender}: {subject}

action
send_email,email,send_mail,compose_email > Send an e-mail.;Email somebody > to/recipient/address:email&subject/title:event&?priority/importance:low,high:
? [Send|Write] an [email|e-mail] to {to} [about|with the subject] {subject};[Email|Mail] {to} about {subject}
= > message_id/id:code > Done.
~ Email sent.;[E-mail|The email|Mail] [was |]sent to {to}.;Message queued for {to}.

action
send_message,message,send_text,send_sms,text_person > Send a message to a person.;Text somebody > to/recipient/person/name:first&text/message/body/content:message
? [Send|Write] {to} [the message|a message]: {text};[Tell|Text|Message] {to} that {text};[Tell|Text|Message|Send] {to} "{text}";Let {to} know that {text};Send a message to {to}: {text}
= > message_id/id:code status~:ok > Done.
~ [Message|Text] sent.;[Message|Text] [was |]sent to {to}.;Your message to {to} was delivered.

action
set_reminder,create_reminder,remind,add_reminder > Set a reminder.;Remind the user of something > text/what/title/task:task&time/when/at:clock
? Remind me to {text} at {time};Set a reminder to {text} at {time};At {time}, remind me to {text};Don't let me forget to {text} at {time}
= > reminder_id/id:id > Done.
~ Reminder set[.| for {time}.];I will remind you at {time}.

action
create_event,add_event,schedule_meeting,book_meeting > Schedule a meeting.;Put an event into the calendar > person/attendee/with:first&day/date:day&time/start/at:clock
? [Schedule|Set up|Book|Plan] a [meeting|call] with {person} {day} at {time};[I want to meet|I need to see] {person} {day} at {time}
= > event_id/id:code > Done.
~ [Meeting|Event] [created|scheduled|added].;The meeting with {person} is booked for {time}.

action
play_music,play_song,play,start_music > Play a song.;Start music > song/title/track:song&?volume/level:*small:[ at volume {v}]
? [Play|Put on|Start] [the song |]{song};[I want|I'd like] to hear {song};[Let me|Let us] hear {song}
= > track_id/id:code > Done.
~ Now playing {song}.;[Playing|Started] {song}.

action
set_light,turn_on_light,light_on,switch_light > Turn on the light in a room.;Switch the light of a room on > room/location/name:room&?brightness/level:*percent:[ at {v}%| at {v} percent]
? [Turn|Switch] on the [light|lights|lamp] in the {room};[Turn|Switch] the light in the {room} on;Light on in the {room};Make some light in the {room}
= > device_id/id:code state~:on > Done.
~ [Light|The light] [in the {room} |]is on.;The {room} light was turned on.

action
set_thermostat,set_temperature,heat,thermostat > Set the temperature of a room.;Heat a room > room/location/zone:room&degrees/temperature/target:heat
? [Set|Heat|Turn] the {room} to {degrees} degrees;Make it {degrees} degrees in the {room};I want {degrees} degrees in the {room}
= > device_id/id:code > Done.
~ [The {room}|Thermostat] is set to {degrees} degrees.;Target temperature: {degrees} degrees.

action
add_to_cart,add_item,buy_product,order_product > Put a product into the shopping cart.;Buy something > product/item/name:product&quantity/count/amount:small
? Add {quantity} {product} to [my|the] cart;Put {quantity} {product} into [my|the] cart;[Order|Buy] {quantity} {product};I want to buy {quantity} {product}
= > cart_id/id:code total:money > Done.
~ Added to [the|your] cart.;{quantity} {product} [were|have been] added.

action
create_ticket,open_ticket,file_issue,new_ticket > Open a support ticket.;Create an issue > title/summary/subject:event&?priority/severity:low,normal,high:[ with {v} priority]
? [Open|Create|File] a ticket about {title};[Open|Create|File] a ticket: {title};New ticket about {title}
= > ticket_id/id/number:id > Done.
~ Ticket [created|opened].;[Your ticket|The ticket] about {title} was created.

action
run_command,bash,shell,execute,terminal > Run a shell command.;Execute a command in the shell > command/cmd/script:command
? [Run|Execute] [the command |]{command};[Run|Execute] `{command}`;In the [shell|terminal], run {command}
= > exit_code/code:zero > Done.
~ [Command|Process] finished.;The command [succeeded|finished|was run].
"""
