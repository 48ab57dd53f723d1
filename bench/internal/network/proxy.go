// Package network adds a distance between programs and their Postgres server, and counts how often the programs wait for
// it.
package network

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Proxy forwards connections to a server, and delays each byte by a fixed time after its arrival. Bytes in flight are
// delayed together, in both directions, since each piece counts from its own arrival.
//
// It counts round trips. One begins whenever a client sends after the server has said that it is ready for more. Data a
// client sends without waiting in between is one round trip, with any number of statements. Connections with TLS are
// not counted.
type Proxy struct {
	listener net.Listener
	network  string
	address  string // of the server
	delay    time.Duration
	trips    atomic.Int64

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
	lines  sync.WaitGroup
}

// Listen starts a proxy for the server in databaseURL. A round trip through it takes roundTrip longer than without.
func Listen(databaseURL string, roundTrip time.Duration) (*Proxy, error) {
	config, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	p := &Proxy{delay: roundTrip / 2, open: make(map[net.Conn]struct{})}
	p.network, p.address = pgconn.NetworkAddress(config.Host, config.Port)
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	p.lines.Go(p.accept)
	return p, nil
}

// Through returns the URL of the same database through the proxy.
func (p *Proxy) Through(databaseURL string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil || u.Host == "" {
		return "", errors.New("the database URL is not of the form postgres://user:password@host:port/database")
	}
	u.Host = p.listener.Addr().String()
	return u.String(), nil
}

// RoundTrips returns the number of round trips begun so far, on all connections.
func (p *Proxy) RoundTrips() int { return int(p.trips.Load()) }

// Close ends the connections and waits until they are gone.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	err := p.listener.Close()
	for conn := range p.open {
		conn.Close()
	}
	p.mu.Unlock()
	p.lines.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.lines.Go(func() { _ = p.serve(client) })
	}
}

// serve forwards one connection until both directions have ended.
func (p *Proxy) serve(client net.Conn) error {
	defer p.track(client)()
	server, err := net.Dial(p.network, p.address)
	if err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	defer p.track(server)()
	var answered atomic.Bool
	var said tail
	var directions sync.WaitGroup
	directions.Go(func() {
		p.carry(server, client, func([]byte) {
			if answered.Swap(false) {
				p.trips.Add(1)
			}
		})
	})
	directions.Go(func() {
		p.carry(client, server, func(data []byte) {
			if said.add(data); said.ready() {
				answered.Store(true)
			}
		})
	})
	directions.Wait()
	return nil
}

// tail is the end of the server's output.
type tail [6]byte

func (t *tail) add(data []byte) {
	data = data[max(0, len(data)-len(t)):]
	copy(t[:], t[len(data):])
	copy(t[len(t)-len(data):], data)
}

// ready reports whether it is ReadyForQuery, which ends every answer. Output while a client is still sending, as with
// COPY, ends differently and is not waited for.
func (t *tail) ready() bool {
	return t[0] == 'Z' && t[1] == 0 && t[2] == 0 && t[3] == 0 && t[4] == 5
}

// track makes Close close a connection. It returns a function that closes it earlier.
func (p *Proxy) track(conn net.Conn) (closeConn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[conn] = struct{}{}
	if p.closed {
		conn.Close()
	}
	return func() {
		conn.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, conn)
	}
}

const (
	pieceSize = 16 << 10
	underWay  = 256 // pieces in flight; a sender beyond them waits, as for a full socket
)

// piece is data that arrived together.
type piece struct {
	due  time.Time
	data *[]byte
	n    int
}

var pieces = sync.Pool{New: func() any { return new(make([]byte, pieceSize)) }}

// carry forwards data from one side to the other, and then the end of the data. It calls came for each piece on arrival.
// If a side can no longer be written to, the whole connection ends.
func (p *Proxy) carry(to, from net.Conn, came func(data []byte)) {
	line := make(chan piece, underWay)
	go func() {
		defer close(line)
		for {
			data := pieces.Get().(*[]byte)
			n, err := from.Read(*data)
			if n > 0 {
				came((*data)[:n])
				line <- piece{time.Now().Add(p.delay), data, n}
			}
			if err != nil {
				return
			}
		}
	}()
	for next := range line {
		pauseUntil(next.due)
		_, err := to.Write((*next.data)[:next.n])
		pieces.Put(next.data)
		if err != nil {
			from.Close()
			to.Close()
			for range line { // until its reader has noticed
			}
			return
		}
	}
	pauseUntil(time.Now().Add(p.delay))
	if half, ok := to.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		return
	}
	to.Close()
}
