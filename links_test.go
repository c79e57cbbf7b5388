package drover

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// anchors gives what headings of a document may be linked by.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		title := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		title = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(title, "")
		all[strings.ReplaceAll(title, " ", "-")] = true
	}
	return all
}

func TestLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	files, err := filepath.Glob("docs/*.md")
	if err != nil || len(files) < 5 {
		t.Fatalf("there are %d documents: %v", len(files), err)
	}
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]+))?\)`)
	for _, file := range append(files, "README.md", "CHANGELOG.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			target, anchor := file, to[2]
			if to[1] != "" {
				target = filepath.Join(filepath.Dir(file), to[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere: %v", file, to[0], err)
				continue
			}
			if anchor == "" {
				continue
			}
			if there, err := os.ReadFile(target); err != nil || !anchors(string(there))[anchor] {
				t.Errorf("%s: %s leads to no heading of %s (%v)", file, to[0], target, err)
			}
		}
	}
}
