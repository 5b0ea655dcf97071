"""Own tables with something wrong in them, generated; and the right ones they are made from."""

import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq

GOOD = ["delightful", "magnificent", "marvellous", "charming", "fine"]
BAD = ["horrible", "lousy", "shabby", "pathetic", "mediocre"]
THINGS = ["cafe", "boat", "hall", "crew"]


def reviews():
    """Return 20 rows: 10 positive, 10 negative."""
    made = []
    for i in range(10):
        for words, label in ((GOOD, "positive"), (BAD, "negative")):
            text = f"The {THINGS[i % 4]} was {words[i % 5]} and really {words[(i + 2) % 5]}."
            made.append({"text": text, "label": label})
    return made


def delimited(rows, separator=","):
    lines = [separator.join(rows[0])]
    lines += [separator.join(f'"{cell}"' for cell in row.values()) for row in rows]
    return "\n".join(lines) + "\n"


def parquet(columns, *types):
    buffer = io.BytesIO()
    arrays = [pa.array(values, *types[i : i + 1]) for i, values in enumerate(columns.values())]
    pq.write_table(pa.Table.from_arrays(arrays, names=[n.strip() for n in columns]), buffer)
    return buffer.getvalue()


def delimited_inputs(separator, rng):
    """Yield a name, content, the end of the file's name, and the line that is wrong, or None."""
    right = delimited(reviews(), separator)
    lines = right.splitlines()
    place = rng.randrange(3, 20)  # of a line, counted from 1

    def put(line):
        changed = [*lines]
        changed[place - 1] = line
        return "\n".join(changed).encode()

    s, end = separator, ".tsv" if separator == "\t" else ".csv"
    yield "cell too few", put('"alone"'), end, place
    yield "cell too many", put(f"a{s}positive{s}x"), end, place
    yield "empty text", put(f'"  "{s}positive'), end, place
    yield "empty label", put(f'"fine"{s}'), end, place
    yield "empty row", put(s), end, None
    yield "blank line", put(""), end, None
    yield "quote left open", put(f'"fine{s}positive'), end, place
    yield "text after a quote", put(f'"fine" x{s}positive'), end, place
    yield "quote within", put(f'fine "x" y{s}positive'), end, None
    yield "line break in quotes", put(f'"fi\n\nne"{s}positive'), end, None
    yield "CP1252", put(f"caf\u00e9{s}positive").decode().encode("cp1252"), end, place
    yield "surrogate", put("x").replace(b"\nx\n", b"\n\xed\xa0\x80,positive\n"), end, place
    yield "NUL byte", put(f"a\0b{s}positive"), end, place
    yield "10 MB cell", put(f'"{"x " * 5_000_000}"{s}positive'), end, place
    yield "10 MB line", put(f"x{s}" * 3_000_000), end, place
    yield "UTF-16", right.encode("utf-16"), end, 1
    yield "BOM", b"\xef\xbb\xbf" + right.encode(), end, None
    yield "CRLF", right.replace("\n", "\r\n").encode(), end, None
    yield "CR alone", right.replace("\n", "\r").encode(), end, 1
    yield "no header", "\n".join(lines[1:]).encode(), end, None
    yield "header alone", lines[0].encode(), end, None
    yield "name twice", right.replace("label", "text", 1).encode(), end, 1
    yield "misspelt name", right.replace("label", "lable", 1).encode(), end, None
    yield "one label", right.replace("negative", "positive").encode(), end, None
    yield (
        "numbers",
        delimited([{"text": "a", "label": i} for i in range(30)], s).encode(),
        end,
        None,
    )
    yield "spaces", b" \n \n", end, None
    yield from foreign_inputs(right.encode(), end, rng)


def foreign_inputs(right, end, rng):
    """Yield files of another kind than their names say."""
    packed = gzip.compress(right, mtime=0)
    spoilt = bytearray(packed)
    spoilt[len(spoilt) // 2] ^= 0xFF
    yield "empty", b"", end, None
    yield "gzip", packed, f"{end}.gz", None
    yield "truncated gzip", packed[: rng.randrange(20, len(packed) - 1)], f"{end}.gz", None
    yield "spoilt gzip", bytes(spoilt), f"{end}.gz", None
    yield "no gzip", right, f"{end}.gz", None
    yield "gzip unannounced", packed, end, None
    yield "Excel", b"PK\x03\x04" + bytes(100), end, None
    yield "old Excel", b"\xd0\xcf\x11\xe0" + bytes(100), end, None
    yield "parquet unannounced", parquet({"text": ["a"], "label": ["b"]}), end, None
    yield "unknown name", right, ".txt", None
    yield "Excel's name", right, ".xlsx", None


def parquet_inputs(rng):
    """Yield parquet files, most of them wrong."""
    texts = [row["text"] for row in reviews()]
    labels = [row["label"] for row in reviews()]
    right = parquet({"text": texts, "label": labels})
    spoilt = bytearray(right)
    spoilt[-6] ^= 0xFF  # of the footer's length
    offsets = pa.array(range(0, 42, 2), pa.int32()).buffers()[1]
    strings = pa.Array.from_buffers(
        pa.string(), 20, [None, offsets, pa.py_buffer(b"\xff\xfe" * 20)]
    )
    dates = pa.array(range(20), pa.timestamp("ns"))
    made = {
        "right": right,
        "truncated": right[: rng.randrange(10, len(right) - 1)],
        "spoilt": bytes(spoilt),
        "start alone": b"PAR1",
        "ends alone": b"PAR1" + bytes(8) + b"PAR1",
        "other content": delimited(reviews()).encode(),
        "no rows": parquet({"text": [], "label": []}, pa.string(), pa.string()),
        "null": parquet({"text": texts, "label": [None, *labels[1:]]}),
        "no text": parquet({"text": [None, *texts[1:]], "label": labels}),
        "text of numbers": parquet({"text": list(range(20)), "label": labels}),
        "bytes": parquet({"text": [t.encode() for t in texts], "label": labels}),
        "not UTF-8": parquet({"text": strings, "label": labels}),
        "lists": parquet({"text": texts, "label": [[x] for x in labels]}),
        "no numbers": parquet({"text": texts, "label": [float("nan")] * 20}),
        "dates": parquet({"text": texts, "label": dates}),
        "whole floats": parquet({"text": texts, "label": [0.0, 1.0] * 10}),
        "integers": parquet({"text": texts, "label": [0, 1] * 10}),
        "booleans": parquet({"text": texts, "label": [True, False] * 10}),
        "name twice": parquet({"text": texts, "text ": texts, "label": labels}),
        "misspelt name": parquet({"text": texts, "lable": labels}),
        "empty text": parquet({"text": ["", *texts[1:]], "label": labels}),
    }
    for name, content in made.items():
        yield name, content, ".parquet", None
