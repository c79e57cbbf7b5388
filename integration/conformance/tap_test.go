package conformance_test

import (
	"bytes"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/internal/natstest"
)

// tap is how the worker reaches the server: what it publishes is read along. A
// subscription to all inboxes would do so too, but the server would take it for
// processes that are gone, and hand them calls.
type tap struct {
	*natstest.Server
	heard func(*nats.Msg)
}

// InProcessConn makes a connection of the worker.
func (t tap) InProcessConn() (net.Conn, error) {
	c, err := t.Server.InProcessConn()
	return &tapped{Conn: c, heard: t.heard}, err
}

type tapped struct {
	net.Conn
	heard func(*nats.Msg)

	mu  sync.Mutex
	buf []byte
}

// Write reads what the server is told before the server does, so that an answer
// is known before anyone can follow it.
func (c *tapped) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.buf = append(c.buf, b...)
	for c.next() {
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// next takes one line off the buffer, with its payload.
func (c *tapped) next() bool {
	line, rest, ok := bytes.Cut(c.buf, []byte("\r\n"))
	words := strings.Fields(string(line))
	if !ok || len(words) == 0 {
		return false
	}
	size, header := 0, 0
	if words[0] == "PUB" || words[0] == "HPUB" {
		size, _ = strconv.Atoi(words[len(words)-1])
		if len(rest) < size+2 {
			return false
		}
		if words[0] == "HPUB" {
			header, _ = strconv.Atoi(words[len(words)-2])
		}
		m := &nats.Msg{Subject: words[1], Data: bytes.Clone(rest[header:size])}
		if header > 0 {
			m.Header, _ = nats.DecodeHeadersMsg(rest[:header])
		}
		if strings.HasPrefix(m.Subject, "_INBOX.") {
			c.heard(m)
		}
		size += 2
	}
	c.buf = bytes.Clone(rest[size:])
	return true
}
