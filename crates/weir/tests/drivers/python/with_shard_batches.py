"""Batches and pipelines of psycopg 3, and batches of asyncpg, whose rows lie on several shards."""

import asyncio
import os

import asyncpg
import psycopg


def show(what, value):
    print(f"{what}: {value!r}", flush=True)


def fails(what, action, *arguments, **named):
    try:
        show(what, action(*arguments, **named))
    except psycopg.Error as error:
        show(what, (type(error).__name__, error.sqlstate))


INSERT = "insert into accounts (id, balance, note) values (%s, %s, %s)"


def values(first, count):
    return [(key, key % 9, f"many {key}") for key in range(first, first + count)]


def rows(conn):
    return conn.execute("select id, balance, note from accounts where id > 100 or id < 10 order by id").fetchall()


def many(conn):
    with conn.cursor() as cursor:
        for at in range(7):
            cursor.executemany(INSERT, values(101 + 20 * at, 11))
            show("executemany", cursor.rowcount)
        cursor.executemany(INSERT + " returning id, note", values(301, 11), returning=True)
        told = []
        while True:
            told += cursor.fetchall()
            if not cursor.nextset():
                break
        show("returned", told)
        conn.commit()
        fails("twice", cursor.executemany, INSERT, values(401, 9) + values(5, 1) + values(411, 3))
        conn.rollback()
        show("rows", rows(conn))
        cursor.executemany("update accounts set balance = balance + %s where id = %s", [(n, n) for n in range(1, 10)])
        cursor.executemany("delete from accounts where id = %s", [(n,) for n in range(301, 312)])
        conn.commit()
        show("rows", rows(conn))
        conn.commit()


def pipelines(conn):
    with conn.pipeline():
        cursors = [conn.execute(INSERT + " returning id", value) for value in values(501, 9)]
        cursors.append(conn.execute("update accounts set note = 'piped' where id = 2 returning note"))
        cursors.append(conn.execute("select balance from accounts where id = %s", (3,)))
        cursors.append(conn.execute("insert into accounts values (521, 1, 'a'), (522, 1, 'b'), (523, 1, 'c') returning id"))
        cursors.append(conn.execute("delete from accounts where id = %s returning id", (503,)))
        show("one by one", [cursor.fetchall() for cursor in cursors])
    conn.commit()
    show("rows", rows(conn))
    conn.commit()
    try:
        with conn.pipeline() as pipeline:
            for value in values(601, 5):
                conn.execute(INSERT, value)
            pipeline.sync()
            for value in values(611, 5) + values(5, 1) + values(621, 5):
                conn.execute(INSERT, value)
    except psycopg.Error as error:
        show("failed", (type(error).__name__, error.sqlstate))
    conn.rollback()
    show("rows", rows(conn))
    conn.commit()
    with conn.pipeline():
        cursors = [conn.execute("select id, balance from accounts where id = %s", (key,)) for key in range(1, 10)]
        show("reads", [cursor.fetchone() for cursor in cursors])
    conn.commit()
    with conn.transaction():
        with conn.pipeline():
            for value in values(701, 9):
                conn.execute(INSERT, value)
    show("rows", rows(conn))
    conn.execute("delete from accounts where id > 100")
    conn.commit()


async def with_asyncpg():
    conn = await asyncpg.connect(
        host=os.environ["PGHOST"], port=os.environ["PGPORT"], user=os.environ["PGUSER"], database=os.environ["PGDATABASE"]
    )
    text = "insert into accounts (id, balance, note) values ($1, $2, $3)"
    await conn.executemany(text, values(801, 30))
    try:
        await conn.executemany(text, values(841, 9) + values(5, 1) + values(851, 9))
    except asyncpg.PostgresError as error:
        show("asyncpg fails", error.sqlstate)
    show("asyncpg returns", await conn.fetchmany(text + " returning id", values(861, 9)))
    async with conn.transaction():
        await conn.executemany(text, values(871, 9))
    show("asyncpg", [tuple(row) for row in await conn.fetch("select id, note from accounts where id > 100 order by id")])
    await conn.execute("delete from accounts where id > 100")
    await conn.close()


for commits in (False, True):
    show("autocommit", commits)
    with psycopg.connect(autocommit=commits) as conn:
        many(conn)
        pipelines(conn)
asyncio.run(with_asyncpg())
print("done")
