"""The layout of a store, version by version. A new store goes through all of them."""

import sqlite3

from finetti.core.errors import FinettiError

APPLICATION_ID = 0x46494E45  # "FINE" in the file's header: this is a store of ours

# Never edit a published step: files in this layout exist. Add another one.
STEPS = (
    # 1: cells hold what their trials share, so that a trial costs little.
    """
    CREATE TABLE cells (
        cell INTEGER PRIMARY KEY,
        content TEXT NOT NULL UNIQUE
    );
    CREATE TABLE provenances (
        provenance INTEGER PRIMARY KEY,
        content TEXT NOT NULL UNIQUE
    );
    CREATE TABLE trials (
        id BLOB PRIMARY KEY,
        cell INTEGER NOT NULL REFERENCES cells,
        replicate INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('done', 'failed')),
        metrics TEXT,
        trace TEXT,
        error TEXT,
        traceback TEXT,
        seconds REAL NOT NULL,
        finished REAL NOT NULL,
        provenance INTEGER NOT NULL REFERENCES provenances
    ) WITHOUT ROWID;
    """,
    # 2: what was planned (so that a finished study starts instantly), attempts, immutable rows.
    """
    CREATE TABLE plans (
        plan INTEGER PRIMARY KEY,
        digest BLOB NOT NULL UNIQUE,
        name TEXT NOT NULL,
        trials INTEGER NOT NULL,
        together INTEGER NOT NULL,
        cohort_size INTEGER NOT NULL,
        created REAL NOT NULL
    );
    CREATE TABLE plan_cells (
        plan INTEGER NOT NULL REFERENCES plans,
        position INTEGER NOT NULL,
        cell INTEGER NOT NULL REFERENCES cells,
        shape TEXT NOT NULL,
        PRIMARY KEY (plan, position)
    ) WITHOUT ROWID;
    CREATE INDEX trials_of_cell ON trials (cell);
    ALTER TABLE trials ADD COLUMN attempts INTEGER NOT NULL DEFAULT 1;
    CREATE TRIGGER done_is_done BEFORE UPDATE ON trials WHEN OLD.state = 'done'
    BEGIN SELECT RAISE(ABORT, 'a finished trial is never changed'); END;
    CREATE TRIGGER done_stays BEFORE DELETE ON trials WHEN OLD.state = 'done'
    BEGIN SELECT RAISE(ABORT, 'a finished trial is never deleted'); END;
    """,
    # 3: how often a trial has failed in the same way, one time after another.
    "ALTER TABLE trials ADD COLUMN repeats INTEGER NOT NULL DEFAULT 1;",
)
CURRENT_LAYOUT = len(STEPS)


def schema_version(connection: sqlite3.Connection, name: str) -> int:
    """The layout of an open file; 0 if it is empty. Refuses files that are not stores."""
    # One statement sees one state of the file, also while another process is creating it.
    version, application, tables = connection.execute(
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master) "
        "FROM pragma_user_version, pragma_application_id"
    ).fetchone()
    if application != APPLICATION_ID and (tables or application or version):
        raise FinettiError(
            f"{name} is a database of another program. Choose another path for the store."
        )
    if 0 < version <= CURRENT_LAYOUT and (strange := _strange_parts(connection, version)):
        raise FinettiError(
            f"{name} is damaged or is not a store: of its parts, {', '.join(strange)} "
            f"{'is' if len(strange) == 1 else 'are'} not as Finetti makes them. It is left as it "
            "is; move it away."
        )
    if version > CURRENT_LAYOUT:
        raise FinettiError(
            f"{name} was written by a newer Finetti (layout {version}, this one reads up to "
            f"{CURRENT_LAYOUT}). Upgrade Finetti; the file is left as it is."
        )
    return version


def _strange_parts(connection: sqlite3.Connection, version: int) -> list[str]:
    """Names that should be tables and are missing or, say, endless views; views; other triggers."""
    own = sqlite3.connect(":memory:")
    migrate(own, 0, version)
    tables, triggers = (
        dict(own.execute("SELECT name, sql FROM sqlite_master WHERE type = ?", (kind,)))
        for kind in ("table", "trigger")
    )
    own.close()
    found = {
        name: (kind, sql or "")
        for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master")
    }
    missing = [
        name
        for name in tables
        if found.get(name, ("", ""))[0] != "table" or not found[name][1].startswith("CREATE TABLE")
    ]
    more = [
        name
        for name, (kind, sql) in found.items()
        if kind == "view" or (kind == "trigger" and triggers.get(name) != sql)
    ]
    return sorted({*missing, *more})


def migrate(connection: sqlite3.Connection, version: int, last: int = CURRENT_LAYOUT) -> None:
    """Bring an open file from layout ``version`` to ``last``, all or nothing."""
    if version >= last:
        return
    # One script is one transaction: an interruption leaves the older layout whole.
    steps = "".join(STEPS[version:last])
    connection.executescript(
        f"BEGIN EXCLUSIVE; PRAGMA application_id = {APPLICATION_ID}; {steps}"
        f"PRAGMA user_version = {last}; COMMIT;"
    )
