"""Rows as TravelPlanner publishes them, written by hand: a trip of five days with all wishes, one of three without."""

COLUMNS = {
    "Attractions": ["Name", "Latitude", "Longitude", "Address", "Phone", "Website", "City"],
    "Restaurants": ["Name", "Average Cost", "Cuisines", "Aggregate Rating", "City"],
    "Accommodations": [
        *["NAME", "price", "room type", "house_rules", "minimum nights", "maximum occupancy", "review rate number"],
        "city",
    ],
    "Flight": [
        *["Flight Number", "Price", "DepTime", "ArrTime", "ActualElapsedTime", "FlightDate", "OriginCityName"],
        *["DestCityName", "Distance"],
    ],
}


def table(kind, *rows):
    """A table as data frames print it: every column as wide as its widest cell, to the right."""
    cells = [COLUMNS[kind], *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(" ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells)


def place(town, hotels, restaurants, sights):
    return {
        f"Attractions in {town}": table(
            "Attractions", *((name, 1.5, -2.5, f"1 Main St, {town}", "Unknown", "Unknown", town) for name in sights)
        ),
        f"Restaurants in {town}": table(
            "Restaurants", *((name, p, foods, 3.5, town) for name, p, foods in restaurants)
        ),
        f"Accommodations in {town}": table("Accommodations", *((*hotel, 4.0, town) for hotel in hotels)),
    }


def leg(start, end, day, flights=(), drive=None, taxi=None):
    parts = {}
    for kind, price in (("Self-driving", drive), ("Taxi", taxi)):
        text = f"{kind.lower()}, from {start} to {end}, duration: 2 hours 1 mins, distance: 1,021 km, cost: {price}"
        parts[f"{kind} from {start} to {end}"] = "No valid information." if price is None else text
    rows = [(name, p, "10:00", "11:10", "1 hours 10 minutes", day, start, end, 134.0) for name, p in flights]
    text = table("Flight", *rows) if rows else f"There is no flight from {start} to {end} on {day}."
    return {f"Flight from {start} to {end} on {day}": text, **parts}


def row(*parts, days, people=1, budget=1300, asked=None, **changed):
    """A row as the data set has it: everything nested is the text of a Python literal."""
    asked = dict.fromkeys(("house rule", "cuisine", "room type", "transportation")) | (asked or {})
    blocks = [{"Description": name, "Content": text} for part in parts for name, text in part.items()]
    return {
        "org": "Alton",
        "days": days,
        "visiting_city_number": days // 2,
        "date": repr([f"2022-03-0{day}" for day in range(1, days + 1)]),
        "people_number": people,
        "local_constraint": repr(asked),
        "budget": budget,
        "query": "Please plan a trip.",
        "reference_information": repr(blocks),
    } | changed


BRAY = place(
    "Bray",
    [
        ("Loft, with a view", 100.0, "Entire home/apt", "No parties", 2.0, 4),
        ("Cheap room", 20.0, "Private room", "No smoking", 1.0, 2),
        ("Cheap room", 1.0, "Entire home/apt", "No smoking", 1.0, 6),
        ("Long stay", 10.0, "Entire home/apt", "No smoking", 3.0, 6),
        ("No dogs", 30.0, "Entire home/apt", "No pets & No visitors", 1.0, 6),
    ],
    [
        *[("R1", 1, "Tea, Cafe"), ("R2", 2, "BBQ"), ("R3", 3, "Cafe"), ("R4", 4, "Pizza")],
        *[("R5", 9, "Chinese, French"), ("R6", 5, "Tea, Chinese"), ("R1", 0, "Chinese, French")],
    ],
    ["Burg", "Mill"],
)
COVE = place(
    "Cove",
    [
        ("Barn ❤️", 50.0, "Entire home/apt", "No smoking & No visitors", 1.0, 6),
        ("Shed", 40.0, "Shared room", "No visitors", 1.0, 6),
    ],
    [*((f"S{n}", n, "Fast Food") for n in range(1, 7)), ("S7", 9, "French"), ("S8", 8, "Chinese")],
    ["Fort", "Pier", "Zoo"],
)
OUT = leg("Alton", "Bray", "2022-03-01", [("F11", 50)], drive=12, taxi=100)
ON = leg("Bray", "Cove", "2022-03-03", drive=8, taxi=60)
HOME = leg("Cove", "Alton", "2022-03-05", [("F31", 70), ("F32", 60)], taxi=90)
WISHES = {
    "house rule": "pets",
    "cuisine": ["Chinese", "French"],
    "room type": "entire room",
    "transportation": "no flight",
}
# Six people, Alton to Bray and Cove. Two taxis on every leg, since no drive leads home: 2 · (100 + 60 + 90) = 500.
# Two lofts for two nights 400, the barn 100. Meals: R6 for R4 and S7 for S6, 11 + 24 for each: 210. Together 1210.
FIVE = row(BRAY, COVE, OUT, ON, HOME, days=5, people=6, asked=WISHES)
# One person to Bray and back, no wishes: drives 12 + 7, No dogs 2 · 30, meals of 1 + 2 + 3 + 4 + 5 + 9.
THREE_PARTS = (
    place(
        "Bray",
        [("No dogs", 30.0, "Entire home/apt", "No pets", 1.0, 6)],
        [(f"R{n}", n, "Tea") for n in range(1, 8)],
        "ABC",
    ),
    OUT,
    leg("Bray", "Alton", "2022-03-03", [("F21", 5)], drive=7),
)
THREE = row(*THREE_PARTS, days=3, budget=100)
