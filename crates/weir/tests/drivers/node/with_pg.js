// node-postgres with its defaults: statements without a name, named ones, cursors, streams, pools, notifications.
"use strict";
const { Client, Pool } = require("pg");
const Cursor = require("pg-cursor");
const QueryStream = require("pg-query-stream");

const show = (what, value) => console.log(`${what}: ${JSON.stringify(value)}`);
const fails = async (what, promise) => promise.then((result) => show(what, result.rows), (error) => show(what, error.code || error.message));
const rows = async (client, ...query) => (await client.query(...query)).rows;

async function statements(client) {
    await client.query(`create table items (a int primary key, b text, j jsonb default '{"k": [1]}', at timestamptz default '2024-02-03 04:05:06Z');
        insert into items (a, b) select n, 'item ' || n from generate_series(1, 300) n`);
    for (let number = 1; number <= 60; number++) {
        const [row] = await rows(client, "select b from items where a = $1", [number]);
        if (row.b !== `item ${number}`) show("wrong", row);
    }
    for (let number = 1; number <= 60; number++) {
        const [row] = await rows(client, { name: "of item", text: "select b, j, at from items where a = $1", values: [number] });
        if (number % 20 === 0) show("named", row);
    }
    await fails("another text", client.query({ name: "of item", text: "select 2" }));
    await fails("by zero", client.query({ name: "zero", text: "select 1 / $1::int", values: [0] }));
    await fails("by one", client.query({ name: "zero", text: "select 1 / $1::int", values: [1] }));
    await fails("wrong", client.query({ name: "wrong", text: "selec" }));
    await fails("twice", client.query("insert into items values ($1)", [1]));
    show("several", (await client.query("select 1 as a; select 2 as b; insert into items values (1000)")).map((r) => [r.command, r.rows]));
    show("arrays", await rows(client, { text: "select a, b from items where a = any($1) order by a", values: [[1, 2]], rowMode: "array" }));
    show("binary", await rows(client, { text: "select $1::int + 1 as n", values: [5], binary: true }));
    show("null", await rows(client, "select $1::text as n, $2::json as j", [null, { a: 'it\'s "x"' }]));
    // All at once: they are queued, each waits for the one before.
    const all = await Promise.all(Array.from({ length: 50 }, (_, n) => rows(client, "select $1::int as n", [n])));
    show("queued", all.reduce((sum, [row]) => sum + row.n, 0));
}

async function transactions(client) {
    await client.query("begin");
    await client.query("insert into items values ($1, $2)", [2000, "outer"]);
    await client.query("savepoint here");
    await fails("inner", client.query("insert into items values ($1, $2)", [2000, "twice"]));
    await fails("failed", client.query("select 1"));
    await client.query("rollback to savepoint here");
    show("seen", await rows(client, "select b from items where a = 2000"));
    await client.query("rollback");
    show("rolled back", await rows(client, "select count(*) from items where a = 2000"));
    await client.query("begin transaction isolation level repeatable read read only");
    show("read only", await rows(client, "select count(*), current_setting('transaction_isolation') as level from items"));
    await fails("write", client.query("delete from items"));
    await client.query("rollback");
}

async function cursors(client) {
    const cursor = client.query(new Cursor("select a from items where a > $1 and a < 1000 order by a", [100]));
    show("cursor", [(await cursor.read(3)).map((row) => row.a), (await cursor.read(2)).map((row) => row.a)]);
    await cursor.close();
    show("goes on", await rows(client, "select 1 as n"));
    const whole = client.query(new Cursor("select a from items where a < $1", [50]));
    let count = 0;
    for (let part = await whole.read(7); part.length > 0; part = await whole.read(7)) count += part.length;
    show("whole", count);
    await whole.close();
    const failing = client.query(new Cursor("select 1 / (50 - a) from items order by a"));
    try {
        while ((await failing.read(10)).length > 0);
    } catch (error) {
        show("failing", error.code);
    }
    show("goes on", await rows(client, "select 2 as n"));
    let sum = 0;
    for await (const row of client.query(new QueryStream("select a from items where a <= $1", [300], { batchSize: 20 }))) sum += row.a;
    show("streamed", sum);
    for await (const row of client.query(new QueryStream("select a from items order by a"))) {
        if (row.a === 5) break;
    }
    show("left in the middle", await rows(client, "select 3 as n"));
}

async function notifications(client) {
    const heard = [];
    let wake = () => {};
    client.on("notification", (message) => { heard.push([message.channel, message.payload]); wake(); });
    await client.query('listen "News"');
    const other = new Client();
    await other.connect();
    for (let number = 0; number < 3; number++) await other.query("select pg_notify('News', $1)", [`it's "${number}"`]);
    while (heard.length < 3) await new Promise((resolve) => { wake = resolve; });
    show("heard", heard);
    await client.query('unlisten "News"');
    await other.query("notify \"News\", 'nobody hears it'");
    await other.end();
    show("unlistened", [await rows(client, "select 4 as n"), heard.length]);
}

async function settings() {
    const client = new Client({ application_name: "node test", statement_timeout: 300, options: "-c work_mem=9MB", idle_in_transaction_session_timeout: 60000 });
    const notices = [];
    client.on("notice", (notice) => notices.push(notice.message));
    await client.connect();
    show("settings", await rows(client, "select current_setting('work_mem') as w, current_setting('application_name') as a, current_setting('statement_timeout') as t"));
    await fails("statement_timeout", client.query("insert into items select 1 from pg_sleep(60)"));
    await client.query("set timezone = 'Asia/Tokyo'");
    for (let turn = 0; turn < 5; turn++) await rows(client, "select at from items where a = 1");
    show("timezone", await rows(client, "select at::text from items where a = 1"));
    await client.query("do $$ begin raise notice 'hello'; end $$");
    show("notices", notices);
    await client.end();
}

async function pools() {
    const pool = new Pool({ max: 6, maxUses: 20 });
    const work = async (number) => {
        const client = await pool.connect();
        try {
            await client.query("begin");
            await client.query({ name: "insert", text: "insert into items (a, b) values ($1, $2)", values: [3000 + number, "pooled"] });
            await client.query("commit");
            return (await rows(client, { name: "read", text: "select a - 3000 as n from items where a = $1", values: [3000 + number] }))[0].n;
        } finally {
            client.release();
        }
    };
    const all = await Promise.all(Array.from({ length: 200 }, (_, number) => work(number)));
    show("pooled", all.reduce((sum, n) => sum + n, 0));
    show("all there", (await pool.query("select count(*) from items where b = $1", ["pooled"])).rows);
    await pool.end();
}

async function main() {
    const client = new Client();
    await client.connect();
    for (const part of [statements, transactions, cursors, notifications, settings, pools]) {
        show("--", part.name);
        await part(client);
    }
    await client.end();
    console.log("done");
}

main().catch((error) => { console.error(error); process.exit(1); });
