package drover

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// section gives a part of docs/reference.md.
func section(t *testing.T, title string) string {
	t.Helper()
	doc, err := os.ReadFile("docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "\n## "+title+"\n")
	if !ok {
		t.Fatalf("docs/reference.md has no %s", title)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// codesOf are the values of the constants of the type Code in error.go.
func codesOf(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); !ok || of.Name != "Code" {
			return false
		}
		for _, v := range spec.Values {
			if lit, ok := v.(*ast.BasicLit); ok {
				code, _ := strconv.Unquote(lit.Value)
				codes = append(codes, code)
			}
		}
		return false
	})
	return codes
}

func TestEveryCodeIsDocumented(t *testing.T) {
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| .+ \\| .*\\|$").FindAllStringSubmatch(section(t, "Error codes"), -1) {
		rows[row[1]] = true
	}
	codes := codesOf(t)
	if len(codes) < 20 {
		t.Fatalf("there are %d codes in error.go", len(codes))
	}
	for _, code := range codes {
		if !rows[code] {
			t.Errorf("docs/reference.md does not say what %s means", code)
		}
		delete(rows, code)
	}
	for code := range rows {
		t.Errorf("docs/reference.md has the code %s, which there is none of", code)
	}
}

// spelled is a number as the page has it: with commas, or in KiB and MiB.
func spelled(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0 && n > 1024:
		return fmt.Sprintf("%d KiB", n>>10)
	case n >= 1000:
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return strconv.Itoa(n)
}

func TestLimitsAreDocumented(t *testing.T) {
	text := section(t, "Limits")
	for row, limit := range map[string]int{
		"bytes, as JSON":                              MaxDefinition,
		"nodes":                                       MaxNodes,
		"items of one fan-out":                        MaxFanout,
		"runs within runs":                            MaxDepth,
		"calls of all its fan-outs":                   MaxCalls,
		"bytes of one input or output":                MaxValue,
		"bytes of a value that stays in the record":   MaxInlineValue,
		"bytes of all values that stay in the record": MaxInlineRun,
		"tags": MaxTags,
		"bytes of the key of a tag, and of its value":   MaxTag,
		"subscribers, of the definition and the start":  MaxSubscribers,
		"waiters that hold its outcome":                 MaxWaiters,
		"deliveries that nothing has read":              MaxUnread,
		"hooks that it holds":                           MaxHooks,
		"hooks with `on_unread: restart` that it holds": MaxStartHooks,
		"bytes of an `idempotency_key`":                 MaxIdempotencyKey,
		"bytes of a token":                              MaxToken,
		"bytes of the tags, the metadata, the question or the fixed answer of a hook, each": MaxMetadata,
		"bytes of the `template` of `reply_to`":                                             MaxTemplate,
		"outcomes in a batch":                                                               MaxBatch,
		"bytes of the progress of a call, by the SDK for Go":                                MaxInlineValue,
	} {
		if want := "\n| " + row + " | " + spelled(limit); !strings.Contains(text, want+" ") && !strings.Contains(text, want+";") {
			t.Errorf("docs/reference.md does not say:%s", want)
		}
	}
}

func TestTimesAreDocumented(t *testing.T) {
	text := section(t, "Times")
	for row, at := range map[string]struct {
		usual, most time.Duration
		spelled     string
	}{
		"an attempt of a call":                {DefaultTimeout, DefaultTimeout, "30 min"},
		"an attempt to tell an outcome":       {DefaultReceiptTime, MaxReceiptTime, "10 s, at most 5 min"},
		"for how long an outcome is tried":    {DefaultDeliveryAge, MaxDeliveryAge, "24 h, at most 30 days"},
		"a hold of an outcome":                {0, MaxHold, "30 s, at most 10 min"},
		"a request that waits for an outcome": {0, MaxWait, "at most 5 min"},
		"an answer of a run by HTTP":          {0, maxAnswerTime, "30 s, at most 5 min"},
	} {
		if !strings.Contains(text, "\n| "+row+" | "+at.spelled+" |") {
			t.Errorf("docs/reference.md does not say that %s is %s", row, at.spelled)
		}
		spell := strings.NewReplacer(" min", "m", " s", "s", " h", "h", "30 days", "720h", "at most ", "").Replace(at.spelled)
		bounds := strings.Split(spell, ", ")
		if most, err := time.ParseDuration(bounds[len(bounds)-1]); err != nil || most != at.most {
			t.Errorf("%s is at most %s, and not %s: %v", row, at.most, at.spelled, err)
		}
		if usual, err := time.ParseDuration(bounds[0]); at.usual != 0 && (err != nil || usual != at.usual) {
			t.Errorf("%s is %s, and not %s: %v", row, at.usual, at.spelled, err)
		}
	}
}
