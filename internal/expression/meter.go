package expression

// The bounds of one expression and of one evaluation.
const (
	maxSource = 16 << 10  // bytes of one expression; the parser recurses on it
	maxNodes  = 4_000     // nodes of its tree
	maxWork   = 3_000_000 // elements touched, or sixteen bytes of text, in one evaluation
	maxNested = 5_000     // depth of a value that is walked
)

var (
	errWork = &fault{
		"it takes too much work",
		"loop over less, or do this in a function",
	}
	errNested = &fault{message: "the value is nested too deeply"}
)

// meter counts the work of one evaluation.
type meter struct{ left int }

func newMeter() *meter { return &meter{left: maxWork} }

// charge takes n off what is left. It is asked before the work is done.
func (m *meter) charge(n int) error {
	if n < 0 || n > m.left {
		m.left = 0
		return errWork
	}
	m.left -= n
	return nil
}

// text charges for text of n bytes.
func (m *meter) text(n int) error {
	if n < 0 {
		return m.charge(n)
	}
	return m.charge(1 + n/16)
}
