package drover

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/droverhq/drover/internal/rawjson"
)

func TestEveryKeyIsDocumentedAndTried(t *testing.T) {
	doc, err := os.ReadFile("docs/definitions.md")
	if err != nil {
		t.Fatal(err)
	}
	everything, err := os.ReadFile("testdata/valid/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[*form]bool{}
	var walk func(f *form)
	walk = func(f *form) {
		if f == nil || seen[f] {
			return
		}
		seen[f] = true
		for _, k := range f.keys {
			if !strings.Contains(string(doc), "`"+k.name+"`") {
				t.Errorf("docs/definitions.md has no `%s`, which belongs to %s", k.name, f.name)
			}
			if !strings.Contains(string(everything), k.name+":") && k.name != "for" {
				t.Errorf("testdata/valid/everything.yaml has no %s", k.name)
			}
			walk(k.form)
		}
		walk(f.each)
		walk(f.or)
	}
	walk(grammar())
}

func TestExamplesOfTheDocumentAreValid(t *testing.T) {
	doc, err := os.ReadFile("docs/definitions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```yaml\n")
	text, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("there is no example")
	}
	d, err := ParseDefinition([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	// Its expressions, one by one, as they stand there in columns.
	_, rest, _ = strings.Cut(string(doc), "```\n")
	block, _, _ := strings.Cut(rest[strings.Index(rest, "input.price"):], "```")
	for line := range strings.Lines(block) {
		for expression := range strings.SplitSeq(strings.TrimSpace(line), "      ") {
			if expression = strings.TrimSpace(expression); expression == "" {
				continue
			}
			d.Nodes["pick"].Set.With = rawjson.AppendString(nil, "${{ "+expression+" }}")
			if err := d.Validate(); err != nil {
				t.Errorf("%s: %v", expression, err)
			}
		}
	}
}

func TestEveryDefinitionOfTheDocumentIsValid(t *testing.T) {
	doc, err := os.ReadFile("docs/definitions.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(doc), "```yaml\n")[1:]
	if len(blocks) < 7 {
		t.Fatalf("there are %d examples", len(blocks))
	}
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		d, err := ParseDefinition([]byte(text))
		if err != nil {
			t.Errorf("%s%v", text, err)
		} else if warnings := d.Warnings(); warnings != nil {
			t.Errorf("%s%v", text, warnings)
		}
	}
}

// TestExamplesOfTheDocumentsAreTested: the Go that documents show is compiled and
// tested, or is a function main that a test beside it shows.
func TestExamplesOfTheDocumentsAreTested(t *testing.T) {
	for _, c := range []struct {
		doc, tests string
		least      int
		mains      bool // they are tested elsewhere
	}{
		{"docs/programs.md", "flow/example_docs_test.go", 6, true},
		{"docs/functions.md", "function/example_docs_test.go", 5, false},
	} {
		doc, err := os.ReadFile(c.doc)
		if err != nil {
			t.Fatal(err)
		}
		tests, err := os.ReadFile(c.tests)
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
		if len(blocks) < c.least {
			t.Fatalf("%s has %d examples", c.doc, len(blocks))
		}
		for _, block := range blocks {
			if !strings.Contains(string(tests), block[1]) && !(c.mains && strings.HasPrefix(block[1], "func main()")) {
				t.Errorf("%s shows what %s does not test:\n%s", c.doc, c.tests, block[1])
			}
		}
	}
}

func TestEveryStatusIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("docs/definitions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{
		string(StatusRunning), string(StatusWaiting), string(StatusBlocked), string(StatusCompleted), string(StatusFailed),
		string(StatusCancelled), string(StatusCompensated), string(StatusCompensationFailed),
		string(NodePending), string(NodeRunning), string(NodeWaiting), string(NodeDone), string(NodeFailed), string(NodeCancelled), string(NodeSkipped),
	} {
		if !strings.Contains(string(doc), "\n| `"+status+"` |") {
			t.Errorf("docs/definitions.md does not say what %s means", status)
		}
	}
}

// What other systems call our keys leads to keys that there are.
func TestSpellingsLeadSomewhere(t *testing.T) {
	forms := map[string]*form{}
	seen := map[*form]bool{}
	var walk func(f *form)
	walk = func(f *form) {
		if f == nil || seen[f] {
			return
		}
		seen[f] = true
		if f.name != "" && forms[f.name] == nil {
			forms[f.name] = f
		}
		for _, k := range f.keys {
			walk(k.form)
		}
		walk(f.each)
		walk(f.or)
	}
	walk(grammar())
	told := map[string]bool{}
	for _, sp := range spellings {
		f := forms[sp.form]
		if f == nil || sp.key != "" && (!hasKey(f, sp.key) || !strings.HasPrefix(sp.write, sp.key+": ")) {
			t.Errorf("%s has no key %s, as in %s", sp.form, sp.key, sp.write)
			continue
		}
		for word := range strings.FieldsSeq(sp.words) {
			if at := sp.form + "." + word; told[at] || hasKey(f, word) || snake(word) != word {
				t.Errorf("%s is told twice, or is a key, or is not spelled as snake does", at)
			} else {
				told[at] = true
			}
		}
	}
}
