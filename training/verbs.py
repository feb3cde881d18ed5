"""Verbs with their synonyms, things, and parameters: what made-up functions are made of."""

from typing import Final

from training.registry import lines
from training.wordlists import ADJECTIVES, NOUNS, listed


def groups(text: str) -> tuple[tuple[str, ...], ...]:
    """Synonyms, separated by commas, one group a line."""
    return tuple(tuple(word.strip() for word in line.split(",")) for line in lines(text))


ASKING: Final = groups("""
    get, fetch, retrieve, look up
    find, search for, look for, locate
    show, display, present
    check, verify, inspect
    calculate, compute, work out
    estimate, guess, predict
    count, tally
    list, enumerate
    read, view
    measure, gauge
    analyse, examine, study
    summarise, sum up
    describe, explain
    rank, order by rank
    compare, contrast
    translate, put into another language
    convert, transform
    validate
    track, follow
    identify, recognise
""")
ACTING: Final = groups("""
    create, make, set up
    add, append, insert
    delete, remove, erase, get rid of
    update, change, modify, edit
    send, dispatch, deliver
    book, reserve
    cancel, call off
    start, launch, begin
    stop, halt, end
    open
    close, shut
    turn on, switch on, enable, activate
    turn off, switch off, disable, deactivate
    buy, purchase
    sell
    move, transfer, shift
    copy, duplicate, clone
    rename, give a new name to
    upload
    download
    save, store, keep
    print
    assign, allot
    approve, accept
    reject, decline, refuse
    archive
    restore, bring back
    lock
    unlock
    schedule, plan
    play
    pause, hold
    record, log, note down
    share
    tag, label, mark
    merge, combine, join
    split, divide
    clean, clear, wipe
    repair, fix, mend
    rent, hire
    scan
    export
    import
    invite
    block, ban
    rate, grade
    pay
    refund, pay back
    publish, post
    hide, conceal
    pack, wrap
    register, sign up
    ship, mail
    reset
    deploy, roll out
    test, try out
    pick up, collect
    paint, colour
    water
    heat, warm up
    cool, chill
""")
THINGS: Final = (
    *NOUNS,
    *listed(
        """invoice order meeting reservation ticket user account file playlist alarm reminder appointment contact
        customer product shipment parcel payment subscription event task project report article comment review recipe
        route flight hotel vehicle sensor server database backup branch commit issue pull_request device thermostat
        lock camera playlist album video photo document spreadsheet slide note calendar message email chat channel team
        employee salary contract policy claim loan stock currency exchange_rate price discount coupon cart warehouse
        inventory supplier patient prescription symptom course lesson exam grade student teacher classroom book_loan
        fine game match score tournament player weather forecast temperature humidity tide eclipse planet asteroid
        telescope experiment sample molecule protein gene cluster job queue container image volume network firewall
        certificate domain website page form survey poll vote petition donation campaign advert banner logo font theme
        menu dish ingredient table waiter kitchen oven drone satellite tractor field crop harvest barn greenhouse"""
    ),
)
QUALITIES: Final = (*ADJECTIVES, *listed("monthly daily weekly yearly local remote public private internal shared new"))
TEXT_PARAMETERS: Final = listed(
    """name title label owner author author_name person customer recipient sender assignee member code id key reference
    category topic subject description reason comment note message body text content query keyword phrase path folder
    file_name url link source target destination origin city country place location address street region language
    date day month start_date end_date deadline time hour zone brand model_name material colour color shape style
    genre mood status type group team department role email phone nickname project version branch device room symbol
    unit currency format scope channel theme area section item object product track station gate platform"""
)
WHOLE_PARAMETERS: Final = listed(
    """count quantity amount number limit size level days hours minutes seconds weeks age year width height length depth
    weight distance volume speed page priority rank score pages copies seats guests nights people attempts duration
    threshold offset port budget floor row column"""
)
REAL_PARAMETERS: Final = listed(
    "price rate ratio temperature factor latitude longitude cost weight share tip percentage"
)
FLAG_PARAMETERS: Final = listed(
    "urgent private public loud silent recursive force dry_run notify detailed express verbose shuffle repeat draft"
)
LIST_PARAMETERS: Final = listed("tags items names keywords members guests topics ingredients colours labels steps ids")
CHOICES: Final = groups("""
    low, medium, high
    small, medium, large
    red, green, blue, yellow
    celsius, fahrenheit
    metric, imperial
    asc, desc
    daily, weekly, monthly
    pdf, csv, json, html
    economy, business, first
    open, closed, pending
    email, sms, phone
    car, train, plane, bike
    morning, noon, evening
    gold, silver, bronze
    cash, card, transfer
    north, south, east, west
    public, private
    fast, slow
    draft, final
    kg, lb
    km, miles
    euro, dollar, yen
    standard, express
    dark, light
""")
OPENINGS: Final = lines("""
    {r}
    {r}
    {r}
    Please {r}
    Could you {r}?
    Can you {r}?
    Would you {r}?
    Would you please {r}?
    I need you to {r}
    I want you to {r}
    I would like you to {r}
    I'd like you to {r}
    Go ahead and {r}
    Now {r}
    Hey, {r}
    Hi, can you {r}?
    Hello! Please {r}
    Kindly {r}
    Be so kind and {r}
    I have to {r}
    We need to {r}
    Let us {r}
    Let's {r}
    Help me {r}
    It is time to {r}
    Time to {r}
    My boss wants me to {r}
    They asked me to {r}
    You should {r}
    Try to {r}
    I was told to {r}
    For me, {r}
    Quickly {r}
    Do me a favour and {r}
    If you can, {r}
    Next, {r}
    OK, {r}
    Right, {r}
    Make sure to {r}
    Don't forget to {r}
    Use a tool to {r}
    With your tools, {r}
    The customer wants to {r}
    I must {r}
    I'm trying to {r}
    Is it possible to {r}?
    Are you able to {r}?
    How about you {r}?
    Could I ask you to {r}?
    May I ask you to {r}?
    Shim, {r}
    Assistant: {r}
    Task: {r}
    To do: {r}
    Your job: {r}
    {r}, please
    {r} for me
    {r} now
    {r} as soon as you can
    {r} today
    {r}, will you?
    {r}, thanks
    {r}. Thank you!
""")
