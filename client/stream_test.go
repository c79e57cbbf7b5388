package client_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
)

// tell stores chunks of stream log of run1, and after the last of them its end,
// where that is wanted.
func (f *fleet) tell(first, last int, end bool) {
	f.t.Helper()
	js, err := jetstream.New(f.nc)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := first; i <= last || end && i == last+1; i++ {
		m := nats.NewMsg(f.names.Stream("run1", "log"))
		m.Header.Set(subjects.HeaderChunk, strconv.Itoa(i))
		if i > last {
			m.Header.Set(subjects.HeaderEnd, "1")
		} else {
			m.Header.Set(subjects.HeaderType, "text")
			m.Data = fmt.Append(nil, "chunk ", i)
		}
		if _, err := js.PublishMsg(f.t.Context(), m); err != nil {
			f.t.Fatal(err)
		}
	}
}

func streamed(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t).work()
	js, err := jetstream.New(f.nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := topology.Ensure(t.Context(), js, f.names, topology.Settings{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	f.answer("status", run(drover.StatusRunning, 1))
	return f
}

// read is one reader: each chunk as it comes, and then how it ended.
func (f *fleet) read(ctx context.Context, c *client.Client) (chunks <-chan drover.Chunk, ended <-chan error) {
	got, over := make(chan drover.Chunk, 10_000), make(chan error, 1)
	go func() {
		for chunk, err := range c.Stream(ctx, "run1", "log") {
			if err != nil {
				over <- err
				return
			}
			got <- chunk
		}
		over <- nil
	}()
	return got, over
}

func wantChunks(t *testing.T, chunks <-chan drover.Chunk, first, last int) {
	t.Helper()
	for i := first; i <= last; i++ {
		c := await(t, chunks, fmt.Sprint("chunk ", i))
		if c.Number != i || c.Type != drover.ChunkText || string(c.Data) != fmt.Sprint("chunk ", i) || c.At.IsZero() {
			t.Fatalf("chunk %d is %+v", i, c)
		}
	}
}

func TestPrograms13ReadersGetAllFromTheStartAndWhatComes(t *testing.T) {
	f := streamed(t)
	c := f.client(client.Options{})
	early, earlyEnded := f.read(t.Context(), c)
	f.tell(1, 3, false)
	wantChunks(t, early, 1, 3)
	f.tell(4, 700, false) // more than one read gives
	late, lateEnded := f.read(t.Context(), c)
	wantChunks(t, late, 1, 700)
	f.tell(701, 705, true)
	wantChunks(t, early, 4, 705)
	wantChunks(t, late, 701, 705)
	whole, wholeEnded := f.read(t.Context(), c) // when all is over
	wantChunks(t, whole, 1, 705)
	for _, ended := range []<-chan error{earlyEnded, lateEnded, wholeEnded} {
		if err := await(t, ended, "the end of the stream"); err != nil {
			t.Error(err)
		}
	}
}

func TestPrograms13ReadersEndWithTheRun(t *testing.T) {
	f := streamed(t)
	c := f.client(client.Options{})
	f.tell(1, 2, false)
	chunks, ended := f.read(t.Context(), c)
	wantChunks(t, chunks, 1, 2)
	f.awaitHeard("status")
	f.tell(3, 3, false) // never closed
	f.answer("status", run(drover.StatusFailed, 2))
	f.publish(f.names.Done("", "run1"), drover.Outcome{RunID: "run1", Status: drover.StatusFailed})
	wantChunks(t, chunks, 3, 3)
	if err := await(t, ended, "the end"); err != nil {
		t.Error(err)
	}
	chunks, ended = f.read(t.Context(), c) // the run was over before
	wantChunks(t, chunks, 1, 3)
	if err := await(t, ended, "the end"); err != nil {
		t.Error(err)
	}
	for range c.Stream(t.Context(), "run1", "other") { // which nobody wrote
		t.Error("there is a chunk")
	}
	f.answer("status", drover.Errorf(drover.CodeNotFound, "no such run"))
	for _, err := range c.Stream(t.Context(), "run1", "other") {
		if !errors.Is(err, drover.CodeNotFound) {
			t.Error(err)
		}
	}
	for _, err := range c.Stream(t.Context(), "run1", "a.b") {
		if !errors.Is(err, drover.CodeInvalidID) {
			t.Error(err)
		}
	}
}

func TestPrograms13ReadersGoOnAfterALostConnection(t *testing.T) {
	f := streamed(t)
	chunks, ended := f.read(t.Context(), f.client(client.Options{}))
	f.tell(1, 2, false)
	wantChunks(t, chunks, 1, 2)
	f.srv.Restart()
	f.tell(3, 4, true)
	wantChunks(t, chunks, 3, 4)
	if err := await(t, ended, "the end"); err != nil {
		t.Error(err)
	}
}

func TestPrograms13ReadersMayLeave(t *testing.T) {
	f := streamed(t)
	f.tell(1, 2, false)
	c := f.client(client.Options{})
	for chunk, err := range c.Stream(t.Context(), "run1", "log") {
		if err != nil || chunk.Number != 1 {
			t.Fatal(chunk, err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	chunks, ended := f.read(ctx, c)
	wantChunks(t, chunks, 1, 2)
	cancel()
	if err := await(t, ended, "the end"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestPrograms13ForeignMessagesAreNoChunks(t *testing.T) {
	f := streamed(t)
	f.tell(1, 1, false)
	f.tell(3, 3, false)
	chunks, ended := f.read(t.Context(), f.client(client.Options{}))
	wantChunks(t, chunks, 1, 1)
	if err := await(t, ended, "the end"); !errors.Is(err, drover.CodeInternal) || !strings.Contains(err.Error(), `has the number "3"`) {
		t.Error(err)
	}
}

func TestJournalComesInParts(t *testing.T) {
	f := newFleet(t)
	entries := func(first, last int) (list []drover.Entry) {
		for n := first; n <= last; n++ {
			list = append(list, drover.Entry{Number: n, Kind: drover.EntryStep, ID: fmt.Sprint("s", n)})
		}
		return list
	}
	lost := true // the second part, once
	_, err := f.nc.Subscribe(f.names.API("journal"), func(m *nats.Msg) {
		if string(m.Data) != `{"run_id":"run1","from":2}` {
			t.Errorf("asked %s", m.Data)
		}
		send := func(first, last int, more bool) {
			reply := nats.NewMsg(m.Reply)
			if more {
				reply.Header.Set(subjects.HeaderMore, "1")
			}
			part := drover.JournalReply{RunID: "run1", Entries: 9, Records: 9, Journal: entries(first, last)}
			if first == 2 {
				part.Input = []byte("1")
			}
			reply.Data = []byte(text(part))
			_ = f.nc.PublishMsg(reply)
		}
		send(2, 4, true)
		if !lost {
			send(5, 7, true)
		}
		lost = false
		send(8, 9, false)
	})
	if err == nil {
		err = f.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.client(client.Options{}).Journal(t.Context(), "run1", 2)
	if err != nil || text(got.Journal) != text(entries(2, 9)) || string(got.Input) != "1" {
		t.Errorf("%s, %v", text(got), err)
	}
}
