package expression

import (
	"math"
	"slices"
	"strconv"
)

var numberFunctions = map[string]function{
	"abs":     absolute,
	"ceil":    rounder("ceil", math.Ceil),
	"floor":   rounder("floor", math.Floor),
	"round":   rounder("round", math.Round),
	"int":     toInt,
	"float":   toFloat,
	"max":     extreme("max", 1),
	"min":     extreme("min", -1),
	"mean":    mean,
	"median":  median,
	"bitand":  bits("bitand", func(x, y int) int { return x & y }),
	"bitor":   bits("bitor", func(x, y int) int { return x | y }),
	"bitxor":  bits("bitxor", func(x, y int) int { return x ^ y }),
	"bitnand": bits("bitnand", func(x, y int) int { return x &^ y }),
	"bitshl":  shift("bitshl", func(x int, y uint) int { return x << y }),
	"bitshr":  shift("bitshr", func(x int, y uint) int { return x >> y }),
	"bitushr": shift("bitushr", func(x int, y uint) int { return int(uint(x) >> y) }),
	"bitnot":  bitnot,
}

func absolute(_ *meter, args []any) (any, error) {
	f, err := numberAt("abs", args, 0)
	if err != nil {
		return nil, err
	}
	if n, ok := args[0].(int); ok {
		return max(n, -n), nil
	}
	return math.Abs(f), nil
}

func rounder(name string, f func(float64) float64) function {
	return func(_ *meter, args []any) (any, error) {
		n, err := numberAt(name, args, 0)
		if err != nil {
			return nil, err
		}
		return f(n), nil
	}
}

func toInt(_ *meter, args []any) (any, error) {
	if len(args) == 1 {
		if s, ok := args[0].(string); ok {
			n, err := strconv.Atoi(s)
			if err != nil {
				return nil, faultf("int cannot read %s", describe(s))
			}
			return n, nil
		}
	}
	n, err := integerAt("int", args, 0)
	if err != nil {
		return nil, err
	}
	return n, nil
}

func toFloat(m *meter, args []any) (any, error) {
	if len(args) == 1 {
		if s, ok := args[0].(string); ok {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil {
				return nil, faultf("float cannot read %s", describe(s))
			}
			return f, m.text(len(s))
		}
	}
	f, err := numberAt("float", args, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// flatNumbers gives the numbers among args and in the arrays among them.
func flatNumbers(m *meter, name string, args []any, into []any, depth int) ([]any, error) {
	if depth > maxNested {
		return nil, errNested
	}
	if err := m.charge(1 + len(args)); err != nil {
		return nil, err
	}
	for i, arg := range args {
		if list, ok := arg.([]any); ok {
			var err error
			if into, err = flatNumbers(m, name, list, into, depth+1); err != nil {
				return nil, err
			}
			continue
		}
		if _, err := numberAt(name, args, i); err != nil {
			return nil, err
		}
		into = append(into, arg)
	}
	return into, nil
}

func extreme(name string, sign int) function {
	return func(m *meter, args []any) (any, error) {
		list, err := flatNumbers(m, name, args, nil, 0)
		if err != nil {
			return nil, err
		}
		var best any
		for i, n := range list {
			if i == 0 {
				best = n
				continue
			}
			if c, err := m.compare(name, n, best); err != nil {
				return nil, err
			} else if c == sign {
				best = n
			}
		}
		return best, nil
	}
}

func floats(m *meter, name string, args []any) ([]float64, error) {
	list, err := flatNumbers(m, name, args, nil, 0)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(list))
	for i := range list {
		out[i], _ = numberAt(name, list, i) // flatNumbers has looked
	}
	return out, nil
}

func mean(m *meter, args []any) (any, error) {
	list, err := floats(m, "mean", args)
	if err != nil || len(list) == 0 {
		return 0.0, err
	}
	sum := 0.0
	for _, f := range list {
		sum += f
	}
	return sum / float64(len(list)), nil
}

func median(m *meter, args []any) (any, error) {
	list, err := floats(m, "median", args)
	if err != nil || len(list) == 0 {
		return 0.0, err
	}
	if err := m.charge(20 * len(list)); err != nil {
		return nil, err
	}
	slices.Sort(list)
	half := len(list) / 2
	if len(list)%2 == 1 {
		return list[half], nil
	}
	return (list[half-1] + list[half]) / 2, nil
}

func bits(name string, f func(x, y int) int) function {
	return func(_ *meter, args []any) (any, error) {
		x, err := integerAt(name, args, 0)
		if err != nil {
			return nil, err
		}
		y, err := integerAt(name, args, 1)
		if err != nil {
			return nil, err
		}
		return f(x, y), nil
	}
}

func shift(name string, f func(x int, y uint) int) function {
	return func(_ *meter, args []any) (any, error) {
		x, err := integerAt(name, args, 0)
		if err != nil {
			return nil, err
		}
		y, err := integerAt(name, args, 1)
		if err != nil {
			return nil, err
		}
		if y < 0 {
			return nil, faultf("%s wants a count from 0, and got %d", name, y)
		}
		return f(x, uint(y)), nil
	}
}

func bitnot(_ *meter, args []any) (any, error) {
	x, err := integerAt("bitnot", args, 0)
	if err != nil {
		return nil, err
	}
	return ^x, nil
}
