// Command webhook asks a payment service for money and waits for its webhook. The service delivers each event at least
// once, here twice. The webhook records the event and sends the signal in one transaction, and the order goes on once.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Payment is the service's event. The handler gave the reference to the service.
type Payment struct {
	EventID   string
	Reference id.ExecutionID
	Euros     int
}

var (
	Order = engine.Kind[int, string]{Name: "order"}
	Paid  = engine.Signal[Payment]{Name: "paid"}
)

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	must(pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS payments (event_id text PRIMARY KEY, euros integer NOT NULL)"))

	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := paid(r, eng); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable) // the service delivers it again
		}
	}))
	defer webhook.Close()
	service, delivered := payments(webhook.URL)
	defer service.Close()

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Order, func(ctx context.Context, job worker.Job[int]) (string, error) {
		_, err := worker.Step(ctx, job, "request", func(context.Context) (struct{}, error) {
			return struct{}{}, post(service.URL, Payment{Reference: job.ID, Euros: job.Args}) // which recognises the reference
		})
		if err != nil {
			return "", err
		}
		payment, err := Paid.Await(ctx, job, engine.Wait{Timeout: 24 * time.Hour})
		if err != nil {
			return "", err
		}
		fmt.Println("sending the goods")
		return fmt.Sprintf("paid %d euros by %s", payment.Euros, payment.EventID), nil
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	created := must(Order.Create(ctx, eng, 30))
	fmt.Println(must(Order.Await(ctx, eng, created.ID)))
	delivered.Wait()
	var events int
	must(0, pool.QueryRow(ctx, "SELECT count(*) FROM payments").Scan(&events))
	fmt.Println("events:", events)
}

func paid(r *http.Request, eng *engine.Engine) error {
	var payment Payment
	if err := json.NewDecoder(r.Body).Decode(&payment); err != nil {
		return err
	}
	return eng.InTx(r.Context(), func(tx pgx.Tx, eng *engine.Engine) error {
		if _, err := tx.Exec(r.Context(), "INSERT INTO payments VALUES ($1, $2) ON CONFLICT DO NOTHING", payment.EventID, payment.Euros); err != nil {
			return err
		}
		return Paid.Send(r.Context(), eng, payment.Reference, payment, engine.Once(payment.EventID))
	})
}

// payments is the service. It delivers its event twice, as if it had not seen the first answer.
func payments(webhookURL string) (*httptest.Server, *sync.WaitGroup) {
	delivering := new(sync.WaitGroup)
	return httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var payment Payment
		must(0, json.NewDecoder(r.Body).Decode(&payment))
		payment.EventID = "evt_1"
		delivering.Go(func() {
			must(0, post(webhookURL, payment))
			must(0, post(webhookURL, payment))
		})
	})), delivering
}

func post(url string, payment Payment) error {
	response, err := http.Post(url, "application/json", bytes.NewReader(must(json.Marshal(payment))))
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
