package drover

import "encoding/json"

// The limits of the metadata of a run.
const (
	MaxMetaKeys = 64       // keys
	MaxMetaKey  = 128      // bytes of one
	MaxMeta     = 16 << 10 // bytes of all keys and values
)

// MetaTarget says whose metadata a program changes.
type MetaTarget string

// The targets. For a run without a parent all are the run itself.
const (
	MetaSelf   MetaTarget = "self"
	MetaParent MetaTarget = "parent"
	MetaRoot   MetaTarget = "root" // the parent's parent, and so on
)

// MetaChange is how one key of metadata changes.
type MetaChange string

// The changes. Those that do not fit what is there change nothing: a note of the
// run says so.
const (
	MetaSet       MetaChange = "set"
	MetaIncrement MetaChange = "increment" // by a number; nothing counts as 0
	MetaAppend    MetaChange = "append"    // one value to an array; nothing counts as []
	MetaRemove    MetaChange = "remove"
)

// MetaOp is one change of metadata.
type MetaOp struct {
	Op    MetaChange      `json:"op"`
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value,omitempty"` // absent: null; increment: 1
}

// MetaMessage is what a run sends to its parent: changes of the parent's metadata,
// or of that of the root.
type MetaMessage struct {
	Call   CallID   `json:"call"`  // of the parent, which started the run
	Token  string   `json:"token"` // that came with it
	Number int      `json:"n"`     // from 1: what comes again changes nothing
	Root   bool     `json:"root,omitempty"`
	Ops    []MetaOp `json:"ops"`
}
