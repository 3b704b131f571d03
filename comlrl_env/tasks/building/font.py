"""A font of 5 x 5 cells, drawn for this project, and words to write in it."""

from functools import lru_cache

# Each letter's rows from top to bottom, each row a number whose highest bit is the left cell.
_ROWS = """
A 14 17 31 17 17  B 30 17 30 17 30  C 15 16 16 16 15  D 30 17 17 17 30  E 31 16 30 16 31  F 31 16 30 16 16
G 15 16 19 17 15  H 17 17 31 17 17  I 31  4  4  4 31  J  7  2  2 18 12  K 17 18 28 18 17  L 16 16 16 16 31
M 17 27 21 17 17  N 17 25 21 19 17  O 14 17 17 17 14  P 30 17 30 16 16  Q 14 17 21 18 13  R 30 17 30 18 17
S 15 16 14  1 30  T 31  4  4  4  4  U 17 17 17 17 14  V 17 17 17 10  4  W 17 17 21 27 17  X 17 10  4 10 17
Y 17 10  4  4  4  Z 31  2  4  8 31
"""
_FIELDS = _ROWS.split()
FONT = {_FIELDS[i]: tuple(map(int, _FIELDS[i + 1 : i + 6])) for i in range(0, len(_FIELDS), 6)}
HEIGHT = WIDTH = 5
_THREE = """
ART BAY BEE BOX CAT COW CUP DEW DOG EAR ELF FAN FIG FOX GEM HAT HEN ICE INK JAM JAR KEY KIT LEG LOG MAP MUD NET NUT OAK
OWL PEN PIE RAT RUG SEA SKY SUN TEA TOY
"""
_FOUR = """
BARN BIRD BOAT BOOK CAKE CAVE CLAY COIN CROW DEER DUCK FERN FIRE FISH FROG GATE GOAT GOLD HARP HILL IRON LAKE LAMP LEAF
LION MOON MOSS NEST PATH POND RAIN RING ROSE SALT SEED SHIP SNOW STAR TREE WOLF
"""
_FIVE = """
ALIEN APPLE BEACH BREAD BRICK CABIN CANDY CHAIR CLOUD CROWN DAISY EAGLE EARTH FAIRY FLAME FRUIT GIANT GLASS GRAPE HONEY
HORSE HOUSE LEMON MAGIC MOUSE OCEAN OLIVE PEARL PIANO QUEEN RIVER ROBOT SHEEP STONE TABLE TIGER TORCH TRAIN WATER WHALE
"""
WORDS = (tuple(_THREE.split()), tuple(_FOUR.split()), tuple(_FIVE.split()))


@lru_cache(maxsize=256)
def cells(word: str) -> frozenset[tuple[int, int]]:
    """The cells (x, y) of a word, y upwards from 0, a blank column between letters."""
    found = set()
    for number, letter in enumerate(word):
        for row, bits in enumerate(FONT[letter]):
            for column in range(WIDTH):
                if bits >> (WIDTH - 1 - column) & 1:
                    found.add((number * (WIDTH + 1) + column, HEIGHT - 1 - row))
    return frozenset(found)


def width(word: str) -> int:
    """The number of columns of a word."""
    return len(word) * (WIDTH + 1) - 1


def drawn(word: str) -> str:
    """The word as five lines of ``#`` and ``.``, the top one first."""
    inside = cells(word)
    rows = range(HEIGHT - 1, -1, -1)
    return "\n".join("".join("#" if (x, y) in inside else "." for x in range(width(word))) for y in rows)
