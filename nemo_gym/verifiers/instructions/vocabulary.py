"""The words that the checks of instructions know."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ABBREVIATIONS = _words(
    "a.d a.m adm ariz aug ave bros calif co col colo conn corp d.c dec dr feb fla fri ft ga gen ill inc jan jr l.a lt "
    "ltd maj messrs mg mich minn mr mrs ms n.c n.j n.y nev nov oct ore p p.m pa ph.d prof r.i rep reps s.c sen sep "
    "sept sr st tenn tues u.k u.n u.s u.s.a v va vs wash wed wis yr"
)
"""A dot after these ends no sentence."""

OPENERS = _words(
    "although among and between both but consider despite even finally he her here however if imagine in it many "
    "moreover most please remember since so some still such that the therefore these they think this thus try under "
    "were when while yes your"
)
"""Words that begin a sentence, in capitals, even after an abbreviation."""

NO_NAMES = _words(
    "a about after against all also an another are as at because before can could did do does during each first for "
    "from had has have his how is keep let life made make may might must next no not now on once one or our over "
    "people second she should take their then there those time to until use was we what where which who why will with "
    "world would you"
)
"""Further words that, in capitals, begin a sentence after an initial: no name follows there."""

CONJUNCTIONS = _words("and but for nor or so yet")
"""Those that coordinate."""

PERSON_NAMES = _words(
    "Abigail Alexander Amelia Andrew Aria Audrey Ava Benjamin Charlotte Chloe Christopher Claire Daniel David Elijah "
    "Ella Emma Ethan Gabriel Grace Hannah Harper Isabella Jackson Jacob Jonathan Joseph Layla Leo Liam Lily Lucas "
    "Mason Matthew Mia Nathan Nicholas Noah Nora Olivia Owen Penelope Ryan Samuel Scarlett Sophia Stella Thomas "
    "Victoria Zoe"
)
"""The names that IFBench gives to choose from."""

PRONOUNS = _words(
    "i me we us you he him she her it they them my mine our ours your yours his hers its their theirs myself "
    "ourselves yourself yourselves himself herself itself themselves this that these those who whom whose which what "
    "whoever whomever whatever whichever anybody anyone anything everybody everyone everything nobody nothing "
    "somebody someone something each either neither both all some any none"
)
"""Of every kind."""

STOP_WORDS = _words(
    "a about above after again against ain all am an and any are aren as at be because been before being below "
    "between both but by can couldn d did didn do does doesn doing don down during each few for from further had hadn "
    "has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just "
    "ll m ma me mightn more most mustn my myself needn no nor not now o of off on once only or other our ours "
    "ourselves out over own re s same shan she should shouldn so some such t than that the their theirs them "
    "themselves then there these they this those through to too under until up ve very was wasn we were weren what "
    "when where which while who whom why will with won wouldn y you your yours yourself yourselves"
)
"""Those of NLTK's English list, without apostrophes."""

CAPITALS_FROM_THE_NORTH = _words(
    "Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw "
    "London Brussels Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb"
)
"""European capitals north of 45 degrees, as IFBench has them, by latitude."""
