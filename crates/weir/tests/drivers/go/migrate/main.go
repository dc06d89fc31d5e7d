// golang-migrate over lib/pq and over pgx: its advisory lock, its table of versions, steps up and down, two programs at a time.
package main

import (
	"database/sql"
	"fmt"
	"os"
	"sync"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

var steps = fstest.MapFS{
	"1_people.up.sql":   {Data: []byte("create table people (id int primary key, name text); insert into people select n, n::text from generate_series(1, 100) n;")},
	"1_people.down.sql": {Data: []byte("drop table people;")},
	"2_email.up.sql":    {Data: []byte("alter table people add email text default 'none';")},
	"2_email.down.sql":  {Data: []byte("alter table people drop email;")},
	"3_index.up.sql":    {Data: []byte("create index people_name on people (name);")},
	"3_index.down.sql":  {Data: []byte("drop index people_name;")},
	"4_code.up.sql":     {Data: []byte("begin; create function twice(n int) returns int language sql as $$ select 2 * n; $$; update people set id = twice(id) + 1000; commit;")},
	"4_code.down.sql":   {Data: []byte("drop function twice(int);")},
	"5_wrong.up.sql":    {Data: []byte("create table half (a int); select 1 / 0;")},
	"5_wrong.down.sql":  {Data: []byte("select 1;")},
}

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

func open(name string) *migrate.Migrate {
	files, err := iofs.New(steps, ".")
	must(err)
	db, err := sql.Open(map[string]string{"pgx": "pgx/v5", "pq": "postgres"}[name], map[string]string{"pgx": "", "pq": "sslmode=disable"}[name])
	must(err)
	var driver database.Driver
	if name == "pgx" {
		driver, err = pgx.WithInstance(db, &pgx.Config{})
	} else {
		driver, err = postgres.WithInstance(db, &postgres.Config{})
	}
	must(err)
	migrator, err := migrate.NewWithInstance("files", files, name, driver)
	must(err)
	return migrator
}

func try(name string) {
	show("==", name)
	one := open(name)
	show("to 2", one.Migrate(2))
	version, dirty, err := one.Version()
	show("version", version, dirty, err)
	show("again", one.Migrate(2))
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			other := open(name)
			if err := other.Migrate(4); err != nil && err != migrate.ErrNoChange {
				show("at a time", err)
			}
			source, database := other.Close()
			if source != nil || database != nil {
				show("close", source, database)
			}
		})
	}
	group.Wait()
	version, dirty, err = one.Version()
	show("version", version, dirty, err)
	show("wrong", one.Up() != nil)
	version, dirty, err = one.Version()
	show("version", version, dirty, err)
	show("forced", one.Force(4), one.Steps(-2))
	show("down", one.Down(), one.Drop())
	source, database := one.Close()
	show("close", source, database)
}

func main() {
	try("pq")
	try("pgx")
	fmt.Println("done")
}
