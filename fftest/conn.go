package fftest

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
)

// conn is a connection of a process. Each write that makes the server run a statement is a round trip.
type conn struct {
	net.Conn
	process *process
	lives   int // of the process

	statements map[string]string // names of queries, by prepared statement
	answers    backend
	pending    int  // answers awaited by the dying process
	dying      bool // the process dies after the answers
}

// Close forgets the connection.
func (c *conn) Close() error {
	c.process.mu.Lock()
	delete(c.process.conns, c)
	delete(c.process.waiting, c)
	c.process.mu.Unlock()
	return c.Conn.Close()
}

// Write sends messages to the server, unless the process dies before.
func (c *conn) Write(b []byte) (int, error) {
	if c.dying {
		return 0, errKilled
	}
	ran, answers := c.asks(b)
	if ran != "" {
		switch c.process.trip(c, ran) {
		case diesBefore:
			c.kill()
			return 0, errKilled
		case diesAfter:
			c.dying, c.pending = true, answers
		}
	}
	return c.Conn.Write(b)
}

// Read returns the server's bytes. For a process dying after its round trip, Read waits for the complete answer and
// returns an error instead.
func (c *conn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if !c.dying {
			c.process.answered(c)
			c.answers.take(b[:n], func(byte) {})
			return n, err
		}
		c.answers.take(b[:n], func(kind byte) {
			switch kind {
			case 'Z': // ready for the next query
				c.pending--
			case 'G': // waits for the rows of a COPY
				c.pending = 0
			}
		})
		if err != nil || c.pending <= 0 {
			c.kill()
			return 0, errKilled
		}
	}
}

// kill kills the connection's process, unless dead already.
func (c *conn) kill() {
	c.process.mu.Lock()
	defer c.process.mu.Unlock()
	if c.lives == c.process.lives {
		c.process.cut()
	}
}

// asks returns the names of the queries in the client's messages, and how many times the server will then report it is
// ready. pgx writes whole messages.
func (c *conn) asks(b []byte) (ran string, answers int) {
	var queries []string
	for len(b) >= 5 {
		kind, size := b[0], int(binary.BigEndian.Uint32(b[1:]))+1
		if kind == 0 || size > len(b) {
			break // the first message of a connection has no kind
		}
		body := b[5:size]
		b = b[size:]
		switch kind {
		case 'P': // parse: the statement's name and text
			name, rest, _ := bytes.Cut(body, []byte{0})
			text, _, _ := bytes.Cut(rest, []byte{0})
			c.statements[string(name)] = nameOf(string(text))
		case 'B': // bind: the portal's name and the statement's
			_, rest, _ := bytes.Cut(body, []byte{0})
			name, _, _ := bytes.Cut(rest, []byte{0})
			queries = append(queries, c.statements[string(name)])
		case 'Q': // a query without parameters
			queries = append(queries, nameOf(string(bytes.TrimRight(body, "\x00"))))
			answers++
		case 'd': // a row of a COPY
			queries = append(queries, "copy")
		case 'S', 'c': // sync, end of a COPY
			answers++
		}
	}
	return strings.Join(queries, ", "), answers
}

// nameOf returns the name of one of the library's queries, or the beginning of another one.
func nameOf(sql string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(sql), "\n")
	if name, ok := strings.CutPrefix(first, "-- name: "); ok {
		name, _, _ = strings.Cut(name, " ")
		return name
	}
	return first[:min(len(first), 60)]
}

// backend finds the kinds of the messages in a server's answers.
type backend struct {
	head []byte // the beginning of a message: its kind and its length
	left int    // bytes of the present message
}

func (m *backend) take(b []byte, each func(kind byte)) {
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
