package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/droverhq/drover/internal/rawjson"
)

// readArg reads a value as it stands on the command line: the text itself,
// @file for what a file holds, or - for standard input.
func readArg(arg string, stdin io.Reader) ([]byte, error) {
	switch {
	case arg == "-":
		raw, err := io.ReadAll(stdin)
		if err != nil {
			return nil, usageError("standard input cannot be read: %w", err)
		}
		return raw, nil
	case strings.HasPrefix(arg, "@"):
		return readFile(arg[1:])
	}
	return []byte(arg), nil
}

func readFile(name string) ([]byte, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, usageError("%w", err)
	}
	return raw, nil
}

// readJSON reads a value that must be JSON, or YAML where it comes from a file
// that is called so. An empty argument is no value.
func readJSON(what, arg string, stdin io.Reader) (json.RawMessage, error) {
	if arg == "" {
		return nil, nil
	}
	raw, err := readArg(arg, stdin)
	if err != nil {
		return nil, err
	}
	if json.Valid(raw) {
		return raw, nil
	}
	if strings.HasPrefix(arg, "@") && (strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml")) {
		converted, err := yaml.YAMLToJSON(raw)
		if err != nil {
			return nil, usageError("%s: %s is no YAML: %w", what, arg[1:], err)
		}
		return converted, nil
	}
	return nil, usageError("%s is no JSON: %s; write it like '{\"topic\": \"cats\"}', '\"text\"', @file.json, or - for standard input", what, shorten(string(raw), 60))
}

// shorten cuts a text for a line on a terminal.
func shorten(s string, width int) string {
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return s
}

// definitionJSON makes what a request carries of a definition file: JSON as it
// is, and YAML as a string, so that problems are told with its lines.
func definitionJSON(raw []byte) (json.RawMessage, error) {
	if json.Valid(raw) {
		return raw, nil
	}
	text, err := rawjson.Encode(string(raw))
	if err != nil {
		return nil, usageError("the definition cannot be sent: %w", err)
	}
	return text, nil
}

// plural spells a count of things whose name takes an s.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
