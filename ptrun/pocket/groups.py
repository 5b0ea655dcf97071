"""Relations between the same kinds of things, so that only their words tell them apart."""

from dataclasses import dataclass

from ptrun.pocket.draw import Draw
from ptrun.pocket.entity import Entity

OBJECT, SUBJECT = "object", "subject"


@dataclass(frozen=True)
class Group:
    """Relations between a person and a thing of one `kind`.

    `unique` names the end that can be filled only once: a person is born in one town, a firm has
    one founder. `others` may hold any number of times.
    """

    kind: str
    unique: dict[str, str]
    others: tuple[str, ...]

    @property
    def relations(self) -> tuple[str, ...]:
        """All relations of the group."""
        return (*self.unique, *self.others)

    def besides(self, relation: str) -> list[str]:
        """Return the other relations of the group."""
        return [name for name in self.relations if name != relation]


_HEADS = {"founded": SUBJECT, "owns": SUBJECT, "manages": SUBJECT}
GROUPS = (
    Group("town", {"born_in": OBJECT, "lives_in": OBJECT}, ("visited",)),
    Group("firm", _HEADS, ("works_for",)),
    Group("paper", _HEADS, ("works_for",)),
    Group("club", _HEADS, ("plays_for",)),
    Group("school", {"teaches_at": OBJECT, "manages": SUBJECT}, ("studied_at",)),
    Group("play", {"wrote": SUBJECT, "directed": SUBJECT}, ("acted_in", "reviewed")),
    Group("film", {"directed": SUBJECT}, ("acted_in", "reviewed")),
    Group("book", {"wrote": SUBJECT}, ("reviewed",)),
    Group("song", {"recorded": SUBJECT}, ("reviewed",)),
    Group("painting", {"painted": SUBJECT}, ("reviewed",)),
    Group("person", {"married_to": OBJECT}, ("friend_of",)),
)


def people(count: int, draw: Draw, *but: Entity | str) -> list[Entity]:
    """Return people no two of whom share a name."""
    found: list[Entity] = []
    while len(found) < count:
        found.append(draw.person(*but, *found))
    return found


def things(kind: str, count: int, draw: Draw, *but: Entity | str) -> list[Entity | str]:
    """Return things of a kind no two of which share a name."""
    found: list[Entity | str] = []
    while len(found) < count:
        found.append(draw.value(kind, *but, *found))
    return found
