package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/subjects"
)

const (
	pullMessages = 1000             // that are asked for with one request
	pullExpires  = 30 * time.Second // after which a request is asked anew
	pullSilence  = 3 * time.Second  // how often the server says that it is still there
	pullPatience = 3 * pullSilence  // how long it may say nothing
	pullRoom     = 4 * pullMessages // two requests, and what is said of them
)

var errSilent = errors.New("the server is silent")

// puller asks for the messages of a consumer, with requests that follow each
// other: the next is made when half of one has come. All together have no more
// bytes than the worker has room for: what the server sends faster than it can
// be taken gets the connection cut, again and again.
//
// A message that is larger than a request may be ends the request. It is then
// asked for alone, in turn with those of other partitions.
type puller struct {
	nc    *nats.Conn
	to    string // subject of requests
	inbox string // ends with a dot
	sub   *nats.Subscription
	msgs  chan *nats.Msg
	timer *time.Timer
	bytes int           // of one request
	slots chan struct{} // one for each message that is asked for alone

	made uint64
	open []request // in the order in which the server serves them
	big  bool      // the next message is larger than a request may be
	held bool      // a slot
}

// request is one that the server has, and how many messages of it have not come.
type request struct {
	reply string
	left  int
}

func newPuller(nc *nats.Conn, stream, consumer string, bytes int, slots chan struct{}) (*puller, error) {
	p := &puller{
		nc: nc, to: subjects.Pull(stream, consumer), inbox: nc.NewInbox() + ".",
		msgs: make(chan *nats.Msg, pullRoom), timer: time.NewTimer(pullPatience), bytes: bytes, slots: slots,
	}
	p.timer.Stop()
	var err error
	p.sub, err = nc.ChanSubscribe(p.inbox+"*", p.msgs)
	return p, err
}

func (p *puller) stop() {
	_ = p.sub.Unsubscribe()
	p.release()
}

func (p *puller) release() {
	if p.held {
		<-p.slots
		p.held = false
	}
}

// next gives the next message. It waits for one until ctx ends, and gives an
// error where something is wrong with the consumer.
func (p *puller) next(ctx context.Context) (*nats.Msg, error) {
	for {
		if err := p.ask(ctx); err != nil {
			return nil, err
		}
		m, err := p.receive(ctx)
		if err != nil {
			return nil, err
		}
		if m.Reply != "" { // no message of a stream comes without
			p.came()
			return m, nil
		}
		if err := p.answered(m); err != nil {
			return nil, err
		}
	}
}

// receive gives what the server sent next.
func (p *puller) receive(ctx context.Context) (*nats.Msg, error) {
	select { // what is there needs no timer
	case m := <-p.msgs:
		return m, nil
	default:
	}
	p.timer.Reset(pullPatience)
	defer p.timer.Stop()
	select {
	case m := <-p.msgs:
		return m, nil
	case <-p.timer.C:
		return nil, errSilent
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ask makes a request where one is needed.
func (p *puller) ask(ctx context.Context) error {
	if len(p.open) > 1 || len(p.open) == 1 && (p.big || p.open[0].left > pullMessages/2) {
		return nil
	}
	body := struct {
		Batch     int           `json:"batch"`
		MaxBytes  int           `json:"max_bytes,omitempty"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{pullMessages, p.bytes, pullExpires, pullSilence}
	if p.big {
		select {
		case p.slots <- struct{}{}:
			p.held = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		body.Batch, body.MaxBytes = 1, 0
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	p.made++
	r := request{reply: fmt.Sprint(p.inbox, p.made), left: body.Batch}
	p.open = append(p.open, r)
	return p.nc.PublishRequest(p.to, r.reply, data)
}

// came notes a message: it belongs to the oldest request.
func (p *puller) came() {
	p.big = false
	p.release()
	if len(p.open) == 0 {
		return
	}
	if p.open[0].left--; p.open[0].left == 0 {
		p.open = p.open[1:]
	}
}

// answered takes what the server says of a request.
func (p *puller) answered(m *nats.Msg) error {
	status, says := m.Header.Get(subjects.HeaderStatus), m.Header.Get(subjects.HeaderDescription)
	switch {
	case status == "100": // it is there
		return nil
	case status == "408", says == "Batch Completed":
	case says == "Message Size Exceeds MaxBytes":
		p.big = true
	default:
		return fmt.Errorf("a request for commands was answered with %s %s", status, says)
	}
	p.release()
	for i, r := range p.open {
		if r.reply == m.Subject {
			p.open = append(p.open[:i:i], p.open[i+1:]...)
			break
		}
	}
	return nil
}
