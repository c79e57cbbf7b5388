package drover_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/droverhq/drover"

// layers names every package of the module, and what of the module its code
// may import; its tests may import anything. A new package, or a new import
// between two, is an edit of this map, so that it is a decision.
var layers = map[string][]string{
	".":                           {"internal/expression", "internal/schema", "internal/rawjson"},
	"internal/rawjson":            {},
	"internal/expression":         {"internal/rawjson"},
	"internal/schema":             {},
	"subjects":                    {"."},
	"internal/machine":            {".", "subjects", "internal/rawjson", "internal/expression", "internal/schema"},
	"internal/partition":          {".", "subjects", "internal/machine"},
	"internal/hook":               {".", "internal/rawjson", "internal/machine", "internal/schema", "kv"},
	"internal/sim":                {".", "subjects", "internal/machine", "internal/partition", "internal/hook", "internal/delivery", "internal/seal", "internal/webhook", "kv"},
	"internal/publish":            {".", "subjects"},
	"internal/topology":           {".", "subjects"},
	"internal/embed":              {"."},
	"internal/natstest":           {},
	"internal/replies":            {},
	"internal/calling":            {"."},
	"internal/seal":               {"."},
	"internal/webhook":            {"."},
	"internal/delivery":           {".", "subjects", "internal/rawjson", "internal/webhook"},
	"kv":                          {".", "subjects", "internal/publish"},
	"kv/kvtest":                   {".", "subjects", "internal/natstest", "kv"},
	"function":                    {".", "subjects", "internal/rawjson", "internal/calling", "internal/publish"},
	"function/functiontest":       {".", "subjects", "function", "internal/natstest"},
	"function/clock":              {},
	"client":                      {".", "subjects", "internal/rawjson", "internal/calling", "internal/webhook"},
	"flow":                        {".", "subjects", "internal/rawjson", "internal/replies", "function"},
	"flow/flowtest":               {".", "subjects", "internal/machine", "flow"},
	"internal/gateway":            {".", "subjects", "internal/rawjson", "client"},
	"internal/gateway/clock":      {},
	"dispatcher":                  {".", "subjects", "internal/rawjson", "internal/replies", "internal/seal", "internal/machine", "internal/hook", "internal/publish", "internal/delivery", "kv", "function"},
	"internal/api":                {".", "subjects", "internal/rawjson", "internal/replies", "internal/seal", "internal/machine", "internal/hook", "kv"},
	"worker":                      {".", "subjects", "internal/seal", "internal/machine", "internal/partition", "internal/hook", "internal/publish", "internal/topology", "internal/delivery", "internal/api", "kv", "dispatcher"},
	"internal/bench":              {".", "subjects", "client", "function", "flow", "worker", "kv", "internal/embed", "internal/publish", "internal/topology"},
	"cmd/drover":                  {".", "subjects", "internal/rawjson", "client", "function", "worker", "internal/bench", "internal/embed", "internal/gateway", "internal/topology"},
	"worker/clock":                {},
	"integration":                 {},
	"examples/licences/functions": {".", "function"},
	"examples/callbacks":          {".", "subjects", "client"},
	"examples/order":              {".", "flow", "function"},
	"integration/conformance":     {},
}

// outside names the other modules, and who may import each. It keeps the
// binary of a user who imports only client and function thin, and a change of
// library the matter of one package.
var outside = map[string][]string{
	"go.uber.org/goleak":                    {"internal/natstest"},
	"github.com/expr-lang/expr":             {"internal/expression"},
	"github.com/santhosh-tekuri/jsonschema": {"internal/schema"},
	"golang.org/x/text":                     {"internal/schema"},
	"github.com/goccy/go-yaml":              {".", "internal/delivery", "cmd/drover"},
	"github.com/klauspost/compress":         {"internal/machine", "dispatcher", "worker"},
	"github.com/spf13/cobra":                {"cmd/drover"},
	"golang.org/x/term":                     {"cmd/drover"},
	"github.com/nats-io/nats-server":        {"internal/embed", "internal/natstest"},
	"github.com/rs/zerolog":                 {"function", "dispatcher", "worker", "internal/api", "internal/delivery", "internal/embed", "internal/gateway", "internal/publish", "cmd/drover"},
	"github.com/nats-io/nats.go": {
		"kv", "kv/kvtest", "function", "function/functiontest", "flow", "client", "dispatcher", "worker", "cmd/drover",
		"internal/api", "internal/bench", "internal/delivery", "internal/sim", "internal/publish", "internal/replies", "internal/topology", "internal/embed", "internal/gateway", "internal/natstest", "function/functiontest",
		"examples/licences/functions", "examples/callbacks", "examples/order",
	},
}

// pure packages see no clock, no chance and no I/O, and hand nothing to
// another goroutine, so that what they do depends on their arguments alone.
var pure = []string{".", "subjects", "internal/rawjson", "internal/machine", "internal/partition", "internal/expression", "internal/schema"}

// impure is what a pure package may not import.
var impure = []string{
	"context", "crypto/rand", "io/fs", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http",
	"os", "os/exec", "os/signal", "sync", "sync/atomic", "syscall", "testing", "unsafe",
}

// guarded pure packages may use sync to share what they compiled; what they give
// does not depend on who came first.
var guarded = []string{"internal/expression", "internal/schema"}

// clock is what a pure package may not use of time.
var clock = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// spelled finds the name of a subject, stream or bucket within a literal, or a
// literal that is a header.
var spelled = regexp.MustCompile(`drover\.(in|cmd|timer|call|cancel|done|dead|api|event)\b|DROVER|\$KV\.|\$JS\.|^(Drover|Nats)-[A-Za-z-]+$`)

// maxLines is the length past which a file is too long to be read at once.
const maxLines = 500

// source is one Go file of the module.
type source struct {
	name, pkg string // slash-separated, from the root of the module
	test      bool
	fset      *token.FileSet
	file      *ast.File
	lines     int
}

func TestHouseRules(t *testing.T) {
	files := sources(t)
	t.Run("layers", func(t *testing.T) { checkLayers(t, files) })
	t.Run("purity", func(t *testing.T) { each(t, files, checkPure) })
	t.Run("names", func(t *testing.T) { each(t, files, checkNames) })
	t.Run("tests", func(t *testing.T) { each(t, files, checkTests) })
	t.Run("shape", func(t *testing.T) { each(t, files, checkShape) })
	t.Run("documents", func(t *testing.T) { checkDocumented(t, files) })
}

// sources parses every Go file of the module.
func sources(t *testing.T) []*source {
	t.Helper()
	var files []*source
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || len(name) > 1 && name[0] == '.'):
			return fs.SkipDir
		case d.IsDir(), !strings.HasSuffix(name, ".go"):
			return nil
		}
		s := &source{name: filepath.ToSlash(file), fset: token.NewFileSet(), test: strings.HasSuffix(file, "_test.go")}
		s.pkg = path.Dir(s.name)
		if s.file, err = parser.ParseFile(s.fset, file, nil, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return err
		}
		s.lines = s.fset.File(s.file.FileStart).LineCount()
		files = append(files, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go file was found: this test must run in the root of the module")
	}
	return files
}

func each(t *testing.T, files []*source, check func(*testing.T, *source)) {
	t.Helper()
	for _, f := range files {
		check(t, f)
	}
}

// checkLayers holds the direction of imports.
func checkLayers(t *testing.T, files []*source) {
	seen := map[string]bool{}
	for _, f := range files {
		seen[f.pkg] = true
		allowed, listed := layers[f.pkg]
		if !listed {
			t.Errorf("%s: package %s is not in layers: say there what it may import", f.name, f.pkg)
		}
		if f.test {
			continue
		}
		for _, imp := range imports(f) {
			switch {
			case imp == module || strings.HasPrefix(imp, module+"/"):
				if to := path.Clean("." + strings.TrimPrefix(imp, module)); !slices.Contains(allowed, to) {
					t.Errorf("%s: %s may not import %s: imports run one way", f.name, f.pkg, to)
				}
			case strings.Contains(strings.Split(imp, "/")[0], "."):
				if !mayUse(f.pkg, imp) {
					t.Errorf("%s: %s may not import %s: only the packages that outside lists for it", f.name, f.pkg, imp)
				}
			}
		}
	}
	for pkg := range layers {
		if !seen[pkg] {
			t.Errorf("layers names %s, which has no Go file: take it out", pkg)
		}
	}
}

func imports(f *source) []string {
	var all []string
	for _, spec := range f.file.Imports {
		imp, _ := strconv.Unquote(spec.Path.Value)
		all = append(all, imp)
	}
	return all
}

func mayUse(pkg, imp string) bool {
	for mod, users := range outside {
		if strings.HasPrefix(imp, mod) {
			return slices.Contains(users, pkg)
		}
	}
	return false
}

// checkPure keeps clock, chance, I/O and concurrency out of the pure packages.
func checkPure(t *testing.T, f *source) {
	if f.test || !slices.Contains(pure, f.pkg) {
		return
	}
	for _, spec := range f.file.Imports {
		imp, _ := strconv.Unquote(spec.Path.Value)
		if slices.Contains(impure, imp) && (imp != "sync" || !slices.Contains(guarded, f.pkg)) {
			t.Errorf("%s: pure package imports %s: what it gives must come in with the arguments", f.name, imp)
		}
		if imp == "time" && spec.Name != nil {
			t.Errorf("%s: pure package renames time, which hides its clock from this test", f.name)
		}
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
			t.Errorf("%s: concurrency in a pure package: order would depend on the scheduler", f.fset.Position(n.Pos()))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
				t.Errorf("%s: time.%s in a pure package: time comes in with the command", f.fset.Position(n.Pos()), n.Sel.Name)
			}
		}
		return true
	})
}

// checkNames keeps the spelling of subjects, streams, buckets and headers in
// one package.
func checkNames(t *testing.T, f *source) {
	if f.test || f.pkg == "subjects" {
		return
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		if s, err := strconv.Unquote(lit.Value); err == nil && spelled.MatchString(s) {
			t.Errorf("%s: %s spells a name of the server: ask package subjects for it, or a prefix would not reach it",
				f.fset.Position(n.Pos()), spelled.FindString(s))
		}
		return true
	})
}

// checkTests keeps tests from guessing how long something takes, and from
// passing without having run.
func checkTests(t *testing.T, f *source) {
	if !f.test {
		return
	}
	fake := strings.HasSuffix(f.name, "bubble_test.go")
	var bubbles []ast.Node
	inBubble := func(n ast.Node) bool {
		return fake || slices.ContainsFunc(bubbles, func(b ast.Node) bool { return b.Pos() <= n.Pos() && n.End() <= b.End() })
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && startsBubble(call) {
			bubbles = append(bubbles, call)
		}
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, _ := sel.X.(*ast.Ident)
		switch name := sel.Sel.Name; {
		case x == nil:
		case x.Name == "time" && name == "Sleep" && !inBubble(sel):
			t.Errorf("%s: time.Sleep in a test: wait for the event, or move a fake clock", f.fset.Position(n.Pos()))
		case x.Name == "synctest" && name == "Test":
			t.Errorf("%s: synctest.Test has several threads, which the race detector does not survive: natstest.Clock has one", f.fset.Position(n.Pos()))
		case slices.Contains([]string{"t", "b", "f", "tb"}, x.Name) && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, name):
			t.Errorf("%s: a test that skips passes in silence: make it run, or take it out", f.fset.Position(n.Pos()))
		}
		return true
	})
}

// startsBubble reports calls whose function argument sees a fake clock, which
// sleeping moves.
func startsBubble(call *ast.CallExpr) bool {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name == "Bubble" || fn.Name == "Clock"
	case *ast.SelectorExpr:
		x, ok := fn.X.(*ast.Ident)
		return ok && x.Name == "natstest" && slices.Contains([]string{"Bubble", "Clock"}, fn.Sel.Name)
	}
	return false
}

// checkShape holds what keeps a file readable and a package free of surprises.
func checkShape(t *testing.T, f *source) {
	if f.lines > maxLines {
		t.Errorf("%s: %d lines, at most %d: split it by what its parts promise", f.name, f.lines, maxLines)
	}
	for _, name := range []string{"util", "utils", "common", "types", "helpers", "pkg"} {
		if slices.Contains(strings.Split(f.pkg, "/"), name) {
			t.Errorf("%s: a package called %s says nothing of what it holds", f.name, name)
		}
	}
	for _, d := range f.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if ok && fn.Recv == nil && fn.Name.Name == "init" {
			t.Errorf("%s: init works before anyone asked it to: call a function", f.fset.Position(fn.Pos()))
		}
	}
}

// checkDocumented demands a comment for every package and every exported name.
func checkDocumented(t *testing.T, files []*source) {
	said := map[string]bool{}
	for _, f := range files {
		if !f.test {
			said[f.pkg] = said[f.pkg] || f.file.Doc != nil
			checkExported(t, f)
		}
	}
	for pkg, ok := range said {
		if !ok {
			t.Errorf("package %s has no comment: say what it promises, and what may not be assumed", pkg)
		}
	}
}

func checkExported(t *testing.T, f *source) {
	missing := func(id *ast.Ident) {
		t.Errorf("%s: %s is exported and has no comment", f.fset.Position(id.Pos()), id.Name)
	}
	for _, d := range f.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc == nil && !wellKnown(d) {
				missing(d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						missing(s.Name)
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						missing(s.Names[0])
					}
				}
			}
		}
	}
}

// wellKnown reports methods whose name is their documentation, and methods of
// types that nobody outside can name.
func wellKnown(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return false
	}
	recv := fn.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	if index, ok := recv.(*ast.IndexExpr); ok {
		recv = index.X
	}
	if id, ok := recv.(*ast.Ident); ok && !id.IsExported() {
		return true
	}
	return slices.Contains([]string{"Error", "Unwrap", "Is", "String", "Len", "Less", "Swap"}, fn.Name.Name)
}
