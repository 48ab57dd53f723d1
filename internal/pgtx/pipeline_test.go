package pgtx

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/db"
)

// answers is the answer to a batch: an error for each statement, in order.
type answers struct {
	pgx.BatchResults
	sent   []string
	errs   []error
	read   int
	closed bool
}

func (a *answers) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		a.sent = append(a.sent, q.SQL)
	}
	return a
}

func (a *answers) Exec() (pgconn.CommandTag, error) {
	a.read++
	return pgconn.CommandTag{}, a.errs[a.read-1]
}

func (a *answers) Close() error {
	a.closed = true
	return nil
}

// send is a step that sends sql and records the answer.
func send(sql string, answered *[]string) Step {
	return func(conn db.DBTX) error {
		_, err := conn.Exec(context.Background(), sql)
		if err == nil {
			*answered = append(*answered, sql)
		}
		return err
	}
}

func TestInOneTripKeepsOrder(t *testing.T) {
	var answered []string
	a := &answers{errs: []error{nil, nil, nil}}
	nothing := func(db.DBTX) error { return nil }
	if err := InOneTrip(t.Context(), a, send("1", &answered), nothing, send("2", &answered), send("3", &answered)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1", "2", "3"}; !slices.Equal(a.sent, want) || !slices.Equal(answered, want) || !a.closed {
		t.Errorf("sent %q, answered %q, closed %t", a.sent, answered, a.closed)
	}
}

func TestInOneTripStopsAtTheFirstError(t *testing.T) {
	refused := errors.New("refused")
	var answered []string
	a := &answers{errs: []error{nil, refused, nil}}
	if err := InOneTrip(t.Context(), a, send("1", &answered), send("2", &answered), send("3", &answered)); !errors.Is(err, refused) {
		t.Errorf("got %v, want the error of the second", err)
	}
	if !slices.Equal(answered, []string{"1"}) || !a.closed {
		t.Errorf("answered %q, closed %t", answered, a.closed)
	}
}

// If a step fails before it sends anything, nothing is sent.
func TestInOneTripSendsAllOrNothing(t *testing.T) {
	refused := errors.New("refused")
	var answered []string
	a := new(answers)
	if err := InOneTrip(t.Context(), a, send("1", &answered), func(db.DBTX) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("got %v, want the error of the second", err)
	}
	if err := InOneTrip(t.Context(), a); err != nil {
		t.Error(err)
	}
	if len(a.sent) > 0 {
		t.Errorf("sent %q", a.sent)
	}
}
