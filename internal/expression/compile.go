package expression

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"
)

// Expr is a compiled expression. It is safe for concurrent use.
type Expr struct {
	source   string
	program  *vm.Program
	nodes    []string
	readsRun bool // run, and so perhaps its tags
	want     Want
}

// Compile compiles one expression. Its error is an *Error: a name that is not
// there, a node that does not exist, types that do not fit, an expression that
// is too long.
func Compile(src string, scope Scope, want Want) (*Expr, error) {
	if len(src) > maxSource {
		return nil, &Error{
			Source: src, Message: "it is longer than 16 KiB",
			Fix: "split it over `set` nodes, or do it in a function",
		}
	}
	if strings.TrimSpace(src) == "" {
		return nil, &Error{Source: src, Message: "it is empty"}
	}
	e := &Expr{source: src, want: want}
	if err := e.compile(scope); err != nil {
		return nil, translate(src, err)
	}
	return e, nil
}

func (e *Expr) compile(scope Scope) error {
	config := checkConfig()
	tree, err := parser.ParseWithConfig(e.source, config)
	if err != nil {
		return err
	}
	names := resolver{scope: scope, lets: letNames(tree.Node)}
	ast.Walk(&tree.Node, &names)
	if err := names.finish(tree.Source); err != nil {
		return err
	}
	e.nodes, e.readsRun = names.reads(), names.run
	gives, err := checker.Check(tree, config)
	if err != nil {
		return names.suggest(err)
	}
	if e.want == Bool && gives != nil && gives.Kind() != reflect.Interface && gives.Kind() != reflect.Bool {
		return &fault{
			fmt.Sprintf("it gives %s, and must give true or false", article(words.Replace(gives.String()))),
			"compare it with something, as in x > 3 or x != nil",
		}
	}
	for _, slot := range names.whole {
		wrap(slot, "plain")
	}
	ast.Walk(&tree.Node, rewriter{})
	config = runConfig()
	if _, err := checker.Check(tree, config); err != nil {
		return err
	}
	e.program, err = compiler.Compile(tree, config)
	return err
}

// Nodes gives the sorted ids of the nodes that the expression reads.
func (e *Expr) Nodes() []string { return slices.Clone(e.nodes) }

// Eval gives the value of the expression, as Decode would make it. Its error
// is an *Error.
func (e *Expr) Eval(env Env) (any, error) {
	m := newMeter()
	v, err := e.run(&env, m)
	if err == nil {
		err = m.verify(v, 0)
	}
	if err != nil {
		return nil, translate(e.source, err)
	}
	if _, ok := v.(bool); e.want == Bool && !ok {
		return nil, translate(e.source, faultf("it gives %s, and must give true or false", kind(v)))
	}
	return v, nil
}

// run gives the value, which may be one that JSON cannot hold.
func (e *Expr) run(env *Env, m *meter) (any, error) {
	return vm.Run(e.program, newFrame(env, m, e.readsRun))
}

// checkConfig is the language as it is written: the library's signatures, less
// the functions that are forbidden, and those that are added.
func checkConfig() *conf.Config {
	c := newConfig()
	for name := range forbidden {
		c.Disabled[name] = true
		delete(c.Builtins, name)
	}
	c.Functions = signatures
	return c
}

// runConfig is the language after the rewrite: every function takes the meter
// first, and checks its arguments itself.
func runConfig() *conf.Config {
	c := newConfig()
	c.Functions = bodies
	return c
}

func newConfig() *conf.Config {
	c := conf.New(&frame{})
	c.Optimize = false // constants are folded without a meter
	c.MaxNodes = maxNodes
	return c
}

// The tables of functions are shared by all compilations, which only read them.
var signatures, bodies = tables()

func tables() (written, rewritten conf.FunctionsTable) {
	written, rewritten = conf.FunctionsTable{}, conf.FunctionsTable{}
	for name, types := range added {
		written[name] = &builtin.Function{Name: name, Func: unreachable, Types: types}
	}
	for name, f := range functions {
		rewritten[name+"!"] = &builtin.Function{Name: name + "!", Func: metered(f)}
	}
	return written, rewritten
}

func unreachable(...any) (any, error) { return nil, faultf("the function was not rewritten") }

func metered(f function) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		return f(args[0].(*meter), args[1:])
	}
}
