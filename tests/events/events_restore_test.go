//go:build unix

package events

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A database that was dumped and restored into a new cluster continues at its position: ids are data. Transactions of
// the new cluster have smaller ids than those that wrote its rows, and nothing may depend on these.
func TestEventsContinueAfterARestore(t *testing.T) {
	old, f := onServer(t)
	first, last := insertLeasesInto(t, f, 1), insertLeasesInto(t, f, 4)
	for range 5000 {
		f.Exec(t, "SELECT pg_current_xact_id()")
	}
	young := newServer(t)
	restore(t, old, young)
	pool := fixture.OpenPool(t, young.url(), nil)
	g := fixture.On(t, pool, young.url())
	if before, after := transactionID(t, f), transactionID(t, g); after >= before {
		t.Fatalf("the new cluster is at transaction %d, the old one at %d", after, before)
	}

	leases := events.Leases(events.Filter{})
	behind := subscribe(t, g.Engine, leases, events.Options{After: cursorBehind(first)})
	wantIDs(t, behind, first+1, first+2, first+3, last)
	at := subscribe(t, g.Engine, leases, events.Options{After: cursorBehind(last)})
	now := subscribe(t, g.Engine, leases, events.Options{})
	late := g.BeginTx(t)
	next := insertLease(t, g, late)
	other := insertLeasesInto(t, g, 1)
	fixture.Commit(t, late)
	for _, sub := range []*events.Subscription[events.Lease]{behind, at, now} {
		wantIDs(t, sub, next, other)
	}
}

// transactionID returns the id of a transaction that begins now.
func transactionID(t *testing.T, f *fixture.Fixture) (n int64) {
	t.Helper()
	if err := f.Pool.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text::bigint").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// restore copies the database of a server to another one, as pg_dump and psql do.
func restore(t *testing.T, from, to *server) {
	t.Helper()
	dump, err := exec.Command(filepath.Join(from.bin, "pg_dump"), "--no-sync", from.url()).Output()
	if err != nil {
		t.Fatal(err)
	}
	psql := exec.Command(filepath.Join(to.bin, "psql"), "-qX", "-v", "ON_ERROR_STOP=1", to.url())
	psql.Stdin = bytes.NewReader(dump)
	if output, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v: %s", err, output)
	}
}
