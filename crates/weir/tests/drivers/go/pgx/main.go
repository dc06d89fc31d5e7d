// pgx v5 with its defaults: every statement is prepared once per connection and kept with its description; batches, CopyFrom, pools.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
)

var ctx = context.Background()

func show(what string, values ...any) {
	fmt.Printf("%s: ", what)
	for _, value := range values {
		fmt.Printf("%v ", value)
	}
	fmt.Println()
}

func must(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		panic(err)
	}
}

func code(err error) string {
	var failure *pgconn.PgError
	if errors.As(err, &failure) {
		return failure.Code
	}
	return fmt.Sprint(err)
}

func one[T any](conn interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, text string, arguments ...any) T {
	var value T
	must(conn.QueryRow(ctx, text, arguments...).Scan(&value))
	return value
}

func statements(conn *pgx.Conn) {
	_, err := conn.Exec(ctx, `create table items (a int primary key, b text, at timestamptz default '2024-02-03 04:05:06+00');
		insert into items select n, 'item ' || n from generate_series(1, 300) n; create type mood as enum ('sad', 'happy');
		create type pair as (x int, y mood)`)
	must(err)
	for number := 1; number <= 60; number++ {
		if got := one[string](conn, "select b from items where a = $1", number); got != fmt.Sprintf("item %d", number) {
			show("wrong", number, got)
		}
	}
	// More texts than the cache has room for.
	sum := 0
	for number := 0; number < 600; number++ {
		sum += one[int](conn, fmt.Sprintf("select %d + $1::int", number), 1)
	}
	show("sum", sum)
	rows, err := conn.Query(ctx, "select a, b, at from items where a < $1 order by a", 4)
	must(err)
	type item struct {
		A  int
		B  string
		At time.Time
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByName[item])
	must(err)
	for _, it := range items {
		show("item", it.A, it.B, it.At.UTC().Format(time.RFC3339))
	}
	_, err = conn.Exec(ctx, "insert into items values ($1, 'twice')", 1)
	show("twice", code(err))
	show("by zero", code(conn.QueryRow(ctx, "select 1 / $1::int", 0).Scan(new(int))))
	_, err = conn.Prepare(ctx, "of_mine", "select $1::int * 2")
	must(err)
	for number := range 4 {
		show("prepared", one[int](conn, "of_mine", number))
	}
	must(conn.Deallocate(ctx, "of_mine"))
	show("gone", code(conn.QueryRow(ctx, "of_mine", 1).Scan(new(int))))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		for number := range 3 {
			show(mode.String(), one[string](conn, "select b from items where a = $1", mode, number+5))
		}
	}
	types, err := conn.LoadTypes(ctx, []string{"mood", "pair"})
	must(err)
	conn.TypeMap().RegisterTypes(types)
	for range 3 {
		var x pgtype.Int4
		var y string
		must(conn.QueryRow(ctx, "select (p).x, (p).y from (select row(7, 'happy')::pair as p) as q").Scan(&x, &y))
		show("own types", x.Int32, y, one[[]string](conn, "select array['sad', 'happy']::mood[]"))
	}
}

func batches(conn *pgx.Conn) {
	batch := &pgx.Batch{}
	for number := 1; number <= 40; number++ {
		batch.Queue("insert into items values ($1, $2)", 1000+number, "batch")
		batch.Queue("select count(*) from items where a > $1", 1000)
	}
	results := conn.SendBatch(ctx, batch)
	last := 0
	for range 40 {
		_, err := results.Exec()
		must(err)
		must(results.QueryRow().Scan(&last))
	}
	must(results.Close())
	show("batch", last)
	failing := &pgx.Batch{}
	failing.Queue("insert into items values ($1)", 2000)
	failing.Queue("select 1 / $1::int", 0)
	failing.Queue("insert into items values ($1)", 2001)
	show("failing batch", code(conn.SendBatch(ctx, failing).Close()))
	show("none of it", one[int](conn, "select count(*) from items where a >= 2000"))
	pipeline := conn.PgConn().StartPipeline(ctx)
	for number := range 3 {
		pipeline.SendQueryParams("select $1::text", [][]byte{[]byte(fmt.Sprint(number))}, nil, nil, nil)
		must(pipeline.Sync())
	}
	for {
		result, err := pipeline.GetResults()
		must(err)
		if result == nil {
			break
		}
		if reader, ok := result.(*pgconn.ResultReader); ok {
			show("pipelined", string(reader.Read().Rows[0][0]))
		}
	}
	must(pipeline.Close())
}

func transactions(conn *pgx.Conn) {
	must(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into items values (3000, 'outer')")
		must(err)
		err = pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			_, err := inner.Exec(ctx, "insert into items values (3000, 'twice')")
			return err
		})
		show("inner", code(err))
		return nil
	}))
	show("outer", one[int](conn, "select count(*) from items where a = $1", 3000))
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for _, access := range []pgx.TxAccessMode{pgx.ReadWrite, pgx.ReadOnly} {
			tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: level, AccessMode: access})
			must(err)
			show("transaction", one[string](tx, "show transaction_isolation"), one[string](tx, "show transaction_read_only"), one[int](tx, "select count(*) from items"))
			must(tx.Commit(ctx))
		}
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	must(err)
	_, err = tx.Exec(ctx, "insert into items values (4000)")
	show("write while read only", code(err))
	_, err = tx.Exec(ctx, "select 1")
	show("failed", code(err), tx.Rollback(ctx))
}

func copies(conn *pgx.Conn) {
	rows := make([][]any, 5000)
	for at := range rows {
		rows[at] = []any{10000 + at, fmt.Sprintf("copied %d", at)}
	}
	count, err := conn.CopyFrom(ctx, pgx.Identifier{"items"}, []string{"a", "b"}, pgx.CopyFromRows(rows))
	show("copied", count, err)
	count, err = conn.CopyFrom(ctx, pgx.Identifier{"items"}, []string{"a", "b"}, pgx.CopyFromRows(rows[:3]))
	show("copied twice", count, code(err))
	show("count", one[int](conn, "select count(*) from items where a >= $1", 10000))
	file, err := os.Create("out")
	must(err)
	tag, err := conn.PgConn().CopyTo(ctx, file, "copy items to stdout")
	show("out", tag, err)
}

func notifications(conn *pgx.Conn) {
	other, err := pgx.Connect(ctx, "")
	must(err)
	_, err = conn.Exec(ctx, "listen news")
	must(err)
	for number := range 3 {
		_, err = other.Exec(ctx, "select pg_notify('news', $1)", fmt.Sprintf("it's \"%d\"", number))
		must(err)
	}
	for range 3 {
		heard, err := conn.WaitForNotification(ctx)
		must(err)
		show("heard", heard.Channel, heard.Payload)
	}
	_, err = conn.Exec(ctx, "unlisten *")
	must(err)
	must(other.Close(ctx))
}

func cancels() {
	conn, err := pgx.Connect(ctx, "")
	must(err)
	soon, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	_, err = conn.Exec(soon, "insert into items select 1 from pg_sleep(60)")
	show("too long", errors.Is(err, context.DeadlineExceeded), conn.IsClosed())
	direct, err := pgx.Connect(ctx, "")
	must(err)
	running := "select count(*) from pg_stat_activity where datname = current_database() and state = 'active' and query like 'insert into items select 1 from%'"
	for one[int](direct, running) > 0 {
	}
	show("cancelled", true)
	must(direct.Close(ctx))
}

func pools() {
	pool, err := pgxpool.New(ctx, "pool_max_conns=6 pool_min_conns=2 application_name=pooled")
	must(err)
	var group sync.WaitGroup
	var lock sync.Mutex
	sum := 0
	for number := range 200 {
		group.Go(func() {
			_, err := pool.Exec(ctx, "insert into items values ($1, $2)", 20000+number, "pooled")
			must(err)
			must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "update items set b = $2 where a = $1", 20000+number, "changed")
				return err
			}))
			got := one[int](pool, "select a from items where a = $1 and b = $2", 20000+number, "changed")
			lock.Lock()
			sum += got - 20000
			lock.Unlock()
		})
	}
	group.Wait()
	show("pooled", sum, one[string](pool, "show application_name"))
	pool.Close()
}

// Go's own interface, with its own pool and statements.
func standard() {
	db, err := sql.Open("pgx", "")
	must(err)
	db.SetMaxOpenConns(4)
	statement, err := db.Prepare("select b from items where a = $1")
	must(err)
	var group sync.WaitGroup
	for number := range 40 {
		group.Go(func() {
			var b string
			must(statement.QueryRow(number + 1).Scan(&b))
			if b != fmt.Sprintf("item %d", number+1) {
				show("wrong", number, b)
			}
		})
	}
	group.Wait()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable, ReadOnly: true})
	must(err)
	var count int
	must(tx.Stmt(statement).QueryRow(300).Scan(new(string)))
	must(tx.QueryRow("select count(*) from items where b = 'changed'").Scan(&count))
	show("standard", count, tx.Commit())
	must(statement.Close())
	must(db.Close())
}

func main() {
	conn, err := pgx.Connect(ctx, "")
	must(err)
	statements(conn)
	batches(conn)
	transactions(conn)
	copies(conn)
	notifications(conn)
	cancels()
	pools()
	standard()
	show("parameters", conn.PgConn().ParameterStatus("TimeZone"), conn.PgConn().ParameterStatus("client_encoding"))
	must(conn.Close(ctx))
	fmt.Println("done")
}
