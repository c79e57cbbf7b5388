package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/droverhq/drover"
)

// Items is the state of a fan-out, in columns: a byte or a number an item, and
// no object. In JSON each column is text, and ends with its last item that
// differs from the zero value.
type Items struct {
	Total int
	Next  int   // items before it were set off, in order
	Over  int   // items that are over
	Size  int   // bytes of the outputs of all done items, wherever they are
	List  Value // the array that it goes over, where an expression made it; else it is read from where it stands

	Marks    []Mark            // MarkStored for a done item whose output is behind a key
	Attempts []int32           // calls that were made
	Starts   []int64           // of the first attempt, in milliseconds after the start of the node
	Lasts    []int64           // milliseconds from there to its end, and 1; 0: not over
	By       []int32           // index in State.Instances and 1, of the attempt that ended it
	Outputs  []json.RawMessage // that are kept in the record; nil: none of them is
}

// MarkStored is MarkDone of an item whose output is in the values bucket.
const MarkStored Mark = 'D'

// NewItems gives the columns of a fan-out that begins.
func newItems(total int) *Items {
	return &Items{
		Total: total, Marks: make([]Mark, total), Attempts: make([]int32, total),
		Starts: make([]int64, total), Lasts: make([]int64, total), By: make([]int32, total),
	}
}

func (it *Items) setOutput(i int, out json.RawMessage) {
	if it.Outputs == nil {
		it.Outputs = make([]json.RawMessage, it.Total)
	}
	it.Outputs[i] = out
}

// output gives the output of a done item that is kept in the record.
func (it *Items) output(i int) json.RawMessage {
	if it.Outputs == nil {
		return nil
	}
	return it.Outputs[i]
}

// MarshalJSON gives the columns as text.
func (it *Items) MarshalJSON() ([]byte, error) { return appendItems(nil, it), nil }

func appendItems(b []byte, it *Items) []byte {
	b = append(b, `{"n":`...)
	b = strconv.AppendInt(b, int64(it.Total), 10)
	b = appendIntField(b, "x", int64(it.Next))
	b = appendIntField(b, "c", int64(it.Over))
	b = appendIntField(b, "s", int64(it.Size))
	if !it.List.zero() {
		b = appendValue(append(b, `,"l":`...), it.List)
	}
	b = append(b, `,"m":"`...)
	for _, m := range it.Marks[:used(it.Marks)] {
		if m == MarkPending {
			m = '.'
		}
		b = append(b, byte(m))
	}
	b = appendColumn(append(b, `","a":"`...), it.Attempts)
	b = append(b, `","b":"`...)
	last := int64(0)
	for _, start := range it.Starts[:it.Next] {
		b = appendVLQ(b, uint64(start-last))
		last = start
	}
	b = appendColumn(append(b, `","d":"`...), it.Lasts)
	b = appendColumn(append(b, `","i":"`...), it.By)
	b = append(b, '"')
	return append(appendOutputs(b, it.Outputs), '}')
}

func appendOutputs(b []byte, outputs []json.RawMessage) []byte {
	first := true
	for i, out := range outputs {
		if out == nil {
			continue
		}
		if first {
			b = append(b, `,"o":{"`...)
		} else {
			b = append(b, `,"`...)
		}
		first = false
		b = append(strconv.AppendInt(b, int64(i), 10), `":`...)
		b = append(b, out...)
	}
	if !first {
		b = append(b, '}')
	}
	return b
}

// used is the length of a column up to its last item that is not zero.
func used[T Mark | int32 | int64](column []T) int {
	n := len(column)
	for n > 0 && column[n-1] == 0 {
		n--
	}
	return n
}

func appendColumn[T int32 | int64](b []byte, column []T) []byte {
	for _, v := range column[:used(column)] {
		b = appendVLQ(b, uint64(v))
	}
	return b
}

// vlq is the alphabet of numbers: five bits a character, the lowest first. The
// second half of it says that more follows.
const vlq = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

func appendVLQ(b []byte, v uint64) []byte {
	for v > 31 {
		b = append(b, vlq[32+v&31])
		v >>= 5
	}
	return append(b, vlq[v])
}

// vlqDigit gives the place of each character in vlq, or 64.
func vlqDigit(c byte) uint64 {
	switch {
	case 'A' <= c && c <= 'Z':
		return uint64(c - 'A')
	case 'a' <= c && c <= 'z':
		return uint64(c-'a') + 26
	case '0' <= c && c <= '9':
		return uint64(c-'0') + 52
	case c == '-':
		return 62
	case c == '_':
		return 63
	}
	return 64
}

// readColumn reads numbers into column, which must have room for them.
func readColumn[T int32 | int64](column []T, text string) error {
	n, v, shift := 0, uint64(0), uint(0)
	for i := range len(text) {
		d := vlqDigit(text[i])
		if d == 64 || shift > 55 || n == len(column) {
			return fmt.Errorf("a column of %d items is broken at byte %d", len(column), i)
		}
		v |= d & 31 << shift
		if shift += 5; d > 31 {
			continue
		}
		column[n] = T(v)
		if column[n] < 0 || uint64(column[n]) != v {
			return fmt.Errorf("item %d of a column is out of range", n)
		}
		n, v, shift = n+1, 0, 0
	}
	if shift != 0 {
		return errors.New("a column ends within a number")
	}
	return nil
}

// UnmarshalJSON reads the columns.
func (it *Items) UnmarshalJSON(data []byte) error {
	var w struct {
		N, X, C, S    int
		L             Value
		M, A, B, D, I string
		O             map[string]json.RawMessage
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	if w.N < 0 || w.N > drover.MaxFanout || w.X < 0 || w.X > w.N || len(w.M) > w.N {
		return fmt.Errorf("a fan-out of %d items, %d set off and %d marks cannot be", w.N, w.X, len(w.M))
	}
	n := newItems(w.N)
	n.Next, n.Over, n.List = w.X, w.C, w.L
	n.Size = w.S
	for i := range len(w.M) {
		if w.M[i] != '.' {
			n.Marks[i] = Mark(w.M[i])
		}
	}
	err := errors.Join(readColumn(n.Attempts, w.A), readColumn(n.Starts[:n.Next], w.B),
		readColumn(n.Lasts, w.D), readColumn(n.By, w.I))
	for i := 1; i < n.Next; i++ {
		n.Starts[i] += n.Starts[i-1]
	}
	for key, out := range w.O {
		i, bad := strconv.Atoi(key)
		if bad != nil || i < 0 || i >= n.Total {
			return fmt.Errorf("a fan-out of %d items has no item %q", n.Total, key)
		}
		n.setOutput(i, out)
	}
	*it = *n
	return err
}
