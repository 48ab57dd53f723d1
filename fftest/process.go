package fftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
)

// errKilled is the error of a dead process's calls.
var errKilled = errors.New("fftest: the worker's process is dead")

// process simulates the worker's process in the operating system: all connections of the kit's pool are lost at once
// when it dies.
type process struct {
	mu    sync.Mutex
	conns map[*conn]uint32 // the server's process of each, 0 until known
	dead  bool
	ended []uint32 // the server's processes of the dead process
	lives int      // how many processes have died

	counts bool   // a drain is under way
	trips  int    // its round trips so far
	fatal  point  // the moment of its death; the zero value: never
	at     string // the queries of the fatal round trip

	waiting map[*conn]string // the queries of unanswered round trips
	beside  string           // describes two round trips at once
	die     context.CancelCauseFunc
	alive   context.Context
}

func newProcess() *process {
	p := &process{conns: make(map[*conn]uint32), waiting: make(map[*conn]string)}
	p.alive, p.die = context.WithCancelCause(context.Background())
	return p
}

// wrap makes a pool's connections belong to the process.
func (p *process) wrap(cfg *pgxpool.Config) {
	cfg.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, inner net.Conn) (net.Conn, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.dead {
			_ = inner.Close()
			return inner, errKilled
		}
		c := &conn{Conn: inner, process: p, lives: p.lives, statements: make(map[string]string)}
		p.conns[c] = 0
		return c, nil
	}
	cfg.AfterConnect = func(_ context.Context, connected *pgx.Conn) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c, ok := connected.PgConn().Conn().(*conn); ok && !p.dead {
			p.conns[c] = connected.PgConn().PID()
		}
		return nil
	}
}

// context returns a context that ends with the process, at its death, and with the test.
func (p *process) context(test context.Context) (context.Context, context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithCancelCause(p.alive)
	stop := context.AfterFunc(test, func() { cancel(context.Cause(test)) })
	return ctx, func(cause error) {
		stop()
		cancel(cause)
	}
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// kill cuts all connections and refuses new ones.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

func (p *process) cut() {
	if p.dead {
		return
	}
	p.dead = true
	for c, pid := range p.conns {
		_ = c.Conn.Close()
		if pid != 0 {
			p.ended = append(p.ended, pid)
		}
	}
	clear(p.conns)
	clear(p.waiting)
	p.die(errKilled)
}

// point is a moment for a death: before or after the server has seen the round trip with this number, from 1.
type point struct {
	trip  int
	after bool
}

// fate is the effect of a round trip on the process.
type fate int

const (
	lives fate = iota
	diesBefore
	diesAfter
)

// trip counts a round trip of a drain. Notifications are not counted: they are sent beside the worker, at varying
// times.
func (p *process) trip(c *conn, queries string) fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.counts || p.dead || strings.HasPrefix(queries, "SELECT pg_notify(") {
		return lives
	}
	for other, sent := range p.waiting {
		if other != c && p.beside == "" {
			p.beside = fmt.Sprintf("%q was sent while %q had no answer yet", queries, sent)
		}
	}
	p.waiting[c] = queries
	if p.trips++; p.trips != p.fatal.trip {
		return lives
	}
	p.at = queries
	if p.fatal.after {
		return diesAfter
	}
	return diesBefore
}

// answered records that a round trip's answer has begun, or will never come.
func (p *process) answered(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, c)
}

// overlap describes two round trips under way at once, or returns "".
func (p *process) overlap() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.beside
}

// count starts or stops counting.
func (p *process) count(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts = on
}

// revive begins another process, and returns the sessions of the dead one.
func (p *process) revive() []uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = false
	p.lives++
	p.alive, p.die = context.WithCancelCause(context.Background())
	ended := p.ended
	p.ended = nil
	return ended
}

// KillWorker kills the worker's process: all connections of the kit's pool are cut, and the running handler gets
// nothing from the database. Nothing is settled or released, so the leases end by [Kit.Advance]. Call KillWorker in a
// handler, or between two calls of [Kit.Drain]. Drain continues with a new process. The handler runs to its end, since
// Go can't stop it: its effects beside the database happen.
func (k *Kit) KillWorker() {
	k.process.kill()
	k.mu.Lock()
	idle := k.running == nil
	k.mu.Unlock()
	if idle {
		k.restart()
	}
}

// restart begins a new process, once the server has ended the sessions of the dead one and released their locks.
func (k *Kit) restart() {
	k.t.Helper()
	ended := k.process.revive()
	k.Pool.Reset()
	_, err := k.Pool.Exec(k.t.Context(), `SELECT pg_terminate_backend(a.pid, 60000) FROM pg_stat_activity AS a WHERE a.pid = ANY ($1::bigint[])`, numbers(ended))
	if err != nil {
		k.t.Fatalf("fftest: restart the worker: %v", err)
	}
	if k.crashes {
		k.Advance(k.leaseTTL + time.Millisecond)
	}
}

func numbers(pids []uint32) []int64 {
	out := make([]int64, len(pids))
	for i, pid := range pids {
		out[i] = int64(pid)
	}
	return out
}

// LoseLease takes the lease of a running execution from its worker, as if the lease had expired and another worker had
// claimed the execution. Call LoseLease in the handler, whose outcome then counts for nothing.
func (k *Kit) LoseLease(x id.ExecutionID) {
	k.t.Helper()
	revoked, err := operator.Revoke(k.t.Context(), k.Engine, operator.RevokeSpec{ID: x, Reason: "fftest"})
	if err == nil && revoked.NotRevoked != "" {
		err = fmt.Errorf("%s", revoked.NotRevoked)
	}
	if err != nil {
		k.t.Errorf("fftest: lose the lease of %s: %v", x, err)
	}
}
