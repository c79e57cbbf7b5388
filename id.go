package drover

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// RunID names a run: 1 to 128 letters, digits, "-" or "_". It is one token of
// a subject and a part of a key, so nothing else is allowed in it.
type RunID string

// NodeID names a node of a definition: 1 to 128 bytes of UTF-8 without
// "#", ".", "/", "*", ">", white space or control characters.
type NodeID string

// FunctionName names a function: tokens of letters, digits, "-" or "_" that
// are joined by dots, 1 to 128 bytes. Names that begin with "_" belong to
// Drover itself.
type FunctionName string

// WorkflowName names a registered definition: letters, digits, "-" or "_",
// 1 to 128 bytes.
type WorkflowName string

// Hash is the content address of a definition: 64 hexadecimal digits, the
// SHA-256 of its canonical JSON.
type Hash string

// DeliveryID identifies one delivery of one outcome, however often it is
// repeated: "<run>:terminal:<index of the subscriber>".
type DeliveryID string

// NoItem is the Item of a call that belongs to no fan-out.
const NoItem = -1

// CallID identifies one attempt of one node, or of one item of its fan-out, or
// of the compensation of either. Its text is
//
//	<run>/<node>@<attempt>
//	<run>/<node>#<item>@<attempt>
//	<run>/<node>#<item>/undo@<attempt>
type CallID struct {
	Run     RunID
	Node    NodeID
	Item    int  // index in the fan-out, or NoItem
	Undo    bool // the compensation of the node, not the node
	Attempt int  // from 1
}

// String gives the text form, which ParseCallID reads back.
func (c CallID) String() string {
	var b strings.Builder
	b.WriteString(string(c.Run))
	b.WriteByte('/')
	b.WriteString(string(c.Node))
	if c.Item != NoItem {
		b.WriteByte('#')
		b.WriteString(strconv.Itoa(c.Item))
	}
	if c.Undo {
		b.WriteString("/undo")
	}
	b.WriteByte('@')
	b.WriteString(strconv.Itoa(c.Attempt))
	return b.String()
}

// Session is the id of the session that a call is: an agent node tells it to its
// function, and runs that the call starts may answer to it. Each attempt has its
// own.
func (c CallID) Session() string {
	s := "wf_" + string(c.Run) + "_" + string(c.Node)
	if c.Item != NoItem {
		s += "#" + strconv.Itoa(c.Item)
	}
	if c.Undo {
		s += "/undo"
	}
	return s + "@r" + strconv.Itoa(c.Attempt)
}

// MarshalText gives the text form.
func (c CallID) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the text form.
func (c *CallID) UnmarshalText(text []byte) error {
	id, err := ParseCallID(string(text))
	if err != nil {
		return err
	}
	*c = id
	return nil
}

// ParseCallID reads the text form of a call id.
func ParseCallID(s string) (CallID, error) {
	bad := func(why string) (CallID, error) {
		return CallID{}, Errorf(CodeInvalidID, "call id %s is not <run>/<node>[#<item>][/undo]@<attempt>: %s", quote(s), why)
	}
	run, rest, ok := strings.Cut(s, "/")
	if !ok {
		return bad("it has no /")
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return bad("it has no @")
	}
	c := CallID{Item: NoItem}
	var err error
	if c.Run, err = ParseRunID(run); err != nil {
		return bad(err.Error())
	}
	if c.Attempt, err = parseIndex(rest[at+1:]); err != nil || c.Attempt < 1 {
		return bad("the attempt is no number from 1")
	}
	rest, c.Undo = strings.CutSuffix(rest[:at], "/undo")
	if node, item, ok := strings.Cut(rest, "#"); ok {
		if c.Item, err = parseIndex(item); err != nil {
			return bad("the item is no number")
		}
		rest = node
	}
	if c.Node, err = ParseNodeID(rest); err != nil {
		return bad(err.Error())
	}
	return c, nil
}

// parseIndex reads a number in the one way that CallID.String writes it, so
// that an id has one text.
func parseIndex(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || strconv.FormatInt(n, 10) != s || n < 0 {
		return 0, fmt.Errorf("%s is no index", quote(s))
	}
	return int(n), nil
}

const maxID = 128

// ParseRunID checks a run id.
func ParseRunID(s string) (RunID, error) {
	if !isToken(s) {
		return "", Errorf(CodeInvalidID, "run id %s must be 1 to %d letters, digits, - or _", quote(s), maxID)
	}
	return RunID(s), nil
}

// ParseNodeID checks a node id.
func ParseNodeID(s string) (NodeID, error) {
	if s == "" || len(s) > maxID || !utf8.ValidString(s) {
		return "", Errorf(CodeInvalidID, "node id %s must be 1 to %d bytes of UTF-8", quote(s), maxID)
	}
	for _, r := range s {
		if strings.ContainsRune("#./*>", r) || unicode.IsSpace(r) || unicode.IsControl(r) {
			return "", Errorf(CodeInvalidID, "node id %s must not contain %s: use letters, digits, - or _", quote(s), quote(string(r)))
		}
	}
	return NodeID(s), nil
}

// ParseFunctionName checks the name of a function.
func ParseFunctionName(s string) (FunctionName, error) {
	if len(s) > maxID || !allTokens(s) {
		return "", Errorf(CodeInvalidID, "function name %s must be 1 to %d letters, digits, - or _, with single dots between", quote(s), maxID)
	}
	return FunctionName(s), nil
}

// ParseWorkflowName checks the name of a registered definition.
func ParseWorkflowName(s string) (WorkflowName, error) {
	if !isToken(s) {
		return "", Errorf(CodeInvalidID, "workflow name %s must be 1 to %d letters, digits, - or _", quote(s), maxID)
	}
	return WorkflowName(s), nil
}

// ParseHash checks the hash of a definition.
func ParseHash(s string) (Hash, error) {
	if len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "" {
		return "", Errorf(CodeInvalidID, "definition hash %s must be 64 lower-case hexadecimal digits", quote(s))
	}
	return Hash(s), nil
}

func allTokens(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if !isToken(part) {
			return false
		}
	}
	return true
}

func isToken(s string) bool {
	if s == "" || len(s) > maxID {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// quote shows a value in an error, cut where it is too long to read.
func quote(s string) string {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:77], "") + "..."
	}
	return strconv.Quote(s)
}

// KeyRunID is the id of the run that a caller starts with an idempotency key.
// The caller is whom the connection vouches for, or "".
func KeyRunID(caller, key string) RunID {
	return derive("k_", caller, key)
}

// ChildRunID is the id of the run that a call of a `run` node starts.
func ChildRunID(call CallID) RunID {
	return derive("c_", call.String())
}

// SuccessorID is the id of the run that takes over the unread deliveries of a
// run that has ended.
func SuccessorID(run RunID) RunID {
	return derive("s_", string(run))
}

// derive makes a run id of texts: 128 bits of their SHA-256. Each text goes in
// with its length, so that no two lists of texts look alike.
func derive(prefix string, texts ...string) RunID {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s", len(t), t)
	}
	return RunID(prefix + hex.EncodeToString(h.Sum(nil)[:16]))
}
