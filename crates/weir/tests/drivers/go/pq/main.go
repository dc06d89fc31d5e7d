// lib/pq with its defaults: statements without a name, prepared in a round trip of their own; CopyIn, Listener, transactions.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lib/pq"
)

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
	var failure *pq.Error
	if errors.As(err, &failure) {
		return string(failure.Code)
	}
	return fmt.Sprint(err)
}

type asked interface {
	QueryRow(string, ...any) *sql.Row
}

func one[T any](db asked, text string, arguments ...any) T {
	var value T
	must(db.QueryRow(text, arguments...).Scan(&value))
	return value
}

func statements(db *sql.DB) {
	for number := 1; number <= 60; number++ {
		if got := one[string](db, "select b from items where a = $1", number); got != fmt.Sprintf("item %d", number) {
			show("wrong", number, got)
		}
	}
	show("without arguments", one[int](db, "select count(*) from items"))
	_, err := db.Exec("insert into items values ($1, 'twice')", 1)
	show("twice", code(err))
	_, err = db.Exec("insert into items values (1001, 'a'); insert into items values (1001, 'b')")
	show("two at once", code(err), one[int](db, "select count(*) from items where a = 1001"))
	statement, err := db.Prepare("select b from items where a = $1")
	must(err)
	var group sync.WaitGroup
	for number := range 60 {
		group.Go(func() {
			var b string
			must(statement.QueryRow(number + 1).Scan(&b))
			if b != fmt.Sprintf("item %d", number+1) {
				show("wrong", number, b)
			}
		})
	}
	group.Wait()
	must(statement.Close())
	show("array", one[int](db, "select count(*) from items where a = any($1)", pq.Array([]int{1, 2, 3, 1000000})))
	rows, err := db.Query("select a, b from items where a < $1 order by a; select 'second'", 3)
	show("two with arguments", rows == nil, code(err))
}

func transactions(db *sql.DB) {
	tx, err := db.Begin()
	must(err)
	_, err = tx.Exec("insert into items values ($1, $2)", 2000, "outer")
	must(err)
	_, err = tx.Exec("savepoint here")
	must(err)
	_, err = tx.Exec("insert into items values ($1, $2)", 2000, "twice")
	show("inner", code(err))
	_, err = tx.Exec("rollback to here")
	must(err)
	show("seen", one[string](tx, "select b from items where a = $1", 2000))
	must(tx.Rollback())
	show("rolled back", one[int](db, "select count(*) from items where a = $1", 2000))
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level, ReadOnly: true})
		must(err)
		show("transaction", one[string](tx, "show transaction_isolation"), one[string](tx, "show transaction_read_only"))
		_, err = tx.Exec("insert into items values (2001)")
		show("write", code(err))
		must(tx.Rollback())
	}
}

func copies(db *sql.DB) {
	tx, err := db.Begin()
	must(err)
	copy, err := tx.Prepare(pq.CopyIn("items", "a", "b"))
	must(err)
	for number := range 5000 {
		_, err = copy.Exec(10000+number, fmt.Sprintf("copied\t%d", number))
		must(err)
	}
	_, err = copy.Exec()
	must(err)
	must(copy.Close())
	must(tx.Commit())
	show("copied", one[int](db, "select count(*) from items where a >= $1", 10000))
	tx, err = db.Begin()
	must(err)
	copy, err = tx.Prepare(pq.CopyIn("items", "a", "b"))
	must(err)
	_, err = copy.Exec(1, "there already")
	must(err)
	_, err = copy.Exec()
	show("twice", code(err))
	must(tx.Rollback())
	show("goes on", one[int](db, "select 1"))
}

func listener() {
	db, err := sql.Open("postgres", "sslmode=disable")
	must(err)
	connected := make(chan bool, 1)
	listener := pq.NewListener("sslmode=disable", time.Second, time.Minute, func(event pq.ListenerEventType, err error) {
		if event == pq.ListenerEventConnected {
			connected <- true
		}
	})
	must(listener.Listen("news"))
	<-connected
	for number := range 3 {
		_, err = db.Exec("select pg_notify('news', $1)", fmt.Sprintf("it's \"%d\"", number))
		must(err)
	}
	for range 3 {
		heard := <-listener.Notify
		show("heard", heard.Channel, heard.Extra)
	}
	must(listener.Ping())
	must(listener.Unlisten("news"))
	must(listener.Close())
	must(db.Close())
}

func cancels(db *sql.DB) {
	for range 3 {
		soon, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
		_, err := db.ExecContext(soon, "insert into items select 1 from pg_sleep(60)")
		show("too long", err != nil)
		stop()
		show("goes on", one[int](db, "select 2"))
	}
	running := "select count(*) from pg_stat_activity where datname = current_database() and state = 'active' and query like 'insert into items select 1 from%'"
	for one[int](db, running) > 0 {
	}
	show("cancelled", true)
}

func main() {
	db, err := sql.Open("postgres", "sslmode=disable application_name=first")
	must(err)
	db.SetMaxOpenConns(5)
	_, err = db.Exec("create table items (a int primary key, b text); insert into items select n, 'item ' || n from generate_series(1, 300) n")
	must(err)
	statements(db)
	transactions(db)
	copies(db)
	listener()
	cancels(db)
	show("name", one[string](db, "show application_name"))
	must(db.Close())
	// Parameters in binary, which the driver sends without asking for their types first.
	db, err = sql.Open("postgres", "sslmode=disable binary_parameters=yes options='-c work_mem=9MB'")
	must(err)
	statements(db)
	show("work_mem", one[string](db, "show work_mem"))
	must(db.Close())
	fmt.Println("done")
}
