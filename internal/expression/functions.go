package expression

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
)

// function is the body of a function or an operator. It charges the meter
// before it works, and must not keep args.
type function func(m *meter, args []any) (any, error)

// functions are all that a rewritten tree may call, by the name that the
// source spells.
var functions = merge(textFunctions, numberFunctions, listFunctions, codingFunctions, operatorFunctions)

// forbidden are the functions of the library that an expression must not use,
// with what to do instead.
var forbidden = map[string]string{
	"now":      "an expression has no clock: read run.started_at, or pass the time in the input",
	"date":     "use unix(text), which gives seconds since 1970",
	"duration": `use seconds("1h30m"), which gives a number`,
	"timezone": "times are in UTC here",
}

// added are the functions that the library does not have, with the signatures
// that the type checker holds a call to.
var added = map[string][]reflect.Type{
	"unix":    {reflect.TypeFor[func(string) float64]()},
	"rfc3339": {reflect.TypeFor[func(float64) string](), reflect.TypeFor[func(int) string]()},
	"seconds": {reflect.TypeFor[func(string) float64]()},
}

func merge(tables ...map[string]function) map[string]function {
	all := map[string]function{}
	for _, table := range tables {
		maps.Copy(all, table)
	}
	return all
}

// The arguments of a function, by position. Each says which function it was,
// what it wants, and what it got.

func arity(name string, args []any, least, most int) error {
	if len(args) >= least && len(args) <= most {
		return nil
	}
	if least == most {
		return faultf("%s takes %d arguments, and got %d", name, least, len(args))
	}
	return faultf("%s takes %d to %d arguments, and got %d", name, least, most, len(args))
}

func textAt(name string, args []any, i int) (string, error) {
	if i < len(args) {
		if s, ok := args[i].(string); ok {
			return s, nil
		}
		return "", faultf("%s wants text, and got %s", name, kind(args[i]))
	}
	return "", faultf("%s takes more arguments than %d", name, len(args))
}

func listAt(name string, args []any, i int) ([]any, error) {
	if i < len(args) {
		if list, ok := args[i].([]any); ok {
			return list, nil
		}
		return nil, faultf("%s wants an array, and got %s", name, kind(args[i]))
	}
	return nil, faultf("%s takes more arguments than %d", name, len(args))
}

func objectAt(name string, args []any, i int) (map[string]any, error) {
	if i < len(args) {
		if object, ok := args[i].(map[string]any); ok {
			return object, nil
		}
		return nil, faultf("%s wants an object, and got %s", name, kind(args[i]))
	}
	return nil, faultf("%s takes more arguments than %d", name, len(args))
}

func numberAt(name string, args []any, i int) (float64, error) {
	if i < len(args) {
		switch n := args[i].(type) {
		case int:
			return float64(n), nil
		case float64:
			return n, nil
		}
		return 0, faultf("%s wants a number, and got %s", name, kind(args[i]))
	}
	return 0, faultf("%s takes more arguments than %d", name, len(args))
}

func integerAt(name string, args []any, i int) (int, error) {
	f, err := numberAt(name, args, i)
	if err != nil {
		return 0, err
	}
	if n, ok := args[i].(int); ok {
		return n, nil
	}
	return whole(name, math.Trunc(f))
}

// whole makes an int of a number without a fraction. What does not fit is an
// error, as processors differ in what they would make of it.
func whole(name string, f float64) (int, error) {
	if !(f >= -1<<63 && f < 1<<63) {
		return 0, faultf("%s wants an integer of 64 bits, and got %v", name, f)
	}
	return int(f), nil
}

// compare orders two numbers or two texts.
func (m *meter) compare(name string, a, b any) (int, error) {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			if err := m.text(min(len(x), len(y))); err != nil {
				return 0, err
			}
			return order(x, y), nil
		}
	case int:
		switch y := b.(type) {
		case int:
			return order(x, y), nil
		case float64:
			return order(float64(x), y), nil
		}
	case float64:
		switch y := b.(type) {
		case int:
			return order(x, float64(y)), nil
		case float64:
			return order(x, y), nil
		}
	}
	return 0, faultf("%s compares numbers or text, and got %s and %s", name, kind(a), kind(b))
}

func order[T int | float64 | string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// equal compares two values of any kind. 1 and 1.0 are equal.
func (m *meter) equal(a, b any, depth int) (bool, error) {
	if err := m.charge(1); err != nil {
		return false, err
	}
	if depth > maxNested {
		return false, errNested
	}
	switch x := a.(type) {
	case nil, bool:
		return a == b, nil
	case int, float64:
		switch b.(type) {
		case int, float64:
			n, err := m.compare("==", a, b)
			return n == 0, err
		}
		return false, nil
	case string:
		y, ok := b.(string)
		if !ok || len(x) != len(y) {
			return false, nil
		}
		if err := m.text(len(x)); err != nil {
			return false, err
		}
		return x == y, nil
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false, nil
		}
		return m.equalLists(x, y, depth)
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false, nil
		}
		return m.equalObjects(x, y, depth)
	}
	return false, faultf("%s cannot be compared", kind(a))
}

func (m *meter) equalLists(x, y []any, depth int) (bool, error) {
	for i := range x {
		if ok, err := m.equal(x[i], y[i], depth+1); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (m *meter) equalObjects(x, y map[string]any, depth int) (bool, error) {
	// In the order of the keys, so that the same comparison costs the same.
	for _, k := range sortedKeys(x) {
		other, ok := y[k]
		if !ok {
			return false, nil
		}
		if ok, err := m.equal(x[k], other, depth+1); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func sortedKeys(object map[string]any) []string {
	keys := make([]string, 0, len(object))
	for k := range object {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// spell gives a value within text: text as it is, everything else as JSON.
func (m *meter) spell(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, m.text(len(s))
	}
	b, err := m.appendJSON(nil, v, 0)
	return string(b), err
}

func describe(v any) string {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("%.40q", s)
	}
	return kind(v)
}
