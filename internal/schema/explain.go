package schema

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

const (
	maxFailures = 5   // that an error tells
	maxText     = 300 // bytes of each
)

// explain makes a sentence of the failures: sorted, as the library goes
// through objects in any order.
func explain(e *jsonschema.ValidationError) error {
	var x explainer
	x.collect(e)
	slices.Sort(x.lines)
	x.lines = slices.Compact(x.lines)
	more := ""
	if n := len(x.lines) - maxFailures; n > 0 {
		x.lines, more = x.lines[:maxFailures], fmt.Sprintf("; and %d more", n)
	}
	return errors.New(strings.Join(x.lines, "; ") + more)
}

type explainer struct {
	lines []string
}

func (x *explainer) collect(e *jsonschema.ValidationError) {
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		if len(e.Causes) > 0 {
			x.alternatives(e)
			return
		}
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
	}
	if len(e.Causes) == 0 {
		x.lines = append(x.lines, place(e.InstanceLocation)+": "+text(e))
		return
	}
	for _, cause := range e.Causes {
		x.collect(cause)
	}
}

// text is what the library says of one failure, cut where it quotes at length.
func text(e *jsonschema.ValidationError) string {
	if _, ok := e.ErrorKind.(*kind.FalseSchema); ok {
		return "nothing is allowed here"
	}
	out := e.DetailedOutput()
	if out.Error == nil {
		return "it does not fit"
	}
	s := out.Error.String()
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return s
}

// alternatives tells in one line why none of them fits.
func (x *explainer) alternatives(e *jsonschema.ValidationError) {
	var reasons []string
	for _, cause := range e.Causes {
		var sub explainer
		sub.collect(cause)
		slices.Sort(sub.lines)
		if len(sub.lines) > 0 && len(reasons) < maxFailures {
			reasons = append(reasons, sub.lines[0])
		}
	}
	x.lines = append(x.lines, fmt.Sprintf("%s: it fits none of the alternatives (%s)",
		place(e.InstanceLocation), strings.Join(reasons, " | ")))
}

// place spells where in the value: sections[2].name.
func place(path []string) string {
	if len(path) == 0 {
		return "the value"
	}
	var b strings.Builder
	for _, key := range path {
		if _, err := strconv.Atoi(key); err == nil {
			fmt.Fprintf(&b, "[%s]", key)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(key)
	}
	return b.String()
}
