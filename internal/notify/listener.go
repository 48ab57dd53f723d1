package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/internal/warn"
)

const (
	minReconnect   = 200 * time.Millisecond
	maxReconnect   = 5 * time.Second
	silenceLimit   = 30 * time.Second
	probeDeadline  = 5 * time.Second
	connectTimeout = 2 * time.Minute // unless the configuration has one; the pool's default
)

// Listener receives notifications for the whole process, on one connection.
type Listener struct {
	as   func() *pgxpool.Config
	log  *slog.Logger
	turn chan struct{} // full while a caller of Serve has the turn
	lost warn.Repeated
	waiting
}

// NewListener returns a listener connecting like a pool with the configuration returned by as. If as is nil, the
// listener never connects, and its waiters get notifications only from a [Notifier] of this process.
func NewListener(as func() *pgxpool.Config, log *slog.Logger) *Listener {
	return &Listener{as: as, log: log, turn: make(chan struct{}, 1), waiting: newWaiting()}
}

// Listen calls got with the payload of each notification on a channel until ctx ends. It calls got with "" if
// notifications may have been lost: once the connection listens to the channel, and after each loss of the connection.
// got must not block, and may be called from several goroutines at once.
//
// Listen returns ctx's error. It reconnects if the connection is lost.
func (l *Listener) Listen(ctx context.Context, channel string, got func(payload string)) error {
	defer l.Join(channel, got)()
	return l.Serve(ctx)
}

// Join registers got for a channel until leave is called; one more call of got may follow. Notifications of this
// process arrive from now on, notifications of other processes while a caller runs [Listener.Serve]. The connection is
// closed without registrations and callers of Serve.
func (l *Listener) Join(channel string, got func(payload string)) (leave func()) {
	return l.join(channel, got)
}

// Serve receives notifications for all registrations until ctx ends. All calls share one connection: one call waits on
// the connection for all, and another takes over when that call's ctx ends.
//
// Serve returns ctx's error. It reconnects if the connection is lost.
func (l *Listener) Serve(ctx context.Context) error {
	if l.as == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case l.turn <- struct{}{}:
	}
	defer func() { <-l.turn }()
	return l.listenForAll(ctx)
}

// listenForAll keeps a connection and calls all waiters until ctx ends.
func (l *Listener) listenForAll(ctx context.Context) error {
	c := l.take()
	pause := minReconnect
	for {
		began := time.Now()
		var err error
		if c == nil {
			c, err = connect(ctx, l.as())
		}
		if err == nil {
			err = l.receive(ctx, c)
		}
		if ctx.Err() != nil && (c == nil || !c.IsClosed()) {
			closeConn(l.leaveBehind(c))
			return ctx.Err()
		}
		l.leaveBehind(nil)
		closeConn(c)
		c = nil
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(began) > maxReconnect {
			pause = minReconnect
		}
		l.lost.Log(l.log, "listener lost its connection; polling until it is back: check the database, and behind a pooler set the engine's Listener",
			"error", err, "retry_in", pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause + time.Duration(rand.Int64N(int64(pause)/2))):
		}
		pause = min(2*pause, maxReconnect)
	}
}

// receive calls waiters for the notifications of the connection until it is lost or ctx ends.
func (l *Listener) receive(ctx context.Context, c *conn) error {
	for {
		// A half-open socket stays silent for ever, so the connection is probed after a silence.
		silence, interrupt := context.WithTimeout(ctx, silenceLimit)
		channels, idle, tidyAt := l.wanted(interrupt)
		if len(channels)+len(idle) > 0 {
			interrupt()
			if err := c.command(ctx, "unlisten", idle); err != nil {
				return err
			}
			if err := c.command(ctx, "listen", channels); err != nil {
				return err
			}
			l.listens(channels)
			continue
		}
		stop := func() bool { return true }
		if !tidyAt.IsZero() {
			stop = time.AfterFunc(time.Until(tidyAt), interrupt).Stop
		}
		notification, err := c.WaitForNotification(silence)
		over := silence.Err()
		stop()
		interrupt()
		switch {
		case err == nil:
			l.deliver(notification.Channel, notification.Payload)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(over, context.DeadlineExceeded):
			probing, cancel := context.WithTimeout(ctx, probeDeadline)
			err := c.Ping(probing)
			cancel()
			if err != nil {
				return fmt.Errorf("probe: %w", err)
			}
		case over == nil:
			return fmt.Errorf("wait: %w", err)
		}
	}
}

// conn is a connection, closed as the pool closes its own.
type conn struct {
	*pgx.Conn
	beforeClose func(*pgx.Conn)
}

func connect(ctx context.Context, as *pgxpool.Config) (*conn, error) {
	config := as.ConnConfig.Copy()
	if config.ConnectTimeout <= 0 {
		config.ConnectTimeout = connectTimeout
	}
	if as.BeforeConnect != nil {
		if err := as.BeforeConnect(ctx, config); err != nil {
			return nil, fmt.Errorf("before connect: %w", err)
		}
	}
	connected, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &conn{connected, as.BeforeClose}
	if as.AfterConnect != nil {
		if err := as.AfterConnect(ctx, connected); err != nil {
			closeConn(c)
			return nil, fmt.Errorf("after connect: %w", err)
		}
	}
	return c, nil
}

// maxChannels limits the channels of one message to the server.
const maxChannels = 500

// command sends LISTEN or UNLISTEN for channels, many in one message.
func (c *conn) command(ctx context.Context, verb string, channels []string) error {
	for some := range slices.Chunk(channels, maxChannels) {
		commands := make([]string, len(some))
		for i, channel := range some {
			commands[i] = verb + " " + pgx.Identifier{channel}.Sanitize()
		}
		if _, err := c.Exec(ctx, strings.Join(commands, "; ")); err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
	}
	return nil
}

func closeConn(c *conn) {
	if c == nil {
		return
	}
	if c.beforeClose != nil {
		c.beforeClose(c.Conn)
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeDeadline)
	defer cancel()
	_ = c.Close(ctx)
}
