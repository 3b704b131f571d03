"""The names of the things: short, common, one word each, none a plural."""

_WORDS = """
cup key map hat pen box bag fan jar lid mug net oar pan rug saw tub vase wig axe ball bell belt boat bone
book boot bowl brick broom brush bulb cage cake cane card cart chain chair clock coat coin comb cork crate
crown desk dice dish doll door dress drill drum fence flag flask flute fork frame glass globe glove glue
gong grill hammer harp helmet hook horn hose ink jug kettle kite knife knob ladder lamp lantern lens lever
lock loom magnet mask mat medal mirror mop nail needle nest oven paint paper patch pedal pencil phone
piano pillow pin pipe plate plug pole pot pump purse puzzle quilt racket radio rake razor ribbon ring robe
rope ruler sack saddle sail scarf scale shelf shield ship shirt shoe shovel sled soap sock sofa spade
spoon spring stamp stool stove string sword table tape tent thread ticket tile tire torch towel tower toy
tray trunk tube umbrella vest violin wagon wallet watch wheel whistle window wire wrench yarn zipper
"""
NAMES = tuple(_WORDS.split())
COMMON = NAMES[:48]
# Every other name, so that both halves hold short and long words alike.
HALVES = {"train": NAMES[0::2], "eval": NAMES[1::2]}
