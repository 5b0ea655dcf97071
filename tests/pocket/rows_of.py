"""What the tests of all pocket tasks share."""

from ptrun.pocket.tasks import SPLITS, rows

SIZES = (3000, 400, 600)


def every(task):
    """Return the rows of all splits in one list."""
    return [row for split in SPLITS for row in rows(task, split)]


def assert_splits(task, *fields):
    """Sizes are as stated, and no text of a field occurs twice in the task."""
    assert tuple(len(rows(task, split)) for split in SPLITS) == SIZES
    for field in fields:
        texts = [row[field] for row in every(task)]
        assert len(set(texts)) == len(texts)
