// A job queue and a web application, with a pool of connections each: queues are made and jobs are sent on one connection, and looked at on others,
// as a page that shows its jobs does; the jobs read the orders that caused them.
"use strict";
const { Pool } = require("pg");
const PgBoss = require("pg-boss");

const ORDERS = 40;
const show = (what, value) => console.log(`${what}: ${JSON.stringify(value)}`);
const one = async (queryable, text, values) => (await queryable.query(text, values)).rows[0];

async function main() {
    const boss = new PgBoss({ max: 6, supervise: false, schedule: false });
    // An error of its own becomes the end of the program, and not of the promise that is waited for.
    boss.on("error", (error) => { throw error; });
    await boss.start();
    const web = new Pool({ max: 4 });
    await web.query("create table orders (id int primary key, state text)");

    const missed = { queues: 0, orders: 0, jobs: 0, sizes: 0, page: 0 };
    for (const name of ["ship", "mail", "never"]) {
        await boss.createQueue(name);
        if ((await boss.getQueue(name))?.name !== name) missed.queues++;
    }
    let mailed = 0, finish;
    const finished = new Promise((resolve) => (finish = resolve));
    const options = { batchSize: 5, pollingIntervalSeconds: 0.5 };
    await boss.work("ship", options, async (jobs) => {
        for (const { data: { id } } of jobs) {
            const order = await one(web, "select state from orders where id = $1", [id]);
            if (order?.state !== "ordered") missed.orders++;
            await web.query("update orders set state = 'shipped' where id = $1", [id]);
            await boss.send("mail", { id });
        }
    });
    await boss.work("mail", options, async (jobs) => {
        for (const { data: { id } } of jobs) {
            const order = await one(web, "select state from orders where id = $1", [id]);
            if (order?.state !== "shipped") missed.orders++;
            await web.query("update orders set state = 'mailed' where id = $1", [id]);
            if (++mailed === ORDERS) finish();
        }
    });
    for (let id = 1; id <= ORDERS; id++) {
        await web.query("insert into orders values ($1, 'ordered')", [id]);
        await boss.send("ship", { id });
        const job = await boss.send("never", { id }, { startAfter: new Date("2100-01-01") });
        const [found, size, ...page] = await Promise.all([
            boss.getJobById("never", job),
            boss.getQueueSize("never", { before: "active" }),
            one(web, "select count(*)::int as n from orders where id <= $1", [id]),
            one(web, "select max(id) as n from orders", []),
        ]);
        if (found?.data.id !== id) missed.jobs++;
        if (size !== id) missed.sizes++;
        missed.page += page.filter((part) => part.n !== id).length;
    }
    await finished;
    show("missed", missed);
    show("states", (await web.query("select state, count(*)::int from orders group by state")).rows);
    await boss.purgeQueue("never");
    show("left", await boss.getQueueSize("never", { before: "active" }));
    await boss.stop({ wait: true });
    await web.end();
    console.log("done");
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
