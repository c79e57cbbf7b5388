// Command functions serves the functions of the workflow licences in Go: the
// same that functions.sh has as commands.
//
//	go run ./cmd/drover dev
//	go run ./examples/licences/functions
//	go run ./cmd/drover start examples/licences/workflow.yaml --wait
//
// It connects to the server that NATS_URL names, or to the one of drover dev.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/function"
)

// The folders that are listed where the run's input names none.
const (
	usualFolder = "/usr/share/common-licenses"
	ownFolder   = "examples/licences/texts"
)

// shown is how many of the most common words are told.
const shown = 10

type folder struct {
	Folder string `json:"folder"`
}

type listing struct {
	Folder string   `json:"folder"`
	Files  []string `json:"files"`
}

// counted is one text.
type counted struct {
	AllWords int            `json:"all_words"`
	Counts   map[string]int `json:"counts"`
}

type word struct {
	Word  string `json:"word"`
	Count int    `json:"count"`
}

// summary is all texts.
type summary struct {
	AllWords   int    `json:"all_words"`
	MostCommon []word `json:"most_common"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL)); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, url string) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	return function.Serve(ctx, nc,
		function.New("text.list", list),
		function.New("text.count", count),
		function.New("text.top", top),
	)
}

// list gives the texts of a folder. Links are left out, so that no text counts
// twice.
func list(_ context.Context, in *folder) (listing, error) {
	out := listing{Files: []string{}}
	if in != nil {
		out.Folder = in.Folder
	}
	if out.Folder == "" {
		out.Folder = usualFolder
		if _, err := os.Stat(usualFolder); err != nil {
			out.Folder = ownFolder
		}
	}
	entries, err := os.ReadDir(out.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return out, function.Permanent(fmt.Errorf("there is no folder %s", out.Folder))
	}
	if err != nil {
		return out, err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			out.Files = append(out.Files, e.Name())
		}
	}
	out.Folder, err = filepath.Abs(out.Folder)
	return out, err
}

// count counts the words of one text: runs of ASCII letters, in lower case.
func count(_ context.Context, path string) (counted, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return counted{}, function.Permanent(err)
	}
	if err != nil {
		return counted{}, err
	}
	out := counted{Counts: map[string]int{}}
	letter := func(r rune) bool { return r < unicode.MaxASCII && unicode.IsLetter(r) }
	for w := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return !letter(r) }) {
		out.Counts[strings.ToLower(w)]++
		out.AllWords++
	}
	return out, nil
}

// top adds up all texts.
func top(_ context.Context, texts []counted) (summary, error) {
	out, counts := summary{MostCommon: []word{}}, map[string]int{}
	for _, t := range texts {
		out.AllWords += t.AllWords
		for w, n := range t.Counts {
			counts[w] += n
		}
	}
	for _, w := range slices.Sorted(maps.Keys(counts)) {
		out.MostCommon = append(out.MostCommon, word{w, counts[w]})
	}
	slices.SortStableFunc(out.MostCommon, func(a, b word) int { return cmp.Compare(b.Count, a.Count) })
	out.MostCommon = out.MostCommon[:min(shown, len(out.MostCommon))]
	return out, nil
}
