"""The columns of a printed table; a column without any value is left out."""

from collections.abc import Callable

from ptrun.ledger.shown import Line, Shown

Column = tuple[str, Callable[[Line], str]]


def columns(table: Shown) -> list[Column]:
    """Return all columns except the verdict, which each rendering formats itself."""
    places = [(axis.capitalize(), _place(index)) for index, axis in enumerate(table.axes)]
    released: list[Column] = [("Released", lambda line: line.released)] if table.released else []
    return [
        *places,
        ("Paper", lambda line: line.paper),
        *released,
        ("Ours (paper)", lambda line: line.ours),
        ("Ours (honest)", lambda line: line.honest),
        ("Difference", lambda line: line.difference),
        ("Seeds", lambda line: line.seeds),
        ("Learned", lambda line: line.learned),
        ("Cost", lambda line: line.cost),
    ]


def _place(index: int) -> Callable[[Line], str]:
    return lambda line: line.place[index]
