package drover_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/droverhq/drover"
)

// Whatever comes in: no panic, a problem or a definition, and one that was
// read reads again from its canonical JSON, to the same hash.
func FuzzParseDefinition(f *testing.F) {
	for _, pattern := range []string{"testdata/problems/*.[jy]*", "testdata/iii/*.json", "testdata/valid/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte("nodes: &a {x: {set: {with: 1}}}\noutput: {from: node:x}\n"))
	f.Add([]byte(`{"nodes":{"x":{"sleep":"1d"}},"output":{"with":"${{ nodes.x.status }}"}}`))
	f.Add([]byte(`{"nodes":{"x":{"wait":{"hook":"a b.*","hold":true,"until":"payload"}},"y":{"release":{"hook":"x"}}},"output":{"from":"node:y"}}`))
	f.Add([]byte(`{"nodes":{"x":{"wait":{"hook":true,"respond":{"run":true}}},"y":{"respond":{"to":"x","with":null}}},"output":{"from":"node:y"}}`))
	f.Add([]byte("nodes: {x: {wait: {approve: [1, '${{ input }}'], tags: {a: ''}}}, y: {wait: {from: z, count: 2}}, z: {wait: {hook: '${{ nodes.x.output }}', on_unread: restart}}}\noutput: {from: node:y}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := drover.ParseDefinition(data)
		if err != nil {
			var e *drover.Error
			if !errors.As(err, &e) || e.Message == "" || e.Code == drover.CodeInvalidDefinition && len(e.Problems) == 0 {
				t.Errorf("the error is %#v", err)
			}
			return
		}
		text, hash, err := d.Canonical()
		if err != nil {
			t.Fatalf("what was read has no canonical JSON: %v", err)
		}
		again, err := drover.ParseDefinition(text)
		if err != nil {
			t.Fatalf("the canonical JSON is refused: %v\n%s", err, text)
		}
		text2, hash2, err := again.Canonical()
		if err != nil || hash2 != hash {
			t.Errorf("%v\n%s\n%s", err, text, text2)
		}
	})
}
