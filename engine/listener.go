package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/id"
)

const (
	minReconnect  = 200 * time.Millisecond
	maxReconnect  = 5 * time.Second
	silenceLimit  = 30 * time.Second
	probeDeadline = 5 * time.Second
)

// Listen calls wake with the name of each lane that is told to have work, by any process, until ctx ends,
// and with "" after every (re)connection: work may have come meanwhile on any lane. Of work that this
// engine makes it hears right after the commit, in the goroutine that made it, and once more from the
// server. wake must not block, and is called from several goroutines at once.
//
// It holds one connection of its own, beside the pool, made from the pool's configuration. Behind a
// transaction pooler nothing is heard of other processes; a notification is a hint, and whoever waits for
// work also polls.
//
// It returns ctx's error; a lost connection is no error: it reconnects.
func (e *Engine) Listen(ctx context.Context, wake func(id.LaneID)) error {
	defer e.bell.listen(wake)()
	pause := minReconnect
	for {
		began := time.Now()
		err := e.listen(ctx, wake)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(began) > maxReconnect {
			pause = minReconnect
		}
		e.cfg.Log.Warn("listener lost its connection; polling until it is back", "error", err, "retry_in", pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause + time.Duration(rand.Int64N(int64(pause)/2))):
		}
		pause = min(2*pause, maxReconnect)
	}
}

func (e *Engine) listen(ctx context.Context, wake func(id.LaneID)) error {
	conn, err := pgx.ConnectConfig(ctx, e.pool.Config().ConnConfig.Copy())
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), probeDeadline)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "listen "+readyChannel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	wake("")
	for {
		// A half-open socket is silent for ever: after a silence the connection is probed.
		waiting, cancel := context.WithTimeout(ctx, silenceLimit)
		notification, err := conn.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil:
			wake(id.LaneID(notification.Payload))
		case ctx.Err() != nil:
			return ctx.Err()
		case waiting.Err() != nil:
			probing, cancel := context.WithTimeout(ctx, probeDeadline)
			err := conn.Ping(probing)
			cancel()
			if err != nil {
				return fmt.Errorf("probe: %w", err)
			}
		default:
			return fmt.Errorf("wait: %w", err)
		}
	}
}
