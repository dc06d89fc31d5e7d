"""asyncpg with its defaults: every query is a prepared statement kept in a cache; types are looked up; pools reset what they get back."""

import asyncio

import asyncpg


def show(what, value):
    print(f"{what}: {value!r}", flush=True)


async def fails(what, awaitable):
    try:
        show(what, await awaitable)
    except asyncpg.PostgresError as error:
        show(what, (type(error).__name__, error.sqlstate))


async def tables(conn):
    await conn.execute("""
        create table items (a int primary key, b text, c numeric default 1.50);
        insert into items select n, 'item ' || n from generate_series(1, 200) n;
        create type mood as enum ('sad', 'ok', 'happy');
        create type pair as (x int, y mood[]);
        create domain small as int check (value < 100);
        create table typed (p pair, ps pair[], s small, r int4range, m mood);
    """)


async def cache(conn):
    for number in range(1, 31):
        assert await conn.fetchval("select b from items where a = $1", number) == f"item {number}"
    show("row", await conn.fetchrow("select a, b, c from items where a = $1", 7))
    # More texts than the cache of 100 has room for, twice.
    total = 0
    for _ in range(2):
        for number in range(150):
            total += await conn.fetchval(f"select {number} + $1::int", 1)
    show("sum", total)
    statement = await conn.prepare("select a from items where a > $1 order by a limit 3")
    for number in range(5):
        show("prepared", [row["a"] for row in await statement.fetch(number)])
    show("attributes", [(a.name, a.type.name) for a in statement.get_attributes()])
    show("parameters", [p.name for p in statement.get_parameters()])
    show("many", await conn.executemany("insert into items values ($1, $2)", [(n, f"many {n}") for n in range(1000, 1500)]))
    show("count", await conn.fetchval("select count(*) from items"))
    await fails("wrong", conn.fetch("selec 1"))
    await fails("by zero", conn.fetch("select 1 / $1::int", 0))
    await fails("many wrong", conn.executemany("insert into items values ($1)", [(5000,), (1,), (5001,)]))
    show("nothing of it", await conn.fetchval("select count(*) from items where a >= 5000"))
    show("goes on", await conn.fetchval("select 1"))


async def types(conn):
    values = ((3, ["sad", "happy"]), [(1, []), (2, ["ok"])], 99, asyncpg.Range(1, 5), "ok")
    await conn.execute("insert into typed values ($1, $2, $3, $4, $5)", *values)
    for _ in range(3):
        show("typed", tuple(await conn.fetchrow("select * from typed")))
    await conn.set_type_codec("json", encoder=str, decoder=lambda text: ("decoded", text), schema="pg_catalog")
    show("json", await conn.fetchval("select '[1]'::json"))
    await conn.reset_type_codec("json", schema="pg_catalog")


async def transactions(conn):
    try:
        async with conn.transaction():
            await conn.execute("insert into items values (2000, 'outer')")
            try:
                async with conn.transaction():
                    await conn.execute("insert into items values (2000, 'twice')")
            except asyncpg.UniqueViolationError as error:
                show("inner", (error.sqlstate, error.constraint_name))
            show("seen", await conn.fetchval("select b from items where a = $1", 2000))
            raise RuntimeError("no")
    except RuntimeError:
        show("rolled back", await conn.fetchval("select count(*) from items where a = $1", 2000))
    for isolation in ("read_committed", "repeatable_read", "serializable"):
        async with conn.transaction(isolation=isolation):
            show("isolation", await conn.fetchval("show transaction_isolation"))
    async with conn.transaction(readonly=True):
        show("read only", await conn.fetchval("select count(*) from items where b like $1", "many%"))
    async with conn.transaction(isolation="serializable", readonly=True, deferrable=True):
        show("deferrable", await conn.fetchval("select count(*) from items"))
    try:
        async with conn.transaction(readonly=True):
            await conn.execute("insert into items values (2001)")
    except asyncpg.ReadOnlySQLTransactionError as error:
        show("write while read only", error.sqlstate)
    async with conn.transaction():
        cursor = await conn.cursor("select a from items order by a")
        show("cursor", [row["a"] for row in await cursor.fetch(5)])
        await cursor.forward(10)
        show("moved", (await cursor.fetchrow())["a"])
        walked = [row["a"] async for row in conn.cursor("select a from items where a < $1 order by a", 150, prefetch=20)]
        show("walked", (len(walked), walked[-1]))
    show("after", conn.is_in_transaction())


async def copies(conn):
    records = [(n, f"record {n}", None) for n in range(10000, 13000)]
    show("records", await conn.copy_records_to_table("items", records=records, columns=["a", "b", "c"]))
    out = bytearray()

    async def take(piece):
        out.extend(piece)

    show("out", await conn.copy_from_query("select a, b from items where a >= $1 order by a", 12990, output=take, format="csv"))
    show("bytes", bytes(out[:40]))
    out.clear()
    show("table", await conn.copy_from_table("items", columns=["a"], output=take, format="binary"))

    async def give():
        for n in range(20000, 20100):
            yield f"{n}\tgiven\n".encode()

    show("in", await conn.copy_to_table("items", source=give(), columns=["a", "b"]))
    await fails("in twice", conn.copy_to_table("items", source=give(), columns=["a", "b"]))

    async def breaks():
        yield b"30000\tx\n"
        raise RuntimeError("no more")

    try:
        await conn.copy_to_table("items", source=breaks(), columns=["a", "b"])
    except RuntimeError as error:
        show("left in the middle", str(error))
    show("none of it", await conn.fetchval("select count(*) from items where a >= 30000"))


async def notifications(conn):
    heard = asyncio.Queue()
    await conn.add_listener("news", lambda _, __, channel, payload: heard.put_nowait((channel, payload)))
    other = await asyncpg.connect()
    await other.execute("select pg_notify('news', $1)", 'it\'s "one"')
    await other.execute("notify news")
    for _ in range(2):
        show("heard", await asyncio.wait_for(heard.get(), 20))
    show("meanwhile", await conn.fetchval("select count(*) from items where a < $1", 100))
    await other.execute("notify news, 'three'")
    show("heard", await asyncio.wait_for(heard.get(), 20))
    await conn.reset()
    await other.execute("notify news, 'nobody hears it'")
    await other.close()
    show("left", heard.qsize())


async def timeouts(conn):
    for _ in range(3):
        try:
            await conn.fetch("select pg_sleep($1)", 60, timeout=0.2)
        except asyncio.TimeoutError:
            show("timed out", await conn.fetchval("select 5"))
    task = asyncio.ensure_future(conn.fetch("select pg_sleep(60)"))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        show("cancelled", await conn.fetchval("select 6"))


async def pools():
    async def begin(conn):
        await conn.execute("set timezone = 'Asia/Tokyo'")

    async with asyncpg.create_pool(min_size=4, max_size=8, setup=begin) as pool:

        async def work(number):
            async with pool.acquire() as conn:
                async with conn.transaction():
                    await conn.execute("insert into items values ($1, $2)", 40000 + number, "pooled")
                assert await conn.fetchval("show timezone") == "Asia/Tokyo"
                return await conn.fetchval("select a from items where a = $1", 10000 + number)

        show("pooled", sum(await asyncio.gather(*(work(number) for number in range(200)))))
        show("all there", await pool.fetchval("select count(*) from items where b = $1", "pooled"))
        # State that a user of the pool leaves behind is taken away by the pool's own reset.
        async with pool.acquire() as conn:
            await conn.execute("select pg_advisory_lock(5)")
            await conn.execute("set work_mem = '9MB'")
            await conn.execute("listen leftover")
            await conn.execute("declare left_behind cursor with hold for select 1")
        rows = await asyncio.gather(*(pool.fetchval("show work_mem") for _ in range(8)))
        show("reset", sorted(set(rows)))
        show("unlocked", await pool.fetchval("select count(*) from pg_locks where locktype = 'advisory' and objid = 5"))


async def main():
    conn = await asyncpg.connect(server_settings={"application_name": "asyncpg test", "search_path": "public"})
    await tables(conn)
    for part in (cache, types, transactions, copies, notifications, timeouts):
        show("--", part.__name__)
        await part(conn)
    show("settings", (conn.get_settings().application_name, conn.get_settings().client_encoding))
    await conn.close()
    await pools()
    print("done")


asyncio.run(main())
