package fftest

import (
	"encoding/binary"
	"net"
)

// point is a moment at which a process dies: before or after the server has seen its round trip of this number, from 1.
type point struct {
	trip  int
	after bool
}

// conn is a connection of a process. Each of its writes that asks the server to run something is a round trip.
type conn struct {
	net.Conn
	process *process

	read    messages
	pending int  // answers of the server that the dying process waits for
	dying   bool // it dies when they are there
}

// Close forgets the connection.
func (c *conn) Close() error {
	c.process.mu.Lock()
	delete(c.process.conns, c)
	c.process.mu.Unlock()
	return c.Conn.Close()
}

// Write sends messages to the server, unless the process dies before.
func (c *conn) Write(b []byte) (int, error) {
	if c.dying {
		return 0, errKilled
	}
	if runs, answers := asks(b); runs && c.process.dies() {
		if !c.process.fatal.after {
			c.process.kill()
			return 0, errKilled
		}
		c.dying, c.pending = true, answers
	}
	return c.Conn.Write(b)
}

// Read returns what the server has sent. For a process that dies after its round trip it waits until the server has answered,
// and returns nothing of that.
func (c *conn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		c.read.take(b[:n], func(kind byte) {
			switch kind {
			case 'Z': // ready for the next query
				c.pending--
			case 'G': // waits for the rows of a COPY
				c.pending = 0
			}
		})
		if !c.dying {
			c.pending = 0
			return n, err
		}
		if err != nil || c.pending <= 0 {
			c.process.kill()
			return 0, errKilled
		}
	}
}

// dies counts a round trip, and reports whether it is the fatal one.
func (p *process) dies() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trips++
	return p.trips == p.fatal.trip
}

// asks reports whether the client's messages make the server run something, and how many times it then says that it is ready.
func asks(b []byte) (runs bool, answers int) {
	var m messages
	m.take(b, func(kind byte) {
		switch kind {
		case 'B', 'Q', 'd': // bind, query, a row of a COPY
			runs = true
		}
		switch kind {
		case 'Q', 'S', 'c': // query, sync, end of a COPY
			answers++
		}
	})
	return runs, answers
}

// messages finds the kinds of the messages in a stream of either direction.
type messages struct {
	head []byte // the beginning of a message: its kind and its length
	left int    // bytes of the present message
}

func (m *messages) take(b []byte, each func(kind byte)) {
	for len(b) > 0 {
		if m.left > 0 {
			n := min(m.left, len(b))
			m.left, b = m.left-n, b[n:]
			continue
		}
		n := min(5-len(m.head), len(b))
		m.head, b = append(m.head, b[:n]...), b[n:]
		if len(m.head) == 5 {
			each(m.head[0])
			m.left = max(int(binary.BigEndian.Uint32(m.head[1:]))-4, 0)
			m.head = m.head[:0]
		}
	}
}
