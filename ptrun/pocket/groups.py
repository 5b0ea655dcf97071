"""Groups of relations between the same kinds of entities: only their words tell them apart."""

from dataclasses import dataclass

OBJECT, SUBJECT = "object", "subject"


@dataclass(frozen=True)
class Group:
    """Relations between a person and an entity of one `kind`.

    `unique` maps a relation to the end that can be filled only once: a person is born in one town,
    a firm has one founder. The relations in `others` may hold any number of times.
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
