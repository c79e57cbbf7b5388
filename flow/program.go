package flow

import (
	"encoding/json"
	"strings"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
)

// Def is a program: a name and a body. [Program] makes one.
type Def struct {
	name string
	body func(run *Run, input json.RawMessage) (json.RawMessage, error)
}

// Program makes a program whose input and output are JSON of the types I and O.
// Its name is 1 to 64 letters, digits, - or _. An input that is no I fails the
// run for good.
//
// The error of a body fails its run. A *drover.Error keeps its code; any other
// has the code failed.
func Program[I, O any](name string, body func(run *Run, input I) (O, error)) *Def {
	return &Def{name: name, body: func(run *Run, raw json.RawMessage) (json.RawMessage, error) {
		in, err := decode[I](raw)
		if err != nil {
			return nil, permanent(drover.CodeInvalidInput, "program %s cannot read its input: %v: make the input fit the type of the body", name, err)
		}
		out, err := body(run, in)
		if err != nil {
			return nil, err
		}
		data, err := encode(out)
		if err != nil {
			return nil, permanent(drover.CodeFailed, "program %s gave a result that cannot be kept: %v", name, err)
		}
		return data, nil
	}}
}

// Name is the name of the program.
func (d *Def) Name() string { return d.name }

// check refuses programs that no run could be of.
func (d *Def) check() error {
	if d == nil || d.body == nil {
		return drover.Errorf(drover.CodeInvalidRequest, "a program has no body: make it with Program")
	}
	return checkToken("program name", d.name)
}

func checkToken(what, s string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	if s == "" || len(s) > 64 || strings.Trim(s, letters) != "" {
		return drover.Errorf(drover.CodeInvalidID, "%s %q must be 1 to 64 letters, digits, - or _", what, s)
	}
	return nil
}

// encode makes JSON that a journal takes.
func encode(v any) (json.RawMessage, error) {
	data, err := rawjson.Encode(v)
	if err != nil {
		return nil, err
	}
	if len(data) > drover.MaxValue {
		return nil, permanent(drover.CodeTooLarge, "it has %d bytes, over the limit of %d: store it elsewhere and give a reference", len(data), drover.MaxValue)
	}
	return data, nil
}

// decode reads JSON. Nothing is null.
func decode[T any](raw json.RawMessage) (v T, err error) {
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	err = json.Unmarshal(raw, &v)
	return v, err
}
