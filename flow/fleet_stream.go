package flow

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

// chunkTry is how long one try to store chunks may take.
const chunkTry = 5 * time.Second

// StreamTail asks the leader, until there is an answer.
func (f *fleet) StreamTail(ctx context.Context, run drover.RunID, id string) (StreamTail, error) {
	for {
		tail, err := f.streamTail(ctx, f.names.Stream(run, id))
		if err == nil || drover.CodeOf(err, drover.CodeUnavailable) != drover.CodeUnavailable {
			return tail, err
		}
		if err := pause(ctx); err != nil {
			return StreamTail{}, err
		}
	}
}

// streamTail is one try.
func (f *fleet) streamTail(ctx context.Context, subject string) (tail StreamTail, err error) {
	ctx, cancel := context.WithTimeout(ctx, chunkTry)
	defer cancel()
	ask := append(rawjson.AppendString([]byte(`{"last_by_subj":`), subject), '}')
	m, err := f.nc.RequestWithContext(ctx, subjects.ReadLatest(f.names.Streams()), ask)
	if err != nil {
		return tail, err
	}
	var a struct {
		Message *struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &a); {
	case err != nil:
		return tail, err
	case a.Error != nil && a.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return tail, nil
	case a.Error != nil:
		return tail, chunkError(a.Error)
	case a.Message == nil:
		return tail, drover.Errorf(drover.CodeUnavailable, "the answer to a read of %q is empty", subject)
	}
	header, err := nats.DecodeHeadersMsg(a.Message.Header)
	if err != nil {
		return tail, drover.Errorf(drover.CodeConflict, "the last message on %q is no chunk of a stream: %v", subject, err)
	}
	tail = StreamTail{Sequence: a.Message.Sequence, Message: readChunk(header)}
	if tail.Message.Number < 1 {
		return tail, drover.Errorf(drover.CodeConflict, "the last message on %q is no chunk of a stream: it has no number", subject)
	}
	return tail, nil
}

// StreamAppend stores messages: more than one as a batch, all of which the server
// takes or none. It does so until there is an answer.
func (f *fleet) StreamAppend(ctx context.Context, run drover.RunID, id string, after uint64, messages []StreamMessage) (uint64, error) {
	subject := f.names.Stream(run, id)
	for {
		sequence, err := f.streamAppend(ctx, subject, after, messages)
		if err == nil || drover.CodeOf(err, drover.CodeUnavailable) != drover.CodeUnavailable {
			return sequence, err
		}
		if err := pause(ctx); err != nil {
			return 0, err
		}
	}
}

// streamAppend is one try.
func (f *fleet) streamAppend(ctx context.Context, subject string, after uint64, messages []StreamMessage) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, chunkTry)
	defer cancel()
	batch, last := rand.Text(), len(messages)-1
	for i := range messages {
		m := &nats.Msg{Subject: subject, Header: chunkHeader(&messages[i]), Data: messages[i].Data}
		if i == 0 {
			m.Header.Set(subjects.HeaderExpectedSubject, strconv.FormatUint(after, 10))
		}
		if last > 0 {
			m.Header.Set(subjects.HeaderBatch, batch)
			m.Header.Set(subjects.HeaderBatchSequence, strconv.Itoa(i+1))
		}
		if i < last {
			if err := f.nc.PublishMsg(m); err != nil {
				return 0, sendError(subject, m, err)
			}
			continue
		}
		if last > 0 {
			m.Header.Set(subjects.HeaderBatchCommit, "1")
		}
		ack, err := f.nc.RequestMsgWithContext(ctx, m)
		if err != nil {
			return 0, sendError(subject, m, err)
		}
		return chunkAck(ack)
	}
	return after, nil
}

func sendError(subject string, m *nats.Msg, err error) error {
	if errors.Is(err, nats.ErrMaxPayload) {
		return permanent(drover.CodeTooLarge, "a chunk on %q has %d bytes, more than the server takes: write it in parts", subject, len(m.Data))
	}
	return err
}

func chunkAck(m *nats.Msg) (uint64, error) {
	var a struct {
		Sequence uint64              `json:"seq"`
		Error    *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return 0, err
	}
	if a.Error != nil {
		return 0, chunkError(a.Error)
	}
	return a.Sequence, nil
}

// chunkError makes an error of one of the server. What it refuses now, as its disk
// is full or too much comes at once, it may take later.
func chunkError(e *jetstream.APIError) error {
	if e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return drover.Errorf(drover.CodeConflict, "%v", e)
	}
	return drover.Errorf(drover.CodeUnavailable, "%v", e)
}

// chunkHeader tells what a message of a stream is, and who wrote it.
func chunkHeader(m *StreamMessage) nats.Header {
	h := nats.Header{}
	number := func(key string, n int) { h.Set(key, strconv.Itoa(n)) }
	number(subjects.HeaderChunk, m.Number)
	if m.End {
		h.Set(subjects.HeaderEnd, "1")
	} else {
		h.Set(subjects.HeaderType, string(m.Type))
	}
	number(subjects.HeaderDrive, m.Writer.Drive)
	number(subjects.HeaderFence, m.Writer.Fence)
	if m.Writer.Generation > 0 {
		number(subjects.HeaderGeneration, m.Writer.Generation)
		number(subjects.HeaderBase, m.Writer.Base)
	}
	return h
}

// readChunk reads such headers.
func readChunk(h nats.Header) StreamMessage {
	number := func(key string) int {
		n, _ := strconv.Atoi(h.Get(key))
		return n
	}
	return StreamMessage{
		Number: number(subjects.HeaderChunk), Type: drover.ChunkType(h.Get(subjects.HeaderType)), End: h.Get(subjects.HeaderEnd) != "",
		Writer: StreamWriter{
			Drive: number(subjects.HeaderDrive), Fence: number(subjects.HeaderFence),
			Generation: number(subjects.HeaderGeneration), Base: number(subjects.HeaderBase),
		},
	}
}
