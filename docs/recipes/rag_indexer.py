"""An index for retrieval (RAG) that embeds again what is due, within a budget of tokens.

Documents are visited as ``freshopt serve index-state --bandwidth 20000/day`` hands them out. A visit costs
few tokens; one that finds a change costs those of the document. Each night `budget` plans by that
(``changed_cost``), so that long documents that change at every visit do not eat what all others need.

Replace `embed` by your model and `Store` by your vector store: it needs `replace` and `search`.
"""

import hashlib
import json
import sqlite3
from datetime import UTC, datetime

import numpy as np
from crawler_over_http import call

import freshopt as fo

FOLDER = "index-state"
# Tokens a day for embeddings, and what one visit costs beside them, in tokens.
TOKENS, VISIT = 200_000, 10
# Words of a chunk; visits a day of a document that no plan knows yet, at most.
CHUNK, NEW = 200, 4.0


def embed(texts):
    """Return vectors of unit length, shape (m, 256): here, counts of hashed words."""
    vectors = np.zeros((len(texts), 256))
    for row, text in enumerate(texts):
        for word in text.lower().split():
            vectors[row, hashlib.blake2b(word.encode(), digest_size=1).digest()[0]] += 1.0
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


class Store:
    """Small vector store in an SQLite file."""

    def __init__(self, path):
        self.database = sqlite3.connect(path)
        self.database.execute("CREATE TABLE IF NOT EXISTS chunk (document TEXT, text TEXT, vector BLOB)")

    def replace(self, document, texts, vectors):
        """Put a document's chunks in place of those before."""
        rows = [(document, text, vector.tobytes()) for text, vector in zip(texts, vectors, strict=True)]
        with self.database:
            self.database.execute("DELETE FROM chunk WHERE document = ?", (document,))
            self.database.executemany("INSERT INTO chunk VALUES (?, ?, ?)", rows)

    def search(self, question, many=3):
        """Return the chunks that are nearest to a question."""
        rows = self.database.execute("SELECT document, text, vector FROM chunk").fetchall()
        near = np.array([np.frombuffer(vector) for *_, vector in rows]) @ embed([question])[0]
        return [rows[k][:2] for k in np.argsort(-near)[:many]]


def add(documents):
    """Plan for documents, by name."""
    call("PUT", "/sources", [{"source": name, "max_rate": NEW} for name in documents])


def index(store, read):
    """Visit what is due once; return the tokens that were embedded. `read` returns a document's text."""
    spent = 0
    for visit in call("GET", "/due?limit=100")["visits"]:
        name, now = visit["source"], datetime.now(UTC).isoformat()
        text = read(name)
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest != visit["content"]:
            words = text.split()
            chunks = [" ".join(words[k : k + CHUNK]) for k in range(0, len(words), CHUNK)] or [""]
            store.replace(name, chunks, embed(chunks))
            spent += len(words)
        # Reported when the index has it: if this process ends before, the document is due again.
        call("POST", "/observed", [{"source": name, "time": now, "content": digest}])
    return spent


def budget(tokens):
    """Set how often documents are visited, by the tokens of each; run it each night."""
    with fo.Planner(FOLDER) as planner:
        log = planner.log()
    cost = {name: tokens[name] / VISIT for name in log.names.tolist()}
    plan = fo.plan(log, bandwidth=TOKENS / VISIT, changed_cost=cost, max_rate=24.0)
    rates = plan.to_frame().select("source", "rate").iter_rows()
    rows = [{"source": name, "min_rate": 0.999 * rate, "max_rate": rate} for name, rate in rates]
    for begin in range(0, len(rows), 1000):
        call("PUT", "/sources", rows[begin : begin + 1000])
    return plan


if __name__ == "__main__":
    import sys
    import time
    from pathlib import Path

    pages = {str(path): path for path in Path(sys.argv[1]).rglob("*.md")}
    add(pages)
    while True:
        print(json.dumps({"tokens": index(Store("index.sqlite"), lambda name: pages[name].read_text())}))
        time.sleep(5.0)
