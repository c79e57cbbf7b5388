package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	maxParts  = 10_000    // objects and booleans in a schema
	maxRounds = 1_000_000 // applications of a subschema to a value, in one validation
	maxDigits = 1_000     // of a number
	root      = "schema:///root"
)

// Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	mu       sync.Mutex // over work: validations of one schema take turns
	work     *work
}

// work counts what one validation does, up to a limit.
type work struct{ rounds, most int }

// Compile compiles a JSON Schema. Its error says in a sentence what is wrong,
// and where in the schema.
func Compile(raw json.RawMessage) (*Schema, error) {
	doc, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("the schema %w", err)
	}
	if parts := count(doc); parts > maxParts {
		return nil, fmt.Errorf("the schema has %d objects, and may have %d", parts, maxParts)
	}
	done := &work{most: maxRounds}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	c.AssertFormat()
	c.RegisterVocabulary(meter(done))
	c.AssertVocabs()
	if err := c.AddResource(root, doc); err != nil {
		return nil, fmt.Errorf("the schema cannot be used: %w", err)
	}
	compiled, err := c.Compile(root)
	if err != nil {
		return nil, compileError(err)
	}
	return &Schema{compiled: compiled, work: done}, nil
}

// noLoader refuses every schema that is somewhere else.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a schema cannot refer to %s: put what it needs below $defs", url)
}

func compileError(err error) error {
	if load, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return load.Err
	}
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if v, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			return fmt.Errorf("the schema is no JSON Schema: %w", explain(v))
		}
	}
	return fmt.Errorf("the schema cannot be used: %s", strings.ReplaceAll(err.Error(), root, ""))
}

// errTooMuch ends a validation from within. The library has no other way.
var errTooMuch = errors.New("the schema takes too much work on this value: let it branch less")

// meter is a vocabulary without keywords. The library asks it about every
// subschema, and so runs it whenever one is applied.
func meter(w *work) *jsonschema.Vocabulary {
	return &jsonschema.Vocabulary{
		URL: "drover:meter",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) {
			return tick{w}, nil
		},
	}
}

type tick struct{ work *work }

// Validate counts one application of a subschema.
func (t tick) Validate(*jsonschema.ValidatorContext, any) {
	if t.work.rounds++; t.work.rounds > t.work.most {
		panic(errTooMuch)
	}
}

// Validate checks a JSON value. Its error is a sentence with the first
// failures, in the order of their places. Input that is no JSON is an error.
func (s *Schema) Validate(raw json.RawMessage) error {
	v, err := decode(raw)
	if err != nil {
		return fmt.Errorf("the value %w", err)
	}
	return s.validate(v)
}

func (s *Schema) validate(v any) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work.rounds = 0
	defer func() {
		if r := recover(); r != nil {
			if r != errTooMuch { //nolint:errorlint // the very value that was thrown
				panic(r)
			}
			err = errTooMuch
		}
	}()
	err = s.compiled.Validate(v)
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return explain(invalid)
	}
	return err
}

// decode reads JSON and leaves the numbers as they are written. It refuses
// those whose arithmetic would fill the memory.
func decode(raw json.RawMessage) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("is no JSON: it ends too early")
		}
		return nil, fmt.Errorf("is no JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("is no JSON: there is something after its end")
	}
	return v, checkNumbers(v)
}

func checkNumbers(v any) error {
	switch v := v.(type) {
	case json.Number:
		s := v.String()
		if _, exponent, ok := strings.Cut(strings.ToLower(s), "e"); ok {
			if n, err := strconv.Atoi(exponent); err != nil || n > 400 || n < -400 {
				return fmt.Errorf("holds the number %.40s, whose exponent is beyond 400", s)
			}
		}
		if len(s) > maxDigits {
			return fmt.Errorf("holds a number of %d digits, and may have %d", len(s), maxDigits)
		}
	case []any:
		for _, item := range v {
			if err := checkNumbers(item); err != nil {
				return err
			}
		}
	case map[string]any:
		// Any of the errors will do, but always the same.
		var first string
		var failed error
		for k, item := range v {
			if err := checkNumbers(item); err != nil && (failed == nil || k < first) {
				first, failed = k, err
			}
		}
		return failed
	}
	return nil
}

// count is the number of what may be a subschema.
func count(v any) int {
	n := 0
	switch v := v.(type) {
	case bool:
		n = 1
	case []any:
		for _, item := range v {
			n += count(item)
		}
	case map[string]any:
		n = 1
		for _, item := range v {
			n += count(item)
		}
	}
	return n
}
