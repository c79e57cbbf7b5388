package expression

import (
	"slices"
	"unicode/utf8"
)

var listFunctions = map[string]function{
	"len":       length,
	"first":     ender("first", func(list []any) any { return list[0] }),
	"last":      ender("last", func(list []any) any { return list[len(list)-1] }),
	"get":       get,
	"take":      take,
	"keys":      keys,
	"values":    values,
	"toPairs":   toPairs,
	"fromPairs": fromPairs,
	"reverse":   reverse,
	"uniq":      uniq,
	"concat":    concat,
	"flatten":   flatten,
	"sort":      sortList,

	// These get pairs of element and key, which the rewrite made.
	"sortBy":        sortBy,
	"groupBy":       groupBy,
	"findLast":      findLast,
	"findLastIndex": findLastIndex,
}

func length(m *meter, args []any) (any, error) {
	if err := arity("len", args, 1, 1); err != nil {
		return nil, err
	}
	switch v := args[0].(type) {
	case string:
		return utf8.RuneCountInString(v), m.text(len(v))
	case []any:
		return len(v), nil
	case map[string]any:
		return len(v), nil
	}
	return nil, faultf("len wants an array, an object or text, and got %s", kind(args[0]))
}

func ender(name string, f func(list []any) any) function {
	return func(_ *meter, args []any) (any, error) {
		list, err := listAt(name, args, 0)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		return f(list), nil
	}
}

// get is null where there is nothing.
func get(_ *meter, args []any) (any, error) {
	if err := arity("get", args, 2, 2); err != nil {
		return nil, err
	}
	switch v := args[0].(type) {
	case map[string]any:
		if k, ok := args[1].(string); ok {
			return v[k], nil
		}
	case []any:
		if i, ok := args[1].(int); ok {
			if i < 0 {
				i += len(v)
			}
			if i >= 0 && i < len(v) {
				return v[i], nil
			}
		}
	}
	return nil, nil
}

func take(_ *meter, args []any) (any, error) {
	list, err := listAt("take", args, 0)
	if err != nil {
		return nil, err
	}
	n, err := integerAt("take", args, 1)
	if err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, faultf("take wants a count from 0, and got %d", n)
	}
	return list[:min(n, len(list)):min(n, len(list))], nil
}

// entries gives the keys of an object in their order, and charges for them.
func entries(m *meter, name string, args []any) (map[string]any, []string, error) {
	object, err := objectAt(name, args, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := m.charge(1 + 4*len(object)); err != nil {
		return nil, nil, err
	}
	return object, sortedKeys(object), nil
}

func keys(m *meter, args []any) (any, error) {
	_, names, err := entries(m, "keys", args)
	list := make([]any, len(names))
	for i, k := range names {
		list[i] = k
	}
	return list, err
}

func values(m *meter, args []any) (any, error) {
	object, names, err := entries(m, "values", args)
	list := make([]any, len(names))
	for i, k := range names {
		list[i] = object[k]
	}
	return list, err
}

func toPairs(m *meter, args []any) (any, error) {
	object, names, err := entries(m, "toPairs", args)
	list := make([]any, len(names))
	for i, k := range names {
		list[i] = []any{k, object[k]}
	}
	return list, err
}

func fromPairs(m *meter, args []any) (any, error) {
	list, err := listAt("fromPairs", args, 0)
	if err != nil {
		return nil, err
	}
	if err := m.charge(4 * len(list)); err != nil {
		return nil, err
	}
	object := make(map[string]any, len(list))
	for i, item := range list {
		pair, ok := item.([]any)
		if !ok || len(pair) != 2 {
			return nil, faultf("fromPairs wants an array of [key, value], and its element %d is not one", i)
		}
		k, ok := pair[0].(string)
		if !ok {
			return nil, faultf("fromPairs wants keys that are text, and that of element %d is %s", i, kind(pair[0]))
		}
		object[k] = pair[1]
	}
	return object, nil
}

func reverse(m *meter, args []any) (any, error) {
	list, err := listAt("reverse", args, 0)
	if err != nil {
		return nil, err
	}
	if err := m.charge(len(list)); err != nil {
		return nil, err
	}
	list = slices.Clone(list)
	slices.Reverse(list)
	return list, nil
}

// uniq keeps the first of what is equal. Its work is the square of what is
// left, unless all is text.
func uniq(m *meter, args []any) (any, error) {
	list, err := listAt("uniq", args, 0)
	if err != nil {
		return nil, err
	}
	if err := m.charge(2 * len(list)); err != nil {
		return nil, err
	}
	out, seen := []any{}, map[string]bool{}
	others := []any{}
next:
	for _, item := range list {
		if s, ok := item.(string); ok {
			if err := m.text(len(s)); err != nil {
				return nil, err
			}
			if !seen[s] {
				seen[s] = true
				out = append(out, item)
			}
			continue
		}
		for _, other := range others {
			same, err := m.equal(item, other, 0)
			if err != nil {
				return nil, err
			}
			if same {
				continue next
			}
		}
		others, out = append(others, item), append(out, item)
	}
	return out, nil
}

func concat(m *meter, args []any) (any, error) {
	out := []any{}
	for i := range args {
		list, err := listAt("concat", args, i)
		if err != nil {
			return nil, err
		}
		if err := m.charge(1 + len(list)); err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

func flatten(m *meter, args []any) (any, error) {
	list, err := listAt("flatten", args, 0)
	if err != nil {
		return nil, err
	}
	return flattenInto(m, []any{}, list, 0)
}

func flattenInto(m *meter, out, list []any, depth int) (_ []any, err error) {
	if depth > maxNested {
		return nil, errNested
	}
	if err := m.charge(1 + len(list)); err != nil {
		return nil, err
	}
	for _, item := range list {
		if inner, ok := item.([]any); ok {
			if out, err = flattenInto(m, out, inner, depth+1); err != nil {
				return nil, err
			}
			continue
		}
		out = append(out, item)
	}
	return out, nil
}

// ordered sorts an array, stable, by a key of each element.
func ordered(m *meter, name string, list []any, key func(any) any, direction []any) ([]any, error) {
	sign := 1
	if len(direction) > 0 {
		switch direction[0] {
		case "asc":
		case "desc":
			sign = -1
		default:
			return nil, faultf(`%s wants the order "asc" or "desc", and got %s`, name, describe(direction[0]))
		}
	}
	if err := m.charge(len(list)); err != nil {
		return nil, err
	}
	var failed error
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b any) int {
		if failed != nil {
			return 0
		}
		var n int
		if failed = m.charge(1); failed == nil {
			n, failed = m.compare(name, key(a), key(b))
		}
		return sign * n
	})
	return out, failed
}

func sortList(m *meter, args []any) (any, error) {
	if err := arity("sort", args, 1, 2); err != nil {
		return nil, err
	}
	list, err := listAt("sort", args, 0)
	if err != nil {
		return nil, err
	}
	out, err := ordered(m, "sort", list, func(v any) any { return v }, args[1:])
	return out, err
}

func sortBy(m *meter, args []any) (any, error) {
	pairs, err := ordered(m, "sortBy", args[0].([]any), func(v any) any { return v.([]any)[1] }, args[1:])
	if err != nil {
		return nil, err
	}
	for i := range pairs {
		pairs[i] = pairs[i].([]any)[0]
	}
	return pairs, nil
}

func groupBy(m *meter, args []any) (any, error) {
	pairs := args[0].([]any)
	if err := m.charge(2 * len(pairs)); err != nil {
		return nil, err
	}
	groups := map[string]any{}
	for _, item := range pairs {
		pair := item.([]any)
		var name string
		switch k := pair[1].(type) {
		case nil, bool, int, float64, string:
			var err error
			if name, err = m.spell(k); err != nil {
				return nil, err
			}
		default:
			return nil, faultf("groupBy wants keys that are text, numbers or true or false, and got %s", kind(k))
		}
		group, _ := groups[name].([]any)
		groups[name] = append(group, pair[0])
	}
	return groups, nil
}

// lastTrue is the index of the last pair whose key is true, or -1.
func lastTrue(m *meter, name string, pairs []any) (int, error) {
	if err := m.charge(len(pairs)); err != nil {
		return -1, err
	}
	for i, item := range slices.Backward(pairs) {
		found, ok := item.([]any)[1].(bool)
		if !ok {
			return -1, faultf("%s wants a condition that gives true or false, and it gave %s", name, kind(item.([]any)[1]))
		}
		if found {
			return i, nil
		}
	}
	return -1, nil
}

func findLast(m *meter, args []any) (any, error) {
	pairs := args[0].([]any)
	i, err := lastTrue(m, "findLast", pairs)
	if i < 0 {
		return nil, err
	}
	return pairs[i].([]any)[0], nil
}

func findLastIndex(m *meter, args []any) (any, error) {
	i, err := lastTrue(m, "findLastIndex", args[0].([]any))
	if i < 0 {
		return nil, err
	}
	return i, nil
}
