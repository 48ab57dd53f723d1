package network

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
)

const distance = 20 * time.Millisecond

func listen(t *testing.T, databaseURL string) (*Proxy, string) {
	t.Helper()
	p, err := Listen(databaseURL, distance)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	through, err := p.Through(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	return p, through
}

// echo is a server that sends back its input, and then the end of the data.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return "postgres://" + l.Addr().String() + "/"
}

// Many megabytes arrive complete and in order over many connections, and the end of a client's data is forwarded while the
// answer is still coming.
func TestProxyPassesBytesAndHalfClose(t *testing.T) {
	p, _ := listen(t, echo(t))
	var clients errgroup.Group
	for range 20 {
		clients.Go(func() error {
			conn, err := net.Dial("tcp", p.listener.Addr().String())
			if err != nil {
				return err
			}
			defer conn.Close()
			sent := make([]byte, 3<<20)
			rand.Read(sent)
			go func() {
				conn.Write(sent)
				conn.(*net.TCPConn).CloseWrite()
			}()
			received, err := io.ReadAll(conn)
			if err == nil && !bytes.Equal(received, sent) {
				err = fmt.Errorf("%d bytes came back of %d, or others", len(received), len(sent))
			}
			return err
		})
	}
	if err := clients.Wait(); err != nil {
		t.Error(err)
	}
}

// Pieces sent one after the other are in flight together: none is early, and their delays don't add up. Otherwise no try
// would take less than half of the sum.
func TestProxyDelaysEachPieceFromItsArrival(t *testing.T) {
	const pieces, tries = underWay / 2, 20
	p := &Proxy{delay: distance / 2}
	fastest := time.Hour
	for try := 0; try < tries && fastest > pieces*p.delay/2; try++ {
		first, all := p.send(t, pieces)
		if first < p.delay*9/10 {
			t.Errorf("the first came after %s, of a delay of %s", first, p.delay)
		}
		fastest = min(fastest, all)
	}
	if fastest > pieces*p.delay/2 {
		t.Errorf("%d pieces came after %s: one after the other", pieces, fastest)
	}
}

// send sends pieces through a proxy. It returns the times until the first and the last have arrived.
func (p *Proxy) send(t *testing.T, pieces int) (first, all time.Duration) {
	t.Helper()
	sender, from := net.Pipe()
	to, receiver := net.Pipe()
	defer receiver.Close()
	go p.carry(to, from, func([]byte) {})
	began := time.Now()
	for range pieces {
		if _, err := sender.Write([]byte{1}); err != nil { // returns when the proxy has it
			t.Fatal(err)
		}
	}
	sender.Close()
	if _, err := io.ReadFull(receiver, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	first = time.Since(began)
	if _, err := io.ReadFull(receiver, make([]byte, pieces-1)); err != nil {
		t.Fatal(err)
	}
	return first, time.Since(began)
}

func TestProxyCountsRoundTrips(t *testing.T) {
	url := pgtest.EmptyDatabase(t)
	p, through := listen(t, url)
	conn, err := pgx.Connect(t.Context(), through)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	beside, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "create temporary table copied (i integer)"); err != nil {
		t.Fatal(err)
	}
	three := &pgx.Batch{}
	for range 3 {
		three.Queue("select $1::integer", 1)
	}
	one := func() error { _, err := conn.Exec(t.Context(), "select $1::integer", 1); return err }
	for _, c := range []struct {
		name string
		want int
		do   func() error
	}{
		{"a statement to be prepared", 2, one},
		{"a prepared statement", 1, one},
		{"a batch of three", 1, func() error { return conn.SendBatch(t.Context(), three).Close() }},
		{"a transaction of one statement", 3, func() error {
			return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), "select $1::integer", 1); return err })
		}},
		{"an answer larger than a piece", 1, func() error {
			_, err := conn.Exec(t.Context(), "select repeat('x', 1000000)", pgx.QueryExecModeSimpleProtocol)
			return err
		}},
		{"rows copied", 1, func() error {
			data := io.MultiReader(bytes.NewReader(bytes.Repeat([]byte("1\n"), 1000)), untilCopying{t, beside}, bytes.NewReader([]byte("2\n")))
			_, err := conn.PgConn().CopyFrom(t.Context(), data, "copy copied from stdin")
			return err
		}},
		{"nothing", 0, func() error { return nil }},
	} {
		before := p.RoundTrips()
		if err := c.do(); err != nil {
			t.Fatal(c.name, err)
		}
		if got := p.RoundTrips() - before; got != c.want {
			t.Errorf("%s: %d round trips, want %d", c.name, got, c.want)
		}
	}
}

// untilCopying has nothing to read. It reports when the server has rows of a copy, and so has asked for them.
type untilCopying struct {
	t    *testing.T
	conn *pgx.Conn
}

func (u untilCopying) Read([]byte) (int, error) {
	for copying := false; !copying; {
		err := u.conn.QueryRow(u.t.Context(),
			"select exists (select from pg_stat_progress_copy where datname = current_database() and bytes_processed > 0)").Scan(&copying)
		if err != nil {
			return 0, err
		}
	}
	return 0, io.EOF
}

// A statement is cancelled through a separate connection, which the server closes without an answer.
func TestProxyPassesCancelRequestsOn(t *testing.T) {
	_, through := listen(t, pgtest.EmptyDatabase(t))
	conn, err := pgx.Connect(t.Context(), through)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var waiting errgroup.Group
	waiting.Go(func() error { _, err := conn.Exec(t.Context(), "select pg_sleep(3600)"); return err })
	cancelled := make(chan error, 1)
	go func() { cancelled <- waiting.Wait() }()
	progress.Until(t, "the statement to be cancelled", func() bool {
		if err := conn.PgConn().CancelRequest(t.Context()); err != nil { // it may not have begun
			t.Fatal(err)
		}
		select {
		case err := <-cancelled:
			if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.Code != "57014" {
				t.Errorf("got %v, want that it was cancelled", err)
			}
			return true
		default:
			return false
		}
	})
}

// Close lets no client wait for an answer.
func TestProxyCloseEndsConnections(t *testing.T) {
	p, through := listen(t, pgtest.EmptyDatabase(t))
	pool, err := pgxpool.New(t.Context(), through)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pool.Ping(t.Context()); err == nil {
		t.Error("the server is still reached")
	}
}

func TestProxyKeepsTheURL(t *testing.T) {
	p, _ := listen(t, "postgres://user:pw@localhost:1/db?sslmode=disable")
	got, err := p.Through("postgres://user:pw@localhost:1/other?sslmode=disable")
	want := "postgres://user:pw@" + p.listener.Addr().String() + "/other?sslmode=disable"
	if err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got, err := p.Through("user=me"); err == nil {
		t.Errorf("got %q of what is no URL", got)
	}
}
