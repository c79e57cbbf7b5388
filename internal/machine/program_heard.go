package machine

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// MetaHeard is which messages of a child have come, by their numbers. In a record it
// is one text, as there may be very many.
type MetaHeard struct {
	Child string // digest of its call
	Until int    // all up to this one have
	Above uint64 // others that have: bit i stands for Until+1+i
}

// What is kept of children. A message comes again within seconds of a crash, once
// its sender has an owner again, and rarely overtakes another. Each child is kept for
// heardFor, and at most twice that, of the time in which the run is told things; that
// nobody was there to tell it does not count. So a child that is quiet for long
// costs nothing, and only what comes again even later would count twice.
const (
	heardFor    = 10 * time.Minute
	maxHeard    = 1000 // as many as can be open at a time
	heardAhead  = 64   // numbers from the lowest that is missing on
	childDigits = 10
	numberBase  = 36
)

// hear takes the number of a message of a child, and reports whether it is new.
func (m *Meta) hear(call drover.CallID, number int) bool {
	sum := sha256.Sum256([]byte(call.String()))
	child := base64.RawURLEncoding.EncodeToString(sum[:])[:childDigits]
	list, at := &m.Heard, indexHeard(m.Heard, child)
	if at < 0 {
		list, at = &m.Before, indexHeard(m.Before, child)
	}
	heard := MetaHeard{Child: child}
	if at >= 0 {
		heard = (*list)[at]
	}
	if !heard.take(number) {
		return false
	}
	if at >= 0 {
		*list = slices.Delete(*list, at, at+1)
	}
	m.Heard = append(m.Heard, heard)
	for len(m.Before)+len(m.Heard) > maxHeard {
		if len(m.Before) > 0 {
			m.Before = m.Before[1:]
		} else {
			m.Heard = m.Heard[1:]
		}
	}
	return true
}

func indexHeard(list []MetaHeard, child string) int {
	return slices.IndexFunc(list, func(h MetaHeard) bool { return h.Child == child })
}

// forgetHeard lets go of children that have said nothing for long, and of all once
// the run is over.
func (m *Meta) forgetHeard(now Millis, over bool) {
	switch {
	case over:
		m.Before, m.Heard, m.Turn = nil, nil, 0
	case len(m.Before)+len(m.Heard) == 0:
		m.Turn = 0
	case m.Turn == 0:
		m.Turn = now
	case now.Time().Sub(m.Turn.Time()) >= heardFor:
		m.Before, m.Heard, m.Turn = m.Heard, nil, now
	}
}

// take notes a number, and reports whether it is new. Where one is too far ahead the
// lowest of those that are missing are given up.
func (h *MetaHeard) take(number int) bool {
	if number <= h.Until {
		return false
	}
	h.skip(max(0, number-h.Until-heardAhead))
	bit := uint64(1) << (number - h.Until - 1)
	if h.Above&bit != 0 {
		return false
	}
	h.Above |= bit
	h.skip(bits.TrailingZeros64(^h.Above))
	return true
}

func (h *MetaHeard) skip(n int) {
	h.Until += n
	h.Above >>= n
}

// MarshalText spells it for a record.
func (h MetaHeard) MarshalText() ([]byte, error) {
	text := strconv.AppendInt([]byte(h.Child), int64(h.Until), numberBase)
	if h.Above != 0 {
		text = strconv.AppendUint(append(text, '.'), h.Above, numberBase)
	}
	return text, nil
}

// UnmarshalText reads what MarshalText wrote.
func (h *MetaHeard) UnmarshalText(text []byte) error {
	if len(text) <= childDigits {
		return fmt.Errorf("what was heard of a child is cut: %q", text)
	}
	until, above, more := strings.Cut(string(text[childDigits:]), ".")
	n, err := strconv.ParseInt(until, numberBase, 0)
	*h = MetaHeard{Child: string(text[:childDigits]), Until: int(n)}
	if more && err == nil {
		h.Above, err = strconv.ParseUint(above, numberBase, 64)
	}
	if err != nil || n < 0 {
		return fmt.Errorf("what was heard of a child is no numbers: %q", text)
	}
	return nil
}
