// A job queue and a web application, with a pool of connections each: orders are written on one connection, and read on others by the jobs that they
// cause and by the next page, which loads its parts all at once.
"use strict";
const { Pool } = require("pg");
const { Logger, makeWorkerUtils, run } = require("graphile-worker");

const ORDERS = 40;
const show = (what, value) => console.log(`${what}: ${JSON.stringify(value)}`);
const one = async (queryable, text, values) => (await queryable.query(text, values)).rows[0];

async function main() {
    const pgPool = new Pool({ max: 6 });
    const logger = new Logger(() => () => {});
    const utils = await makeWorkerUtils({ pgPool, logger });
    await utils.migrate();
    await pgPool.query("create table orders (id int primary key, state text); create table shipments (id int primary key, weight int)");

    const missed = { ship: 0, mail: 0, parts: 0, page: 0 };
    const attempts = {};
    let mailed = 0, finish;
    const finished = new Promise((resolve) => (finish = resolve));
    const taskList = {
        ship: async ({ id }, helpers) => {
            attempts[id] = helpers.job.attempts;
            const order = await one(helpers, "select state from orders where id = $1", [id]);
            if (order?.state !== "ordered") missed.ship++;
            await helpers.query("insert into shipments values ($1, $2)", [id, id * 10]);
            await helpers.query("update orders set state = 'shipped' where id = $1", [id]);
            await helpers.addJob("mail", { id });
        },
        mail: async ({ id }, helpers) => {
            const [both, ...parts] = await Promise.all([
                one(helpers, "select o.state, s.weight from orders o join shipments s using (id) where id = $1", [id]),
                one(helpers, "select count(*)::int as n from shipments where id = $1", [id]),
                one(helpers, "select count(*)::int as n from orders where id = $1 and state = 'shipped'", [id]),
                one(helpers, "select count(*)::int as n from shipments where id = $1 and weight = $2", [id, id * 10]),
            ]);
            if (both?.state !== "shipped" || both.weight !== id * 10) missed.mail++;
            missed.parts += parts.filter((part) => part.n !== 1).length;
            await helpers.query("update orders set state = 'mailed' where id = $1", [id]);
            if (++mailed === ORDERS) finish();
        },
        never: () => {},
    };
    const runner = await run({ pgPool, logger, concurrency: 4, taskList, noHandleSignals: true });
    const web = new Pool({ max: 4 });
    for (let id = 1; id <= ORDERS; id++) {
        await web.query("insert into orders values ($1, 'ordered')", [id]);
        await utils.addJob("ship", { id });
        await utils.addJob("never", { id }, { jobKey: `never ${id}`, runAt: new Date("2100-01-01") });
        const page = await Promise.all([
            one(web, "select count(*)::int as n from orders where id = $1", [id]),
            one(web, "select count(*)::int as n from orders where id <= $1 having count(*) = $1", [id]),
            // By the queue's own view, as an application shows its jobs.
            one(web, "select count(*)::int as n from graphile_worker.jobs where key = $1", [`never ${id}`]),
            one(web, "select max(id) as n from orders", []),
        ]);
        missed.page += [1, id, 1, id].filter((n, at) => page[at]?.n !== n).length;
    }
    await finished;
    show("missed", missed);
    show("states", (await pgPool.query("select state, count(*)::int from orders group by state")).rows);
    show("attempts", [...new Set(Object.values(attempts))]);
    await utils.completeJobs((await pgPool.query("select id from graphile_worker.jobs where task_identifier = 'never'")).rows.map((row) => row.id));
    show("left", (await pgPool.query("select count(*)::int as n from graphile_worker.jobs where task_identifier = 'never'")).rows);
    await runner.stop();
    await utils.release();
    await Promise.all([web.end(), pgPool.end()]);
    console.log("done");
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
