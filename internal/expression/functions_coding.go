package expression

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"time"
)

var codingFunctions = map[string]function{
	"type":       typeName,
	"string":     toString,
	"toJSON":     toJSON,
	"fromJSON":   fromJSON,
	"toBase64":   toBase64,
	"fromBase64": fromBase64,
	"unix":       unix,
	"rfc3339":    rfc3339,
	"seconds":    seconds,
}

func typeName(_ *meter, args []any) (any, error) {
	if err := arity("type", args, 1, 1); err != nil {
		return nil, err
	}
	switch args[0].(type) {
	case nil:
		return "nil", nil
	case bool:
		return "bool", nil
	case int:
		return "int", nil
	case float64:
		return "float", nil
	case string:
		return "string", nil
	case []any:
		return "array", nil
	case map[string]any:
		return "map", nil
	}
	return "unknown", nil
}

func toString(m *meter, args []any) (any, error) {
	if err := arity("string", args, 1, 1); err != nil {
		return nil, err
	}
	return m.spell(args[0])
}

func toJSON(m *meter, args []any) (any, error) {
	if err := arity("toJSON", args, 1, 1); err != nil {
		return nil, err
	}
	b, err := m.appendJSON(nil, args[0], 0)
	return string(b), err
}

func fromJSON(m *meter, args []any) (any, error) {
	s, err := texts(m, "fromJSON", args, 1, 1)
	if err != nil {
		return nil, err
	}
	if err := m.charge(len(s[0]) / 2); err != nil {
		return nil, err
	}
	if s[0] == "" {
		return nil, faultf("fromJSON got empty text")
	}
	v, err := Decode(json.RawMessage(s[0]))
	if err != nil {
		return nil, faultf("fromJSON: %v", err)
	}
	return v, nil
}

func toBase64(m *meter, args []any) (any, error) {
	s, err := texts(m, "toBase64", args, 1, 1)
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.EncodeToString([]byte(s[0])), nil
}

func fromBase64(m *meter, args []any) (any, error) {
	s, err := texts(m, "fromBase64", args, 1, 1)
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(s[0])
	if err != nil {
		return nil, faultf("fromBase64 got text that is no base64")
	}
	return string(b), nil
}

// unix reads a time that says its own offset: zones by name differ from one
// machine to the next.
func unix(m *meter, args []any) (any, error) {
	s, err := texts(m, "unix", args, 1, 1)
	if err != nil {
		return nil, err
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s[0]); err == nil {
			if t.Nanosecond() == 0 {
				return int(t.Unix()), nil
			}
			return float64(t.Unix()) + float64(t.Nanosecond())/1e9, nil
		}
	}
	return nil, &fault{
		"unix cannot read the time " + describe(s[0]),
		"write it like 2026-01-31T12:00:00Z, or 2026-01-31",
	}
}

const lastSecond = 253402300799 // of the year 9999

func rfc3339(_ *meter, args []any) (any, error) {
	f, err := numberAt("rfc3339", args, 0)
	if err != nil {
		return nil, err
	}
	if !(f >= 0 && f <= lastSecond) {
		return nil, faultf("rfc3339 wants seconds since 1970 up to the year 9999, and got %v", f)
	}
	whole, part := math.Modf(f)
	// Microseconds: what a number holds of a time in our days.
	t := time.Unix(int64(whole), int64(math.Round(part*1e6))*1e3)
	return t.UTC().Format(time.RFC3339Nano), nil
}

func seconds(m *meter, args []any) (any, error) {
	s, err := texts(m, "seconds", args, 1, 1)
	if err != nil {
		return nil, err
	}
	d, err := time.ParseDuration(s[0])
	if err != nil {
		return nil, &fault{"seconds cannot read the duration " + describe(s[0]), "write it like 90s or 1h30m"}
	}
	if d%time.Second == 0 {
		return int(d / time.Second), nil
	}
	return d.Seconds(), nil
}
