package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/droverhq/drover"
)

// store keeps outcomes in a file, a line for each. What is told at least once
// is kept exactly once: the delivery id says what is there already.
type store struct {
	refuse bool // want nothing
	left   int  // how many more are wanted, where enough is called after the last
	enough func()

	mu   sync.Mutex
	file *os.File
	size int64 // up to where the file is whole lines that are on the disk
	seen map[drover.DeliveryID]bool
}

// openStore reads what is kept already. A line that a crash cut off is none: it
// had no receipt, and the outcome comes again.
func openStore(name string) (*store, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	s := &store{file: file, seen: map[drover.DeliveryID]bool{}, enough: func() {}}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	s.size = int64(len(data))
	for line := range bytes.Lines(data) {
		var o drover.Outcome
		if err := json.Unmarshal(line, &o); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s.seen[o.DeliveryID] = true
	}
	return s, file.Truncate(s.size)
}

func (s *store) close() error { return s.file.Close() }

// keep gives a receipt for each outcome: once it is on the disk, or where it was
// there already. One with an error is not kept.
func (s *store) keep(outcomes ...json.RawMessage) []drover.BatchReceipt {
	s.mu.Lock()
	defer s.mu.Unlock()
	receipts, news := make([]drover.BatchReceipt, len(outcomes)), map[drover.DeliveryID]int{}
	var lines bytes.Buffer
	for i, raw := range outcomes {
		var o drover.Outcome
		if err := json.Unmarshal(raw, &o); err != nil || o.DeliveryID == "" {
			receipts[i].Error = drover.Errorf(drover.CodeInvalidInput, "this is no outcome: %.200q", raw)
			continue
		}
		receipts[i] = drover.BatchReceipt{DeliveryID: o.DeliveryID, Receipt: "kept"}
		if _, twice := news[o.DeliveryID]; s.refuse {
			receipts[i] = drover.BatchReceipt{DeliveryID: o.DeliveryID, Error: refusal()}
			fmt.Println("refused", o.DeliveryID)
			s.counted(1)
		} else if s.seen[o.DeliveryID] || twice {
			receipts[i].Receipt = "kept before"
			fmt.Println("again", o.DeliveryID)
		} else {
			news[o.DeliveryID] = i
			_ = json.Compact(&lines, raw) // it is JSON
			lines.WriteByte('\n')
		}
	}
	s.write(lines.Bytes(), news, receipts)
	return receipts
}

// write has lines on the disk, or takes the receipts for them back.
func (s *store) write(lines []byte, news map[drover.DeliveryID]int, receipts []drover.BatchReceipt) {
	if len(news) == 0 {
		return
	}
	_, err := s.file.WriteAt(lines, s.size)
	if err == nil {
		err = s.file.Sync() // one for all of a batch
	}
	for id, i := range news {
		if err != nil {
			receipts[i] = drover.BatchReceipt{DeliveryID: id, Error: drover.Errorf(drover.CodeFailed, "not kept: %v", err)}
			continue
		}
		s.seen[id] = true
		fmt.Println("kept", id)
	}
	if err == nil {
		s.size += int64(len(lines))
		s.counted(len(news))
	}
}

// counted notes that so many outcomes were new.
func (s *store) counted(n int) {
	if s.left > 0 && n > 0 {
		if s.left = max(0, s.left-n); s.left == 0 {
			s.enough()
		}
	}
}

// refusal is an error that says to try never again.
func refusal() *drover.Error {
	e := drover.Errorf(drover.CodeForbidden, "nobody here wants to know")
	e.Permanent = true
	return e
}
