package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/expression"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

// maxNesting is how deep arrays and objects of a value may be nested. It keeps
// every record, and all that is made of values, within what JSON readers take.
const maxNesting = 1000

// value makes the value of a source for a node, or for one item of its fan-out.
// It is null for no source. Its error is errMissing or a *drover.Error.
func (f *fold) value(src *source, n *node, item int) (Value, error) {
	if src == nil {
		return Value{}, nil
	}
	if src.fixed != nil {
		return *src.fixed, nil
	}
	if src.formula != nil {
		raw, err := f.formula(src.formula, n, item)
		return Value{JSON: raw}, err
	}
	if !src.list {
		if len(src.refs) == 0 {
			return Value{}, nil
		}
		return f.ref(src.refs[0], n, item)
	}
	return f.object(src.refs, n, item)
}

// object makes an object of several references, keyed by node id. What cannot fit is
// not loaded.
func (f *fold) object(refs []drover.Ref, n *node, item int) (Value, error) {
	var missing error
	size := 0
	out := []byte{'{'}
	for i, ref := range refs {
		v, err := f.ref(ref, n, item)
		var raw json.RawMessage
		if size += max(v.Size, len(v.JSON)); size > drover.MaxValue {
			return Value{}, drover.Errorf(drover.CodeTooLarge, "its %d parts have more than the %d bytes that a value may have: give references to what is big", len(refs), drover.MaxValue)
		}
		if err == nil {
			raw, err = f.load(v)
		}
		if errors.Is(err, errMissing) {
			missing = err // of the others as well, so that all are loaded at once
			continue
		}
		if err != nil {
			return Value{}, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		key := string(ref.Node)
		if ref.Kind != drover.RefNode {
			key = ref.String()
		}
		out = append(appendText(out, key), ':')
		out = append(out, raw...)
	}
	return Value{JSON: append(out, '}')}, missing
}

// ref reads a reference. A whole value that is behind a key is not loaded.
func (f *fold) ref(ref drover.Ref, n *node, item int) (Value, error) {
	var v Value
	var err error
	switch ref.Kind {
	case drover.RefInput:
		v = f.s.Input
	case drover.RefItem:
		v.JSON, err = f.item(n, item)
	case drover.RefNode:
		v, err = f.output(f.p.index[ref.Node])
	}
	if err != nil || len(ref.Path) == 0 {
		return v, err
	}
	raw, err := f.load(v)
	if err != nil || isNull(raw) {
		return Value{}, err
	}
	path := ref.Path
	if ref.Kind == drover.RefNode && (path[0] == "result" || path[0] == "output") {
		if _, err := step(raw, path[0]); err != nil {
			path = path[1:]
		}
	}
	for i, key := range path {
		if raw, err = step(raw, key); err != nil {
			at := ref
			at.Path = ref.Path[:len(ref.Path)-len(path)+i]
			return Value{}, drover.Errorf(drover.CodeExpression, "%s cannot be read: %s %s", ref, at, err)
		}
	}
	return Value{JSON: raw}, nil
}

// step goes one key down. Its error ends a sentence that begins with the place.
func step(raw json.RawMessage, key string) (json.RawMessage, error) {
	switch kind(raw) {
	case "an object":
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, err
		}
		if v, ok := object[key]; ok {
			return v, nil
		}
		if len(object) == 0 {
			return nil, fmt.Errorf("has no key %q: it is {}", key)
		}
		return nil, fmt.Errorf("has no key %q: its keys are %s", key, names(slices.Sorted(maps.Keys(object))))
	case "an array":
		var array []json.RawMessage
		if err := json.Unmarshal(raw, &array); err != nil {
			return nil, err
		}
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(array) {
			return array[i], nil
		}
		return nil, fmt.Errorf("has no element %q: it is an array of %d", key, len(array))
	}
	return nil, fmt.Errorf("has no key %q: it is %s", key, kind(raw))
}

// kind names the type of a JSON value.
func kind(raw json.RawMessage) string {
	switch {
	case isNull(raw):
		return "null"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "an array"
	case raw[0] == '"':
		return "a string"
	case raw[0] == 't', raw[0] == 'f':
		return "a boolean"
	}
	return "a number"
}

// names lists names for people, as many as can be read.
func names(list []string) string {
	const most = 20
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// output gives the output of a node that is over, null unless it is done. The
// output of a fan-out is made when it is first read.
func (f *fold) output(i int) (Value, error) {
	ns := &f.s.Nodes[i]
	if ns.Status != MarkDone {
		return Value{}, nil
	}
	if ns.Items == nil || !ns.Output.zero() {
		return ns.Output, nil
	}
	raw, err := f.gather(i)
	if err != nil {
		return Value{}, err
	}
	if f.frozen {
		return Value{JSON: raw}, nil
	}
	id := f.callID(f.p.nodes[i], drover.NoItem, false, 1)
	ns.Output = f.keep(raw, subjects.OutputKey(id))
	f.changed = true
	return ns.Output, nil
}

// gather makes the array of the outputs of a fan-out. It asks for all that it has to
// load at once, so it asks for nothing where that cannot fit: a worker has to hold it.
func (f *fold) gather(i int) (json.RawMessage, error) {
	n, it := f.p.nodes[i], f.s.Nodes[i].Items
	tooLarge := func() error {
		return drover.Errorf(drover.CodeTooLarge,
			"the outputs of all %d items of node %s are more than %d bytes: let them give references to what is big", it.Total, n.id, drover.MaxValue)
	}
	if it.Size > drover.MaxValue {
		return nil, tooLarge()
	}
	out := []byte{'['}
	missing := false
	for k := range it.Total {
		raw, err := f.load(f.itemOutput(i, k))
		if err != nil {
			missing = true
			continue
		}
		if k > 0 {
			out = append(out, ',')
		}
		if out = append(out, raw...); len(out) > drover.MaxValue {
			return nil, tooLarge()
		}
	}
	if missing {
		return nil, errMissing
	}
	return append(out, ']'), nil
}

// itemOutput is the output of one item, null unless it is done.
func (f *fold) itemOutput(i, k int) Value {
	it := f.s.Nodes[i].Items
	if it.Marks[k] == MarkStored {
		return Value{Key: subjects.OutputKey(f.callID(f.p.nodes[i], k, false, int(it.Attempts[k])))}
	}
	return Value{JSON: it.output(k)}
}

// scope is what expressions see, for one list of nodes that they read.
type scope struct {
	reads []string
	env   expression.Env
}

// formula evaluates an expression or a template.
func (f *fold) formula(x *formula, n *node, item int) (json.RawMessage, error) {
	env, err := f.env(x, n, item)
	if err != nil {
		return nil, err
	}
	var raw json.RawMessage
	if x.template != nil {
		raw, err = x.template.Eval(*env)
	} else {
		var v any
		if v, err = x.expr.Eval(*env); err == nil {
			raw, err = rawjson.Encode(v)
		}
	}
	if err != nil {
		return nil, drover.Errorf(drover.CodeExpression, "%s", err)
	}
	return raw, nil
}

// env gathers what a formula reads.
func (f *fold) env(x *formula, n *node, item int) (*expression.Env, error) {
	sc := &f.scope
	if sc.env.Nodes == nil || !slices.Equal(sc.reads, x.reads) {
		if err := f.enter(x.reads); err != nil {
			return nil, err
		}
	}
	sc.env.Item, sc.env.Index = nil, 0
	if item != drover.NoItem {
		raw, err := f.item(n, item)
		if err != nil {
			return nil, err
		}
		if sc.env.Item, err = expression.Decode(raw); err != nil {
			return nil, drover.Errorf(drover.CodeExpression, "item %d cannot be read: %s", item, err)
		}
		sc.env.Index = item
	}
	return &sc.env, nil
}

// enter sets the scope to one list of nodes.
func (f *fold) enter(reads []string) error {
	var missing error
	env := expression.Env{Nodes: make(map[string]expression.Node, len(reads)), Run: f.runScope()}
	if !f.d.hasInput {
		in, err := f.decode(f.s.Input)
		if err != nil {
			missing = err
		} else {
			f.d.input, f.d.hasInput = in, true
		}
	}
	env.Input = f.d.input
	for _, id := range reads {
		node, err := f.nodeScope(f.p.index[drover.NodeID(id)])
		if errors.Is(err, errMissing) {
			missing = err
			continue
		}
		if err != nil {
			return err
		}
		env.Nodes[id] = node
	}
	if missing != nil {
		return missing
	}
	f.scope = scope{reads: reads, env: env}
	return nil
}

func (f *fold) runScope() expression.Run {
	return expression.Run{
		ID: string(f.s.Run), Workflow: string(f.s.Workflow), Tags: f.s.Tags,
		StartedAt: f.s.Created.Time().Format("2006-01-02T15:04:05.000Z07:00"),
	}
}

func (f *fold) nodeScope(i int) (expression.Node, error) {
	ns := &f.s.Nodes[i]
	x := expression.Node{Status: string(ns.Status.status())}
	if ns.Error != nil {
		x.Error = map[string]any{"code": string(ns.Error.Code), "message": ns.Error.Message}
	}
	if ns.Status != MarkDone {
		return x, nil
	}
	if v, ok := f.d.values[i]; ok {
		x.Output = v
		return x, nil
	}
	out, err := f.output(i)
	if err != nil {
		return x, err
	}
	x.Output, err = f.decode(out)
	if err == nil {
		f.d.values[i] = x.Output
		f.d.cached += max(out.Size, len(out.JSON))
	}
	return x, err
}

func (f *fold) decode(v Value) (any, error) {
	raw, err := f.load(v)
	if err != nil {
		return nil, err
	}
	x, err := expression.Decode(raw)
	if err != nil {
		return nil, drover.Errorf(drover.CodeExpression, "a value cannot be read: %s", err)
	}
	return x, nil
}

// fit says why a value may not become an input or an output of a node, or nil.
func fit(raw json.RawMessage, what string, n *node) *drover.Error {
	if len(raw) > drover.MaxValue {
		return &drover.Error{
			Code: drover.CodeTooLarge, Permanent: true,
			Message: fmt.Sprintf("the %s of node %s has %d bytes, more than the %d that a value may have: pass a reference to it", what, n.id, len(raw), drover.MaxValue),
		}
	}
	if nested(raw) > maxNesting {
		return &drover.Error{
			Code: drover.CodeTooLarge, Permanent: true,
			Message: fmt.Sprintf("the %s of node %s is nested deeper than %d levels: make it flatter", what, n.id, maxNesting),
		}
	}
	return nil
}

// nested is how deep a JSON value is nested, as far as it may be too deep.
func nested(raw []byte) int {
	if bytes.Count(raw, []byte{'['})+bytes.Count(raw, []byte{'{'}) <= maxNesting {
		return 0
	}
	depth, most, text := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[', c == '{':
			depth++
			most = max(most, depth)
		case c == ']', c == '}':
			depth--
		}
	}
	return most
}
