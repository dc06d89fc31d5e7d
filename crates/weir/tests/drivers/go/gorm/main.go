// GORM with a pool of connections, as a web application uses it: a request writes, and the next page loads its parts all at once, on other connections.
package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

const rounds = 12

type Order struct {
	gorm.Model
	Customer string
	State    string
	Items    []Item
}

type Item struct {
	ID      uint
	OrderID uint
	Name    string
	Price   int
}

var missed struct{ created, items, saved, updated, found, deleted, committed, counted atomic.Int64 }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func note(is bool, count *atomic.Int64) {
	if is {
		count.Add(1)
	}
}

// Loads the parts of a page all at once.
func page(parts ...func()) {
	var all sync.WaitGroup
	for _, part := range parts {
		all.Go(part)
	}
	all.Wait()
}

func work(db *gorm.DB) {
	for round := range rounds {
		customer := fmt.Sprintf("customer %d", round)
		order := Order{Customer: customer, State: "new", Items: []Item{{Name: "one", Price: 1}, {Name: "two", Price: 2}}}
		check(db.Create(&order).Error)
		page(func() {
			var read Order
			note(errors.Is(db.First(&read, order.ID).Error, gorm.ErrRecordNotFound), &missed.created)
		}, func() {
			var whole Order
			db.Preload("Items").Find(&whole, order.ID)
			note(len(whole.Items) != 2, &missed.items)
		}, func() {
			// Looks for it, and would make another one if it was not found.
			var again Order
			check(db.Where(Order{Customer: customer}).Attrs(Order{State: "made twice"}).FirstOrCreate(&again).Error)
			note(again.ID != order.ID, &missed.found)
		})

		// Loads a record and saves it, as applications do.
		var read Order
		if db.First(&read, order.ID).Error == nil {
			read.State = "paid"
			check(db.Save(&read).Error)
		}
		page(func() {
			var paid Order
			db.Where("customer = ? AND state = ?", customer, "paid").Limit(1).Find(&paid)
			note(paid.ID != order.ID, &missed.saved)
		}, func() {
			var state string
			db.Model(&Order{}).Where("id = ?", order.ID).Pluck("state", &state)
			note(state != "paid", &missed.updated)
		})

		check(db.Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&Item{OrderID: order.ID, Name: "three", Price: 3}).Error; err != nil {
				return err
			}
			return tx.Model(&Item{}).Where("order_id = ?", order.ID).Update("price", gorm.Expr("price * 10")).Error
		}))
		page(func() {
			var sum int
			db.Raw("SELECT coalesce(sum(price), 0) FROM items WHERE order_id = ?", order.ID).Scan(&sum)
			note(sum != 60, &missed.committed)
		}, func() {
			var count int64
			check(db.Model(&Item{}).Where("order_id = ?", order.ID).Count(&count).Error)
			note(count != 3, &missed.counted)
		})

		if round%2 == 1 {
			check(db.Delete(&order).Error)
			gone := func() {
				err := db.First(&Order{}, order.ID).Error
				note(!errors.Is(err, gorm.ErrRecordNotFound), &missed.deleted)
			}
			page(gone, gone, gone)
		}
	}
}

func main() {
	db, err := gorm.Open(postgres.Open(""), &gorm.Config{Logger: logger.Discard})
	check(err)
	pool, err := db.DB()
	check(err)
	pool.SetMaxOpenConns(4)
	pool.SetMaxIdleConns(4)
	// It looks at the definitions that it has just made.
	check(db.AutoMigrate(&Order{}, &Item{}))
	check(db.AutoMigrate(&Order{}, &Item{}))
	fmt.Println("tables:", db.Migrator().HasTable(&Order{}), db.Migrator().HasColumn(&Item{}, "price"), db.Migrator().HasIndex(&Order{}, "idx_orders_deleted_at"))

	work(db)
	for _, count := range []struct {
		name  string
		count *atomic.Int64
	}{
		{"created", &missed.created}, {"items", &missed.items}, {"saved", &missed.saved}, {"updated", &missed.updated},
		{"found", &missed.found}, {"deleted", &missed.deleted}, {"committed", &missed.committed}, {"counted", &missed.counted},
	} {
		fmt.Println("missed", count.name, count.count.Load())
	}
	var orders, deleted, items int64
	check(db.Model(&Order{}).Count(&orders).Error)
	check(db.Unscoped().Model(&Order{}).Count(&deleted).Error)
	check(db.Model(&Item{}).Count(&items).Error)
	fmt.Println("orders", orders, deleted, "items", items)
	check(pool.Close())
	fmt.Println("done")
}
