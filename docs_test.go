package drover

import (
	"os"
	"strings"
	"testing"
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
			d.Nodes["pick"].Set.With = appendText(nil, "${{ "+expression+" }}")
			if err := d.Validate(); err != nil {
				t.Errorf("%s: %v", expression, err)
			}
		}
	}
}
