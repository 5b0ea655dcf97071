"""Tags of words in any scheme as IOB2, and whether tags mark spans at all."""

import re
from collections.abc import Iterable, Sequence

_TAG = re.compile(r"O|[BIESULM](-\S.*)?")


def marks_spans(tags: Iterable[str]) -> bool:
    """Return whether all tags are `O`, or the letter of a scheme with or without a type."""
    return all(map(_TAG.fullmatch, tags))


def iob2(tags: Sequence[str]) -> list[str]:
    """Return the tags of a sentence, in IOB1, IOB2, IOE2, BIOES, BILOU or BMES, as IOB2.

    IOB1, the scheme of CoNLL-2003, writes `B-` only between entities of one type that touch. `S-`
    and `U-` are one word, `E-` and `L-` the last. A tag without a type has the type `_`.
    """
    converted, before = [], "O"
    for tag in tags:
        begins = tag[0] in "BSU" or before[0] in "OSUEL" or before[2:] != tag[2:]
        converted.append(tag if tag == "O" else f"{'B' if begins else 'I'}-{tag[2:] or '_'}")
        before = tag
    return converted
