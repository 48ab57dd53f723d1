package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/id"
)

const (
	minReconnect   = 200 * time.Millisecond
	maxReconnect   = 5 * time.Second
	silenceLimit   = 30 * time.Second
	probeDeadline  = 5 * time.Second
	connectTimeout = 2 * time.Minute // unless the configuration says; the pool's
)

// Listen calls wake with the name of each lane that is told to have work, by any process, until ctx ends, and with ""
// after every (re)connection: work may have come meanwhile on any lane. Of work that this engine makes it hears right
// after the commit, in the goroutine that made it, and once more from the server. wake must not block, and is called
// from several goroutines at once.
//
// All listeners of an engine share one connection, beside the pool, made as the pool makes its own: with its BeforeConnect
// and AfterConnect. One of the callers waits on it for all, and another one goes on when its ctx ends; the last one
// closes it. [Config.Listener] gives it another address, and [Config.NoListener] does without: nothing is heard of other
// processes then, as behind a transaction pooler. A notification is a hint, and whoever waits for work also polls.
//
// It returns ctx's error; a lost connection is no error: it reconnects.
func (e *Engine) Listen(ctx context.Context, wake func(id.LaneID)) error {
	leave := e.ears.join(wake)
	defer leave()
	if e.cfg.NoListener {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case e.ears.turn <- struct{}{}:
	}
	defer func() { <-e.ears.turn }() // after it has left: the connection is the next one's, or closed
	defer leave()
	return e.listenForAll(ctx)
}

// listenForAll keeps a connection and calls all listeners, until ctx ends.
func (e *Engine) listenForAll(ctx context.Context) error {
	conn := e.ears.take()
	pause := minReconnect
	for {
		began := time.Now()
		var err error
		if conn == nil {
			conn, err = e.startListening(ctx)
		}
		if err == nil {
			err = e.hear(ctx, conn)
		}
		if ctx.Err() != nil && (conn == nil || !conn.IsClosed()) {
			e.ears.leaveBehind(conn)
			return ctx.Err()
		}
		e.ears.leaveBehind(nil)
		closeListener(conn)
		conn = nil
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

// A listeningConn is closed as the pool closes its own.
type listeningConn struct {
	*pgx.Conn
	beforeClose func(*pgx.Conn)
}

// startListening connects as the pool, or as the configuration given instead of the pool's.
func (e *Engine) startListening(ctx context.Context) (*listeningConn, error) {
	as := e.cfg.Listener
	if as == nil {
		as = e.pool.Config()
	}
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
	conn := &listeningConn{connected, as.BeforeClose}
	if as.AfterConnect != nil {
		if err := as.AfterConnect(ctx, connected); err != nil {
			closeListener(conn)
			return nil, fmt.Errorf("after connect: %w", err)
		}
	}
	if _, err := conn.Exec(ctx, "listen "+readyChannel); err != nil {
		closeListener(conn)
		return nil, fmt.Errorf("listen: %w", err)
	}
	e.ears.connected()
	return conn, nil
}

// hear calls all listeners for what the connection brings, until it is lost or ctx ends.
func (e *Engine) hear(ctx context.Context, conn *listeningConn) error {
	for {
		// A half-open socket is silent for ever: after a silence the connection is probed.
		waiting, cancel := context.WithTimeout(ctx, silenceLimit)
		notification, err := conn.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil:
			e.ears.tell(id.LaneID(notification.Payload))
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

func closeListener(conn *listeningConn) {
	if conn == nil {
		return
	}
	if conn.beforeClose != nil {
		conn.beforeClose(conn.Conn)
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeDeadline)
	defer cancel()
	_ = conn.Close(ctx)
}

// ears are the listeners of an engine. One of them at a time, whose turn it is, has the connection of all.
type ears struct {
	turn chan struct{} // full while somebody has it

	mu        sync.Mutex
	listeners []*func(id.LaneID)
	listening bool           // there is a connection
	left      *listeningConn // by the one who had the turn, for the next
}

func newEars() *ears { return &ears{turn: make(chan struct{}, 1)} }

// join adds a listener until the returned function is called; it may be called perhaps once more after that.
func (s *ears) join(wake func(id.LaneID)) (leave func()) {
	listener := &wake
	s.mu.Lock()
	s.listeners = append(slices.Clip(s.listeners), listener)
	late := s.listening
	s.mu.Unlock()
	if late {
		wake("")
	}
	return func() {
		s.mu.Lock()
		s.listeners = slices.DeleteFunc(slices.Clone(s.listeners), func(l *func(id.LaneID)) bool { return l == listener })
		var unused *listeningConn
		if len(s.listeners) == 0 && s.left != nil {
			unused, s.left, s.listening = s.left, nil, false
		}
		s.mu.Unlock()
		closeListener(unused)
	}
}

// tell calls all listeners.
func (s *ears) tell(lane id.LaneID) {
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	for _, wake := range listeners {
		(*wake)(lane)
	}
}

// connected tells all listeners that what came before was not heard. Who joins from now on is told by itself.
func (s *ears) connected() {
	s.mu.Lock()
	s.listening = true
	listeners := s.listeners
	s.mu.Unlock()
	for _, wake := range listeners {
		(*wake)("")
	}
}

// take returns the connection that somebody left behind, nil if there is none.
func (s *ears) take() *listeningConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.left
	s.left = nil
	return conn
}

// leaveBehind leaves a connection for whoever has the next turn; nil: there is none. The last listener to leave closes it.
func (s *ears) leaveBehind(conn *listeningConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = conn
	s.listening = conn != nil
}
