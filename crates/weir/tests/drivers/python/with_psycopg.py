"""psycopg 3 with its defaults: statements prepared from their fifth use on, pipelines, COPY, server cursors, notifications, pools."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg import errors, sql
from psycopg.rows import dict_row
from psycopg.types.composite import CompositeInfo, register_composite
from psycopg.types.enum import EnumInfo, register_enum
from psycopg_pool import ConnectionPool


def show(what, value):
    print(f"{what}: {value!r}", flush=True)


def fails(what, action, *arguments, **named):
    try:
        show(what, action(*arguments, **named))
    except psycopg.Error as error:
        show(what, (type(error).__name__, error.sqlstate))


def tables():
    with psycopg.connect() as conn:
        conn.execute("create table items (a int primary key, b text, at timestamptz default '2024-02-03 04:05:06+00')")
        conn.execute("insert into items select n, 'item ' || n from generate_series(1, 100) n")
        conn.execute("create type mood as enum ('sad', 'ok', 'happy')")
        conn.execute("create type pair as (x int, y text)")


def prepared():
    with psycopg.connect(autocommit=True) as conn:
        for number in range(1, 21):
            row = conn.execute("select b, %s::int from items where a = %s", (number, number)).fetchone()
            show("prepared by use", row)
        show("statements known", len(conn._prepared._names))
        for number in range(3):
            show("prepared at once", conn.execute("select %s + 1", (number,), prepare=True).fetchone())
        conn.prepare_threshold = 0
        for number in range(200):  # more than the driver keeps: it deallocates the oldest
            conn.execute(f"select {number} + %s", (1,)).fetchone()
        show("statements kept", len(conn._prepared._names))
        conn.prepare_threshold = 1
        for number in range(4):
            fails("fails prepared", conn.execute, "select 1 / %s::int", (number - number,))
            show("goes on", conn.execute("select a from items where a = %s", (number + 1,)).fetchone())
        conn.execute("deallocate all")
        with conn.transaction():
            for number in range(12):
                conn.execute("update items set b = %s where a = %s", (f"new {number}", number))
            show("in a transaction", conn.execute("select count(*) from items where b like %s", ("new%",)).fetchone())
        binary = conn.cursor(binary=True)
        for number in range(8):
            show("binary", binary.execute("select %b::int8, at from items where a = 7", (number,)).fetchone())
        bare = psycopg.ClientCursor(conn)
        show("bound by the client", bare.execute("select b from items where a = %s; select 'two'", (50,)).fetchone())
        show("next set", (bare.nextset(), bare.fetchone()))


def transactions():
    with psycopg.connect() as conn:
        try:
            with conn.transaction():
                conn.execute("insert into items values (1000, 'kept not')")
                with conn.transaction():
                    conn.execute("insert into items values (1001, 'nor this')")
                raise psycopg.Rollback()
        except psycopg.Rollback:
            pass
        with conn.transaction():
            conn.execute("insert into items values (1002, 'outer')")
            try:
                with conn.transaction():
                    conn.execute("insert into items values (1002, 'twice')")
            except errors.UniqueViolation as error:
                show("inner", (error.sqlstate, error.diag.constraint_name, error.diag.table_name))
        conn.commit()
        show("left", conn.execute("select a, b from items where a >= 1000 order by a").fetchall())
        conn.rollback()
        fails("wrong", conn.execute, "selec 1")
        fails("in a failed transaction", conn.execute, "select 1")
        conn.rollback()
        conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        show("isolation", conn.execute("show transaction_isolation").fetchone())
        conn.rollback()
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.read_only = True
        show("read only", conn.execute("select current_setting('transaction_read_only'), count(*) from items").fetchone())
        fails("write while read only", conn.execute, "insert into items values (2000)")
        conn.rollback()
        conn.isolation_level = conn.read_only = None
        conn.deferrable = None
        show("status", conn.info.transaction_status.name)


def settings():
    with psycopg.connect(autocommit=True, options="-c work_mem=9MB -c search_path=public", application_name="psycopg test") as conn:
        show("work_mem", conn.execute("show work_mem").fetchone())
        conn.execute("set timezone to 'Asia/Tokyo'")
        show("timezone", (conn.info.timezone.key, conn.info.parameter_status("TimeZone")))
        for _ in range(7):
            show("at", conn.execute("select at from items where a = %s", (1,)).fetchone()[0].isoformat())
        conn.execute("set client_encoding to 'latin1'")
        show("encoding", (conn.info.encoding, conn.execute("select %s::text || 'ü'", ("ä",)).fetchone()))
        conn.execute("reset all")
        show("after reset", (conn.info.parameter_status("TimeZone"), conn.execute("show work_mem").fetchone()))
        show("name", conn.info.parameter_status("application_name"))
        conn.execute("set statement_timeout = 50")
        fails("statement_timeout", conn.execute, "select pg_sleep(60)")
        conn.execute("reset statement_timeout")
        show("goes on", conn.execute("select 1").fetchone())


def pipelines():
    with psycopg.connect(autocommit=True) as conn:
        with conn.pipeline() as pipeline:
            cursors = [conn.execute("select b from items where a = %s", (number,)) for number in range(20, 40)]
            writes = conn.cursor()
            writes.executemany("insert into items values (%s, %s)", [(n, str(n)) for n in range(3000, 3030)])
            pipeline.sync()
            show("pipelined", [cursor.fetchone() for cursor in cursors])
            show("count", conn.execute("select count(*) from items where a >= 3000").fetchone())
        try:
            with conn.pipeline() as pipeline:
                conn.execute("insert into items values (4000, 'one')")
                pipeline.sync()
                conn.execute("insert into items values (4001, 'two')")
                conn.execute("select 1 / 0")
                conn.execute("insert into items values (4002, 'three')")
        except psycopg.Error as error:
            show("pipeline", (type(error).__name__, error.sqlstate))
        show("what stayed", conn.execute("select a from items where a >= 4000 order by a").fetchall())
        with conn.pipeline(), conn.transaction():
            conn.execute("insert into items values (4003, 'four')")
            cursor = conn.execute("select count(*) from items where a >= 4000")
            show("pipelined transaction", cursor.fetchone())
    with psycopg.connect() as conn:
        with conn.cursor() as cursor:
            cursor.executemany("insert into items values (%s, %s) returning a", [(n, "r") for n in range(5000, 5005)], returning=True)
            returned = [cursor.fetchone()]
            while cursor.nextset():
                returned.append(cursor.fetchone())
            show("returned", returned)


def copies():
    with psycopg.connect() as conn, conn.cursor() as cursor:
        with cursor.copy("copy items (a, b) from stdin") as copy:
            for number in range(10000, 12000):
                copy.write_row((number, f"copied\t{number}"))
        show("copied", cursor.rowcount)
        with cursor.copy("copy items (a, b) from stdin (format binary)") as copy:
            copy.set_types(["int4", "text"])
            for number in range(12000, 12500):
                copy.write_row((number, "binary"))
        conn.commit()
        with cursor.copy("copy (select a, b from items where a >= 11995 order by a) to stdout") as copy:
            copy.set_types(["int4", "text"])
            rows = list(copy.rows())
        show("copied out", (len(rows), rows[:7]))
        conn.commit()
        try:
            with cursor.copy("copy items (a, b) from stdin") as copy:
                copy.write_row((20000, "x"))
                copy.write_row((1, "there already"))
        except psycopg.Error as error:
            show("copy", (type(error).__name__, error.sqlstate, error.diag.context.splitlines()[0]))
        conn.rollback()
        try:
            with cursor.copy("copy items (a, b) from stdin") as copy:
                copy.write_row((20001, "x"))
                raise RuntimeError("changed my mind")
        except RuntimeError as error:
            show("left in the middle", str(error))
        conn.rollback()
        show("none of it", cursor.execute("select count(*) from items where a >= 20000").fetchone())
        conn.rollback()
        # One table into another, both open at once.
        conn.execute("create table copies (like items)")
        conn.commit()
        with psycopg.connect() as second:
            with cursor.copy("copy items to stdout (format binary)") as out, second.cursor().copy("copy copies from stdin (format binary)") as into:
                for piece in out:
                    into.write(piece)
        show("from one to the other", conn.execute("select count(*) from copies").fetchone())


def server_cursors():
    with psycopg.connect() as conn:
        with conn.cursor(name="walk") as cursor:
            cursor.execute("select a from items where a between 10000 and 10999 order by a")
            cursor.itersize = 100
            show("walked", sum(row[0] for row in cursor))
        with conn.cursor(name="jump", scrollable=True) as cursor:
            cursor.execute("select a from items order by a limit 50")
            cursor.scroll(10)
            show("jumped", cursor.fetchmany(3))
            cursor.scroll(0, mode="absolute")
            show("back", cursor.fetchone())
        conn.commit()
        cursor = conn.cursor(name="held", withhold=True)
        cursor.execute("select generate_series(1, 10)")
        show("held", cursor.fetchmany(2))
        conn.commit()
        show("after commit", cursor.fetchmany(3))
        show("other things meanwhile", conn.execute("select count(*) from items").fetchone())
        conn.commit()
        show("and on", cursor.fetchall())
        cursor.close()
        conn.commit()
        show("streamed", [row[0] for row in conn.cursor().stream("select generate_series(1, 5)")])


def notifications():
    with psycopg.connect(autocommit=True) as listener, psycopg.connect(autocommit=True) as speaker:
        listener.execute("listen news")
        for number in range(3):
            speaker.execute("select pg_notify('news', %s)", (f"it's \"{number}\"",))
        speaker.execute("notify news")
        heard = [(notify.channel, notify.payload) for notify in listener.notifies(timeout=20, stop_after=4)]
        show("heard", heard)
        handled = []
        listener.add_notify_handler(lambda notify: handled.append(notify.payload))
        speaker.execute("notify news, 'while busy'")
        deadline = time.monotonic() + 20
        while not handled and time.monotonic() < deadline:
            listener.execute("select 1")
        show("handler", handled)
        listener.execute("unlisten *")
        speaker.execute("notify news, 'nobody'")
        show("unlistened", listener.execute("select 2").fetchone())


def cancels():
    with psycopg.connect(autocommit=True) as conn:
        long = "insert into items select 1 from pg_sleep(60)"
        thread = threading.Thread(target=lambda: fails("cancelled", conn.execute, long))
        with psycopg.connect(autocommit=True) as other:
            thread.start()
            running = "select from pg_stat_activity where datname = current_database() and state = 'active' and query = %s"
            while not other.execute(running, (long,)).fetchall():
                pass
            conn.cancel_safe()
            thread.join()
        show("goes on", conn.execute("select 3").fetchone())


def types():
    with psycopg.connect() as conn:
        register_composite(CompositeInfo.fetch(conn, "pair"), conn)
        register_enum(EnumInfo.fetch(conn, "mood"), conn)
        for _ in range(7):
            row = conn.execute("select row(%s, 'y')::pair, 'happy'::mood, array['sad']::mood[]", (3,)).fetchone()
            show("own types", (row[0].x, row[0].y, row[1].name, [mood.name for mood in row[2]]))
        cursor = conn.cursor(row_factory=dict_row)
        show("json", cursor.execute("select '{\"a\": [1, null]}'::jsonb as j, null::int as n, '{1,2}'::int[] as l").fetchone())
        query = sql.SQL("select {} from {} where a = %s").format(sql.Identifier("b"), sql.Identifier("items"))
        show("composed", conn.execute(query, (60,)).fetchone())


def pools():
    with ConnectionPool(kwargs={"autocommit": True}, min_size=2, max_size=6, check=ConnectionPool.check_connection) as pool:
        pool.wait()

        def work(number):
            with pool.connection() as conn:
                with conn.transaction():
                    conn.execute("insert into copies (a, b) values (%s, 'pooled')", (100000 + number,))
                return conn.execute("select b from items where a = %s", (10000 + number,)).fetchone()[0]

        with ThreadPoolExecutor(8) as threads:
            show("pooled", sorted(threads.map(work, range(120)))[:3])
        with pool.connection() as conn:
            show("all there", conn.execute("select count(*) from copies where b = 'pooled'").fetchone())


async def asynchronous():
    async with await psycopg.AsyncConnection.connect(autocommit=True) as conn:
        async with conn.pipeline():
            cursors = [await conn.execute("select %s::int * 2", (number,)) for number in range(10)]
        show("async", [(await cursor.fetchone())[0] for cursor in cursors])
        task = asyncio.ensure_future(conn.execute("select pg_sleep(60)"))
        try:
            await asyncio.wait_for(task, 0.3)
        except (asyncio.TimeoutError, psycopg.Error) as error:
            show("async timeout", isinstance(error, Exception))
        show("async goes on", await (await conn.execute("select 4")).fetchone())


tables()
for part in (prepared, transactions, settings, pipelines, copies, server_cursors, notifications, cancels, types, pools):
    show("--", part.__name__)
    part()
asyncio.run(asynchronous())
print("done")
