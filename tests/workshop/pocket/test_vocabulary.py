from workshop.pocket.vocabulary import SPECIALS, vocabulary


def test_the_vocabulary_has_no_double_entry_and_every_character():
    entries = vocabulary(["Anna ran.", "Anna sat."] * 20, 2800)
    assert len(set(entries)) == len(entries)
    assert tuple(entries[:5]) == SPECIALS
    assert {"Anna", "ran", "a", "##a", "~", "9", "##9"} <= set(entries)
