package expression

// operatorFunctions are the operators that the rewrite makes functions of, and
// what it adds around loops, indexes and slices.
var operatorFunctions = map[string]function{
	"+":         add,
	"==":        func(m *meter, args []any) (any, error) { return m.equal(args[0], args[1], 0) },
	"!=":        notEqual,
	"<":         comparison("<", func(n int) bool { return n < 0 }),
	"<=":        comparison("<=", func(n int) bool { return n <= 0 }),
	">":         comparison(">", func(n int) bool { return n > 0 }),
	">=":        comparison(">=", func(n int) bool { return n >= 0 }),
	"in":        in,
	"..":        span,
	"loop":      startLoop,
	"key":       checkKey,
	"sliceable": checkSliceable,
	"plain":     makePlain,
}

func add(m *meter, args []any) (any, error) {
	switch x := args[0].(type) {
	case int:
		switch y := args[1].(type) {
		case int:
			return x + y, nil
		case float64:
			return float64(x) + y, nil
		}
	case float64:
		switch y := args[1].(type) {
		case int:
			return x + float64(y), nil
		case float64:
			return x + y, nil
		}
	case string:
		if y, ok := args[1].(string); ok {
			if err := m.text(len(x) + len(y)); err != nil {
				return nil, err
			}
			return x + y, nil
		}
	}
	return nil, &fault{
		"+ adds numbers or joins text, and got " + kind(args[0]) + " and " + kind(args[1]),
		"use string(x) to join other values to text, concat(a, b) for arrays",
	}
}

func notEqual(m *meter, args []any) (any, error) {
	same, err := m.equal(args[0], args[1], 0)
	return !same, err
}

func comparison(name string, holds func(int) bool) function {
	return func(m *meter, args []any) (any, error) {
		n, err := m.compare(name, args[0], args[1])
		return holds(n), err
	}
}

func in(m *meter, args []any) (any, error) {
	switch v := args[1].(type) {
	case nil:
		return false, nil
	case []any:
		for _, item := range v {
			if same, err := m.equal(item, args[0], 0); same || err != nil {
				return same, err
			}
		}
		return false, nil
	case map[string]any:
		k, ok := args[0].(string)
		if ok {
			_, ok = v[k]
		}
		return ok, nil
	}
	return nil, &fault{
		"in looks into arrays and objects, and got " + kind(args[1]),
		"use contains to look into text",
	}
}

// span is the list of integers from one to another, both included.
func span(m *meter, args []any) (any, error) {
	from, err := integerAt("..", args, 0)
	if err != nil {
		return nil, err
	}
	to, err := integerAt("..", args, 1)
	if err != nil {
		return nil, err
	}
	if to < from {
		return []any{}, nil
	}
	if err := m.charge(to - from + 1); err != nil { // what overflows is negative
		return nil, err
	}
	list := make([]any, to-from+1)
	for i := range list {
		list[i] = from + i
	}
	return list, nil
}

// startLoop charges for a loop: the list, the name of the loop, the cost of
// one round.
func startLoop(m *meter, args []any) (any, error) {
	name := args[1].(string)
	list, err := listAt(name, args, 0)
	if err != nil {
		return nil, err
	}
	return list, m.charge(len(list) * args[2].(int))
}

// checkKey keeps the library from printing a value that is no index.
func checkKey(_ *meter, args []any) (any, error) {
	switch args[0].(type) {
	case string, int:
		return args[0], nil
	}
	return nil, faultf("an index is an integer or text, and this is %s", kind(args[0]))
}

func checkSliceable(_ *meter, args []any) (any, error) {
	switch args[0].(type) {
	case string, []any:
		return args[0], nil
	}
	return nil, faultf("arrays and text can be cut, and this is %s", kind(args[0]))
}

// makePlain makes an object of a whole node, or of the run.
func makePlain(_ *meter, args []any) (any, error) {
	switch v := args[0].(type) {
	case Node:
		return map[string]any{"output": v.Output, "status": v.Status, "error": v.Error}, nil
	case runView:
		return map[string]any{"id": v.ID, "workflow": v.Workflow, "tags": v.Tags, "started_at": v.StartedAt}, nil
	}
	return args[0], nil
}
